package openai

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs:\n%s\nwant\n%s", name, got, want)
	}
}

func completion(usage bool) *Completion {
	return &Completion{ID: "chatcmpl-1", Model: "org/m", Created: 1_800_000_000, IncludeUsage: usage}
}

func TestStreamsOnTheWire(t *testing.T) {
	u := Usage{Prompt: 12, Completion: 3, Cached: 8}
	whole := func(c *Completion) []byte {
		b := c.AppendRole(nil, 0)
		for _, text := range []string{"Hi", " \"there\"\n", "a\u2028b\u2029c\u0085d", "😀<&>"} {
			b = c.AppendDelta(b, &Delta{Text: text})
		}
		return c.AppendDone(c.AppendFinish(b, 0, FinishStop), u)
	}
	golden(t, "stream.sse", whole(completion(false)))
	golden(t, "stream_usage.sse", whole(completion(true)))

	broken := completion(false)
	b := broken.AppendDelta(broken.AppendRole(nil, 0), &Delta{Text: "Hi"})
	b = AppendErrorEvent(b, &Error{Type: ServerError, Code: "worker_lost", Message: "The worker was lost."})
	golden(t, "stream_broken.sse", b)
}

func TestChoicesToolsReasoningAndLogprobsOnTheWire(t *testing.T) {
	logprobs := []Logprob{{Bytes: []byte("Hi"), Logprob: -0.25, Top: []Logprob{{Bytes: []byte("Hi"), Logprob: -0.25}, {Bytes: []byte{0xf0, 0x9f}, Logprob: math.Inf(-1)}}}}
	c := completion(true)
	b := c.AppendRole(nil, 0)
	b = c.AppendDelta(b, &Delta{Reasoning: "Hm."})
	b = c.AppendRole(b, 1)
	b = c.AppendDelta(b, &Delta{Choice: 1, Text: "Hi", Logprobs: logprobs})
	b = c.AppendDelta(b, &Delta{Text: "I look.", ToolCalls: []ToolCall{{ID: "call_1", Name: "f"}, {Index: 1, ID: "call_2", Name: "g"}}})
	b = c.AppendDelta(b, &Delta{ToolCalls: []ToolCall{{Arguments: `{"a":`}, {Index: 1, Arguments: "{}"}}})
	b = c.AppendDelta(b, &Delta{ToolCalls: []ToolCall{{Arguments: `1}`}}})
	b = c.AppendFinish(c.AppendFinish(b, 1, FinishStop), 0, FinishToolCalls)
	golden(t, "stream_choices.sse", c.AppendDone(b, Usage{Prompt: 12, Completion: 9}))
	golden(t, "completion_choices.json", c.AppendBody(nil, []Choice{
		{Reasoning: "Hm.", ToolCalls: []ToolCall{{ID: "call_1", Name: "f", Arguments: `{"a":1}`}}, Finish: FinishToolCalls},
		{Text: "Hi", Logprobs: logprobs, Finish: FinishStop},
	}, Usage{Prompt: 12, Completion: 9}))
}

func TestBodiesOnTheWire(t *testing.T) {
	golden(t, "completion.json", completion(false).AppendBody(nil, []Choice{{Text: "Hi\u2028", Finish: FinishLength}}, Usage{Prompt: 12, Completion: 3}))
	golden(t, "models.json", AppendModels(nil, []Model{{ID: "a/b", Created: 5}, {ID: "c"}}))
	golden(t, "models_none.json", AppendModels(nil, nil))
	golden(t, "error.json", AppendError(nil, invalid(CodeInvalidValue, "messages[0].role", "no %q", "x")))
	golden(t, "error_nulls.json", AppendError(nil, &Error{Type: ServerError, Message: "m"}))
}

func FuzzStringsSurviveTheWire(f *testing.F) {
	for _, s := range []string{"", "a\u2028b\u2029c\u0085d", "\x00\x1f\x7f\"\\", "😀", "\xff\xfe", "\u00c2\u0085"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		wire := appendString(nil, s)
		var back string
		if err := json.Unmarshal(wire, &back); err != nil {
			t.Fatalf("%q: %v", wire, err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); back != want && back != string([]rune(s)) {
			t.Fatalf("%q came back as %q", s, back)
		}
		if strings.ContainsAny(string(wire), "\n\r\u0085\u2028\u2029") {
			t.Fatalf("%q holds a line break", wire)
		}
	})
}

// However a text is cut into pieces, the client joins the same text.
func FuzzAnyChunkingGivesTheSameText(f *testing.F) {
	f.Add("Grüße 😀\n\u2028 end", uint64(0b1011010))
	f.Fuzz(func(t *testing.T, s string, cuts uint64) {
		s = strings.ToValidUTF8(s, "")
		c := completion(true)
		wire := c.AppendRole(nil, 0)
		var piece strings.Builder
		for i, r := range []rune(s) {
			piece.WriteRune(r)
			if cuts>>(i%64)&1 == 1 {
				wire = c.AppendDelta(wire, &Delta{Text: piece.String()})
				piece.Reset()
			}
		}
		wire = c.AppendDone(c.AppendFinish(c.AppendDelta(wire, &Delta{Text: piece.String()}), 0, FinishStop), Usage{})
		if got := joined(t, string(wire)); got != s {
			t.Fatalf("%q came back as %q", s, got)
		}
	})
}

// joined reads a stream as a client does.
func joined(t *testing.T, wire string) string {
	t.Helper()
	events := strings.Split(strings.TrimSuffix(wire, "\n\n"), "\n\n")
	if events[len(events)-1] != "data: [DONE]" {
		t.Fatalf("no [DONE] at the end of %q", wire)
	}
	var text strings.Builder
	for _, e := range events[:len(events)-1] {
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(e, "data: ")), &chunk); err != nil {
			t.Fatalf("%q: %v", e, err)
		}
		for _, c := range chunk.Choices {
			text.WriteString(c.Delta.Content)
		}
	}
	return text.String()
}
