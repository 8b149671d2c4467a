package gateway

import (
	"bytes"
	"slices"
	"testing"

	"github.com/ringfleet/ringfleet/router/openai"
)

func TestNamesThatWereMeant(t *testing.T) {
	s := NewState([]Model{{ServedNames: []string{"llama-3.2-1b", "llama-3.2-3b", "meta/llama-3.2-1b", "qwen3-8b", "gpt"}}}, Settings{})
	for name, want := range map[string][]string{
		"llama-3.2-1b-instruct": {"llama-3.2-1b"},
		"Qwen3-8B":              {"qwen3-8b"},
		"qwen3_8b":              {"qwen3-8b"},
		"you/qwen3-8b":          {"qwen3-8b"},
		"llama":                 {"llama-3.2-1b", "llama-3.2-3b", "meta/llama-3.2-1b"},
		"zzzzzzzzzzzzz":         nil,
		"":                      nil,
	} {
		got := s.near(name)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestDistanceCountsChanges(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"abc", "acb", 2}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func leading(parts ...string) *openai.ChatRequest {
	r := &openai.ChatRequest{}
	for _, p := range parts {
		r.Leading = append(r.Leading, []byte(p))
	}
	return r
}

func TestTheFirstNameOfAConversationCounts(t *testing.T) {
	all := openai.ChatRequest{Conversation: "c", PreviousResponseID: "p", PromptCacheKey: "k", User: "u"}
	for _, c := range []struct {
		session string
		drop    func(*openai.ChatRequest)
		want    string
	}{
		{"s", func(*openai.ChatRequest) {}, "session\x00s"},
		{"", func(*openai.ChatRequest) {}, "conversation\x00c"},
		{"", func(r *openai.ChatRequest) { r.Conversation = "" }, "response\x00p"},
		{"", func(r *openai.ChatRequest) { r.PreviousResponseID = "" }, "cache\x00k"},
		{"", func(r *openai.ChatRequest) { r.PromptCacheKey = "" }, "user\x00u"},
	} {
		c.drop(&all)
		if got := affinityKey("", c.session, &all); string(got) != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestAnUnnamedConversationIsItsBeginning(t *testing.T) {
	parse := func(messages string) []byte {
		r, err := openai.ParseChat([]byte(`{"model":"m","messages":` + messages + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return affinityKey("", "", r)
	}
	first := parse(`[{"role":"system","content":"s"},{"role":"user","content":"a"}]`)
	later := parse(`[{"content":"s", "role":"system"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]`)
	other := parse(`[{"role":"system","content":"s"},{"role":"user","content":"b"}]`)
	if !bytes.Equal(first, later) {
		t.Error("a later turn has another key")
	}
	if bytes.Equal(first, other) {
		t.Error("two conversations under one system prompt have one key")
	}
	if bytes.Equal(affinityKey("", "", leading("ab", "c")), affinityKey("", "", leading("a", "bc"))) {
		t.Error("parts run into each other")
	}
	const golden = "prompt\x00\xb2k\x18O\x03 Rj"
	if got := affinityKey("", "", leading("user", `"hi"`)); string(got) != golden {
		t.Errorf("%q, want %q", got, golden)
	}
}
