package llamacpp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// calling is a template of a family that reasons between <think> and </think>, at once where it is told to, and calls tools
// by <tool_call>.
const calling = `{% if tools %}Tools: {{ tools | tojson }}. Call one as <tool_call>{"name": ..., "arguments": ...}</tool_call>.
{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant:{% if messages[0].content == 'think' %}<think>
{% else %}<think></think>{% endif %}{% endif %}`

const weather = `[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`

// special makes a special token of the token of that id in a generated vocabulary, whose text must be as long.
func special(id int, old, text string) func([]byte) []byte {
	return func(b []byte) []byte {
		b = bytes.Replace(b, []byte(old), []byte(text), 1)
		const types = "tokenizer.ggml.token_type"
		at := bytes.Index(b, []byte(types)) + len(types) + 4 + 4 + 8
		binary.LittleEndian.PutUint32(b[at+4*id:], 3) // control
		return b
	}
}

func openCalling(t *testing.T) *engine.Loaded {
	t.Helper()
	m := small()
	m.Vocab, m.Template = 400, calling
	words := m.Vocabulary()
	return openMade(t, m, special(350, words[350], "<think>"))
}

func split(t *testing.T, l *engine.Loaded, c engine.Chat, text string) (plain, reasoning, call string, called bool) {
	t.Helper()
	s := l.Splitter(&c)
	parts := s.Push(text)
	rest, called := s.Flush()
	for _, p := range append(parts, rest...) {
		plain += p.Text
		reasoning += p.Reasoning
		if p.Call != nil {
			call += p.Call.Name + p.Call.Arguments
		}
	}
	return plain, reasoning, call, called
}

func TestAnswersAreToldApartAsTheTemplateShows(t *testing.T) {
	l := openCalling(t)
	if !l.Info.Caps.Tools || !l.Executor.Caps().Tools {
		t.Error("the model says that it calls no tools")
	}
	ask := func(content string) engine.Chat {
		return engine.Chat{Messages: []byte(`[{"role":"user","content":"` + content + `"}]`), Tools: []byte(weather)}
	}
	const call = `<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>`
	plain, reasoning, name, called := split(t, l, ask("now"), "It is:"+call)
	if plain != "It is:" || reasoning != "" || name != `weather{"city": "Paris"}` || !called {
		t.Errorf("a call: %q, %q, %q, %t", plain, reasoning, name, called)
	}
	plain, reasoning, _, _ = split(t, l, ask("think"), "Let me see.</think>Yes.")
	if plain != "Yes." || reasoning != "Let me see." {
		t.Errorf("where the prompt opens the reasoning: %q, %q", plain, reasoning)
	}
	if plain, reasoning, _, _ = split(t, l, ask("think"), `{"a": "b"}`); plain != `{"a": "b"}` || reasoning != "" {
		t.Errorf("an object where it does: %q, %q", plain, reasoning)
	}
	if plain, _, _, _ = split(t, l, ask("now"), "Let me see."); plain != "Let me see." {
		t.Errorf("where it doesn't: %q", plain)
	}
	without := ask("now")
	without.Tools = nil
	if plain, _, _, called = split(t, l, without, call); plain != call || called {
		t.Errorf("without tools: %q", plain)
	}
}

func TestMarkupThatIsASpecialTokenHasBytes(t *testing.T) {
	v := openCalling(t).Vocabulary
	if got := tokens(t, v, "<think>"); !slices.Equal(got, []engine.Token{1, 350}) {
		t.Fatalf("<think> is %v", got)
	}
	if got := string(v.Piece(350)); got != "<think>" {
		t.Errorf("<think> has the bytes %q", got)
	}
	if got := v.Piece(1); len(got) > 0 {
		t.Errorf("the token that begins a prompt has the bytes %q", got)
	}
}

// respell replaces a string of a file's metadata.
func respell(b []byte, old, text string) []byte {
	long := func(s string) []byte { return append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...) }
	return bytes.Replace(b, long(old), long(text), 1)
}

func TestATokenThatWaitsForToolsEndsTheOutput(t *testing.T) {
	const (
		id       = 350
		text     = "<start_function_response>"
		template = `{% for m in messages %}{{ m.content }}{% endfor %}<start_function_call>`
	)
	m := small()
	m.Vocab = 400
	word := m.Vocabulary()[id]
	m.Template = template + strings.Repeat(" ", len(text)-len(word)) // which goes, so that the tensors stay where they are
	v := openMade(t, m, func(b []byte) []byte {
		return special(id, text, text)(respell(respell(b, m.Template, template), word, text))
	}).Vocabulary
	if got := tokens(t, v, text); !slices.Equal(got, []engine.Token{1, id}) {
		t.Fatalf("%s is %v", text, got)
	}
	if !v.EndsGeneration(id) || v.EndsGeneration(id-1) || len(v.Piece(id)) > 0 {
		t.Errorf("%s ends the output: %t, another token: %t; its bytes are %q", text, v.EndsGeneration(id), v.EndsGeneration(id-1), v.Piece(id))
	}
}

func TestAModelWithoutToolsRefusesThem(t *testing.T) {
	l := open(t)
	if l.Info.Caps.Tools || l.Splitter != nil || !l.Info.Caps.Logprobs || !l.Info.Caps.JSONObject || !l.Info.Caps.Adapters {
		t.Errorf("the demo model says that it can %+v", l.Info.Caps)
	}
	_, err := l.Vocabulary.Render(engine.Chat{Messages: []byte(paris), Tools: []byte(weather)})
	var bad *engine.InvalidError
	if !errors.As(err, &bad) || bad.Field != "tools" || !strings.Contains(bad.Message, "shows it no tools") {
		t.Errorf("got %v", err)
	}
	if _, err := l.Vocabulary.Render(engine.Chat{Messages: []byte(paris), Tools: []byte(" [] ")}); err != nil {
		t.Errorf("an empty list of tools: %v", err)
	}
}
