package llamacpp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ardanlabs/jinja"
)

// deepest is how far JSON may nest: templates recurse over it.
const deepest = 100

// parse makes a template's value of JSON. The members of an object keep their order, which the prompt shows.
func parse(text []byte) (jinja.Value, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := value(d, 0)
	if err != nil {
		return v, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v, errors.New("there is more after the JSON value")
	}
	return v, nil
}

func value(d *json.Decoder, depth int) (jinja.Value, error) {
	t, err := d.Token()
	if err != nil {
		return jinja.None(), err
	}
	switch t := t.(type) {
	case nil:
		return jinja.None(), nil
	case bool:
		return jinja.NewBool(t), nil
	case string:
		return jinja.NewString(t), nil
	case json.Number:
		return number(t)
	case json.Delim:
		if depth >= deepest {
			return jinja.None(), fmt.Errorf("it nests deeper than %d", deepest)
		}
		if t == '[' {
			return array(d, depth)
		}
		return object(d, depth)
	}
	return jinja.None(), fmt.Errorf("unexpected %v", t)
}

func number(n json.Number) (jinja.Value, error) {
	if i, err := n.Int64(); err == nil {
		return jinja.NewInt(i), nil
	}
	f, err := n.Float64()
	return jinja.NewFloat(f), err
}

func array(d *json.Decoder, depth int) (jinja.Value, error) {
	var items []jinja.Value
	for d.More() {
		v, err := value(d, depth+1)
		if err != nil {
			return v, err
		}
		items = append(items, v)
	}
	_, err := d.Token()
	return jinja.NewList(items), err
}

func object(d *json.Decoder, depth int) (jinja.Value, error) {
	dict := jinja.NewDict()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return dict, err
		}
		v, err := value(d, depth+1)
		if err != nil {
			return v, err
		}
		name, ok := key.(string)
		if !ok {
			return dict, fmt.Errorf("unexpected %v", key)
		}
		dict.AsDict().Set(name, v)
	}
	_, err := d.Token()
	return dict, err
}

// messagesOf reads messages as a template wants them: contents of text parts are joined unless it takes parts, and calls of
// tools are as calls says.
func messagesOf(text []byte, parts bool, calls *history) (jinja.Value, error) {
	messages, err := parse(text)
	if err != nil {
		return messages, invalid("messages", "they are no JSON: %v", err)
	}
	if !messages.IsList() || messages.AsList().Len() == 0 {
		return messages, invalid("messages", "they must be a list of at least one message")
	}
	for i, m := range messages.AsList().Items {
		if !m.IsDict() {
			return messages, invalid("messages", "message %d is no object", i)
		}
		if err := content(m.AsDict(), i, parts); err != nil {
			return messages, err
		}
	}
	return jinja.NewList(calls.apply(messages.AsList().Items)), nil
}

// content checks the parts of a message's content and joins them where the template takes strings only.
func content(message *jinja.Dict, at int, parts bool) error {
	c, _ := message.Get("content")
	if !c.IsList() {
		return nil
	}
	var texts []string
	for i, p := range c.AsList().Items {
		if !p.IsDict() {
			return invalid("messages", "part %d of message %d is no object", i, at)
		}
		kind, _ := p.AsDict().Get("type")
		text, _ := p.AsDict().Get("text")
		if !kind.IsString() || kind.AsString() != "text" || !text.IsString() {
			return invalid("messages", "part %d of message %d is no text, and this model takes only text", i, at)
		}
		texts = append(texts, text.AsString())
	}
	if !parts {
		message.Set("content", jinja.NewString(strings.Join(texts, "\n")))
	}
	return nil
}

// toolsOf reads tools; none is the template's none.
func toolsOf(text []byte) (jinja.Value, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return jinja.None(), nil
	}
	tools, err := parse(text)
	if err != nil {
		return tools, invalid("tools", "they are no JSON: %v", err)
	}
	switch {
	case tools.IsNone(), tools.IsList() && tools.AsList().Len() == 0:
		return jinja.None(), nil
	case !tools.IsList():
		return tools, invalid("tools", "they must be a list")
	}
	return tools, nil
}
