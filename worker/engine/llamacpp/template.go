package llamacpp

import (
	"fmt"
	"strings"

	"github.com/ardanlabs/jinja"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// template is the chat template that came with the weights. It is safe for use by several goroutines.
type template struct {
	model    string // for messages
	broken   string // why there is none that works, or ""
	compiled *jinja.Template
	bos, eos string
	// parts: the template takes a content that is a list of parts; else texts are joined for it.
	parts bool
}

// newTemplate compiles source. One that is missing or doesn't compile refuses every chat; prompts of text still run.
func newTemplate(source, model, bos, eos string) (t *template) {
	t = &template{model: model, bos: bos, eos: eos}
	if strings.TrimSpace(source) == "" {
		t.broken = "it has none"
		return t
	}
	defer func() {
		if p := recover(); p != nil {
			t.broken = fmt.Sprint("it doesn't compile: ", p)
		}
	}()
	var err error
	if t.compiled, err = jinja.Compile(trimmed(source)); err != nil {
		t.broken = "it doesn't compile: " + err.Error()
		return t
	}
	t.parts = t.takesParts()
	return t
}

// takesParts tries whether a text within a list of parts comes out. Templates that know only strings raise, print the list
// or drop it.
func (t *template) takesParts() bool {
	const needle = "5d41402a"
	messages, err := parse([]byte(`[{"role":"user","content":[{"type":"text","text":"` + needle + `"}]}]`))
	if err != nil {
		return false
	}
	out, err := t.execute(messages, jinja.None())
	return err == nil && strings.Contains(out, needle) && !strings.Contains(out, "type")
}

// render returns the prompt of a chat. Its errors are *engine.InvalidError.
func (t *template) render(c engine.Chat) (string, error) {
	if t.broken != "" {
		return "", invalid("messages", "the model %s can't chat: of a chat template, %s; send a prompt of text instead", t.model, t.broken)
	}
	messages, err := messagesOf(c.Messages, t.parts)
	if err != nil {
		return "", err
	}
	tools, err := toolsOf(c.Tools)
	if err != nil {
		return "", err
	}
	out, err := t.execute(messages, tools)
	if err != nil {
		return "", invalid("messages", "the model's chat template refuses them: %s", shorten(err.Error()))
	}
	return out, nil
}

// execute runs the template with what Hugging Face's apply_chat_template gives it.
func (t *template) execute(messages, tools jinja.Value) (out string, err error) {
	defer func() {
		if p := recover(); p != nil { // the engine panics on some type errors
			err = fmt.Errorf("%v", p)
		}
	}()
	return t.compiled.RenderValues(map[string]jinja.Value{
		"messages":              messages,
		"tools":                 tools,
		"add_generation_prompt": jinja.NewBool(true),
		"bos_token":             jinja.NewString(t.bos),
		"eos_token":             jinja.NewString(t.eos),
	})
}

func invalid(field, format string, args ...any) error {
	return &engine.InvalidError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// shorten keeps an answer to a client small.
func shorten(s string) string {
	const most = 300
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
