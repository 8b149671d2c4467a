package llamacpp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ardanlabs/jinja"

	"github.com/ringfleet/ringfleet/worker/dialect"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// template is the chat template that came with the weights. It is safe for use by several goroutines.
type template struct {
	model    string // for messages
	broken   string // why there is none that works, or ""
	compiled *jinja.Template
	bos, eos string
	// parts: the template takes a content that is a list of parts; else texts are joined for it. tools: it shows the model
	// the tools.
	parts, tools bool
	history      history
	// dialect is how the model answers. endings: it depends on how the prompt ends; nil: it doesn't.
	dialect dialect.Dialect
	endings *endings
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
	source, err := guarded(trimmed(source))
	if err != nil {
		t.broken = "it is out of bounds: " + err.Error()
		return t
	}
	if t.compiled, err = jinja.Compile(source); err != nil {
		t.broken = "it doesn't compile: " + err.Error()
		return t
	}
	t.parts, t.tools = t.takesParts(), t.takesTools()
	t.dialect = dialect.Detect(source)
	t.history = t.learn()
	for _, mark := range t.dialect.Markup() {
		if t.endings == nil && t.dialect.After(mark) != t.dialect.After("") {
			t.endings = newEndings()
		}
	}
	return t
}

// needle is a word that no template has.
const needle = "5d41402a"

// takesParts tries whether a text within a list of parts comes out. Templates that know only strings raise, print the list
// or drop it.
func (t *template) takesParts() bool {
	out, err := t.try(`[{"role":"user","content":[{"type":"text","text":"`+needle+`"}]}]`, "")
	return err == nil && strings.Contains(out, needle) && !strings.Contains(out, "type")
}

// takesTools tries whether the name of a tool comes out.
func (t *template) takesTools() bool {
	content := `"x"`
	if t.parts {
		content = `[{"type":"text","text":"x"}]`
	}
	out, err := t.try(`[{"role":"user","content":`+content+`}]`,
		`[{"type":"function","function":{"name":"`+needle+`","description":"x","parameters":{"type":"object","properties":{}}}}]`)
	return err == nil && strings.Contains(out, needle)
}

func (t *template) try(messages, tools string) (string, error) {
	m, err := parse([]byte(messages))
	if err != nil {
		return "", err
	}
	with, err := toolsOf([]byte(tools))
	if err != nil {
		return "", err
	}
	return t.trial(m, with)
}

// trial runs the template as long as it is made. One that has gone beyond a bound is broken, and isn't run again.
func (t *template) trial(messages, tools jinja.Value) (string, error) {
	if t.broken != "" {
		return "", errors.New(t.broken)
	}
	out, err := t.execute(messages, tools)
	if beyond := (*boundError)(nil); errors.As(err, &beyond) {
		t.broken = "it is out of bounds: " + err.Error()
	}
	return out, err
}

// calls reports whether the model can call tools: it is shown them, and what it writes then is understood.
func (t *template) calls() bool {
	name := t.dialect.Name()
	return t.tools && name != "" && name != "reasoning"
}

// splitters is engine.Loaded's Splitter; nil where there is nothing to tell apart.
func (t *template) splitters() func(*engine.Chat) engine.Splitter {
	if t.dialect.Name() == "" {
		return nil
	}
	return t.splitter
}

// splitter tells what the model answers to a chat apart.
func (t *template) splitter(c *engine.Chat) engine.Splitter {
	if t.endings == nil {
		return t.dialect.Splitter(c.Tools)
	}
	d, known := t.endings.get(c)
	if !known {
		d = t.dialect
		if prompt, err := t.render(*c); err == nil { // or there would be no answer
			d = d.After(prompt)
		}
	}
	return d.Splitter(c.Tools)
}

// render returns the prompt of a chat. Its errors are *engine.InvalidError.
func (t *template) render(c engine.Chat) (string, error) {
	if t.broken != "" {
		return "", invalid("messages", "the model %s can't chat: of a chat template, %s; send a prompt of text instead", t.model, t.broken)
	}
	messages, err := messagesOf(c.Messages, t.parts, &t.history)
	if err != nil {
		return "", err
	}
	tools, err := toolsOf(c.Tools)
	if err != nil {
		return "", err
	}
	if !tools.IsNone() && !t.tools {
		return "", invalid("tools", "the chat template of the model %s shows it no tools", t.model)
	}
	out, err := t.execute(messages, tools)
	if err != nil {
		return "", invalid("messages", "the model's chat template refuses them: %s", shorten(err.Error()))
	}
	if t.endings != nil {
		t.endings.put(&c, t.dialect.After(out))
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
	var held bounds
	values := held.values()
	values["messages"], values["tools"] = messages, tools
	values["add_generation_prompt"] = jinja.NewBool(true)
	values["bos_token"], values["eos_token"] = jinja.NewString(t.bos), jinja.NewString(t.eos)
	if out, err = t.compiled.RenderValues(values); held.err != nil {
		err = held.err
	}
	return out, err
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
