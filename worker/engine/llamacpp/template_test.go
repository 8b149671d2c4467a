package llamacpp

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

var update = flag.Bool("update", false, "write the golden files")

// Each case of testdata/templates is a template, and chats whose prompts are beside it.
func TestChatsAreRenderedByTheTemplate(t *testing.T) {
	smollm := open(t).Vocabulary.(*vocabulary).template
	source := func(name string) *template {
		b, err := os.ReadFile(filepath.Join("testdata", "templates", name+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		return newTemplate(string(b), name, "<s>", "</s>")
	}
	tools := `[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`
	cases := map[string]struct {
		template *template
		chat     engine.Chat
	}{
		"smollm2-user":   {smollm, engine.Chat{Messages: []byte(`[{"role":"user","content":"Hi"}]`)}},
		"smollm2-system": {smollm, engine.Chat{Messages: []byte(paris)}},
		"smollm2-turns": {smollm, engine.Chat{Messages: []byte(`[{"role":"system","content":"Be terse."},` +
			`{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."},{"role":"user","content":"Grüße\n\"quoted\" <|x|>"}]`)}},
		"smollm2-parts": {smollm, engine.Chat{Messages: []byte(`[{"role":"system","content":"S"},` +
			`{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}]`)}},
		"parts-kept": {source("parts"), engine.Chat{Messages: []byte(`[{"role":"user","content":[{"type":"text","text":"one"},` +
			`{"type":"text","text":"two"}]}]`)}},
		"tools-in-order": {source("tools"), engine.Chat{Tools: []byte(tools), Messages: []byte(`[{"role":"user","content":"Weather?"},` +
			`{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"weather",` +
			`"arguments":"{\"z\": 1, \"a\": [true, null, 2.5]}"}}]},{"role":"tool","tool_call_id":"1","content":"sunny"}]`)}},
		"tools-none": {source("tools"), engine.Chat{Tools: []byte(`[]`), Messages: []byte(`[{"role":"user","content":"Hi"}]`)}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := c.template.render(c.chat)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "templates", name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil || got != string(want) {
				t.Errorf("got %q, want %q (%v)", got, want, err)
			}
		})
	}
}

func TestChatsThatCantBeRenderedAreInvalid(t *testing.T) {
	raising := newTemplate(`{% if messages[0].role != 'user' %}{{ raise_exception('the first must be of the user') }}{% endif %}ok`, "m", "", "")
	adding := newTemplate(`{% for m in messages %}{{ 'x' + m['content'] }}{% endfor %}`, "m", "", "")
	calling := newTemplate(`{{ nothing() }}`, "m", "", "")
	cases := map[string]struct {
		template *template
		messages string
		tools    string
		field    string
		says     string
	}{
		"the template raises":        {raising, `[{"role":"tool","content":"x"}]`, "", "messages", "the first must be of the user"},
		"the template calls nothing": {calling, `[{"role":"user","content":"x"}]`, "", "messages", "template refuses"},
		"no template":                {newTemplate("", "Tiny 2M", "", ""), `[{"role":"user","content":"x"}]`, "", "messages", "Tiny 2M can't chat"},
		"a template that is none":    {newTemplate("{% for %}", "m", "", ""), `[{"role":"user","content":"x"}]`, "", "messages", "doesn't compile"},
		"no JSON":                    {adding, `[{"role"`, "", "messages", "no JSON"},
		"an object":                  {adding, `{}`, "", "messages", "must be a list"},
		"an empty list":              {adding, `[]`, "", "messages", "at least one"},
		"a list of strings":          {adding, `["x"]`, "", "messages", "message 0 is no object"},
		"more after the end":         {adding, `[{"content":"x"}] 1`, "", "messages", "more after"},
		"an image": {adding, `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]`, "", "messages",
			"part 0 of message 0 is no text"},
		"a part of no kind": {adding, `[{"role":"user","content":["x"]}]`, "", "messages", "part 0 of message 0 is no object"},
		"a deep nest":       {adding, `[{"x":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}]`, "", "messages", "deeper than 100"},
		"tools of no list":  {adding, `[{"role":"user","content":"x"}]`, `{"a":1}`, "tools", "must be a list"},
		"tools of no JSON":  {adding, `[{"role":"user","content":"x"}]`, `[`, "tools", "no JSON"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out, err := c.template.render(engine.Chat{Messages: []byte(c.messages), Tools: []byte(c.tools)})
			var bad *engine.InvalidError
			if !errors.As(err, &bad) || bad.Field != c.field || !strings.Contains(bad.Message, c.says) {
				t.Errorf("got %q, %v; want %q in %s", out, err, c.says, c.field)
			}
		})
	}
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte(paris), true)
	f.Add([]byte(`[{"role":"user","content":[{"type":"text","text":"x"}],"tool_calls":[{"function":{"arguments":"{}"}}]}]`), false)
	f.Add([]byte(`[{"n":1e999,"m":-0,"l":18446744073709551616}]`), true)
	t := newTemplate(`{% for m in messages %}{{ m | tojson }}{% endfor %}`, "m", "", "")
	f.Fuzz(func(ft *testing.T, messages []byte, parts bool) {
		own := *t
		own.parts = parts
		_, err := own.render(engine.Chat{Messages: messages, Tools: messages})
		var bad *engine.InvalidError
		if err != nil && !errors.As(err, &bad) {
			ft.Errorf("the error is %T: %v", err, err)
		}
	})
}
