package openai

import (
	"bytes"
	"slices"
	"strconv"
)

// roles that a message may have. What a model does with each is its template's to decide.
var roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// content is the form in which a message has its content.
type content int

const (
	noContent content = iota // absent, null or an empty array
	someContent
)

// message is what is checked of one message.
type message struct {
	role    []byte
	content content
	raw     []byte // content as written
	calls   bool   // it has tool calls, and needs no content
	seen    []string
}

// messages reads the array, and remembers its bytes and its beginning.
func (p *parser) messages(name string) *Error {
	if p.s.space() != '[' {
		return p.mismatch(name, "an array of messages")
	}
	start, count, leading := p.s.i, 0, true
	err := p.s.array(func(i int) *Error {
		at := name + "[" + strconv.Itoa(i) + "]"
		if count++; count > MaxMessages {
			return invalid(CodeInvalidValue, name, "messages must have at most %d elements.", MaxMessages)
		}
		m, err := p.message(at)
		if err != nil {
			return err.in(at)
		}
		if leading {
			p.req.Leading = append(p.req.Leading, m.role, m.raw)
			leading = string(m.role) != "user"
		}
		return nil
	})
	if err != nil {
		return err
	}
	if count == 0 {
		return invalid(CodeInvalidValue, name, "messages must have at least one message.")
	}
	p.req.Messages = p.s.b[start:p.s.i]
	return nil
}

// message reads and judges one message.
func (p *parser) message(at string) (m message, err *Error) {
	if p.s.space() != '{' {
		return m, p.mismatch(at, "an object")
	}
	if err := p.s.object(func(key []byte) *Error { return p.messageMember(at, &m, key) }); err != nil {
		return m, err
	}
	switch {
	case m.role == nil:
		return m, invalid(CodeMissing, at+".role", "%s.role is missing.", at)
	case !slices.Contains(roles, string(m.role)):
		return m, invalid(CodeInvalidValue, at+".role", "%s.role must be system, developer, user, assistant, tool or function, and %q is not.",
			at, clip(string(m.role)))
	case m.content == noContent && !(m.calls && string(m.role) == "assistant"):
		return m, invalid(CodeMissing, at+".content", "%s.content must be a string or an array of text parts.", at)
	}
	return m, nil
}

// messageMember reads one member of a message.
func (p *parser) messageMember(at string, m *message, key []byte) *Error {
	name := string(key)
	switch name {
	case "role", "content", "tool_calls":
	default:
		_, err := p.s.value()
		return err
	}
	at += "." + name
	if slices.Contains(m.seen, name) {
		return invalid(CodeDuplicate, at, "%s is there twice; which one is meant can't be known.", at)
	}
	m.seen = append(m.seen, name)
	if p.s.space() == 'n' {
		return p.s.word("null").in(at)
	}
	var err *Error
	switch name {
	case "role":
		if p.s.space() != '"' {
			return p.mismatch(at, "a string")
		}
		m.role, err = p.s.text()
	case "content":
		from := p.s.i
		m.content, err = p.content(at)
		m.raw = p.s.b[from:p.s.i]
	case "tool_calls":
		if p.s.space() != '[' {
			return p.mismatch(at, "an array")
		}
		var raw []byte
		raw, err = p.s.value()
		m.calls = len(bytes.Trim(raw, "[] \t\r\n")) > 0
	}
	return err.in(at)
}

// content reads a string or an array of text parts.
func (p *parser) content(at string) (content, *Error) {
	switch p.s.space() {
	case '"':
		_, err := p.s.value()
		return someContent, err
	case '[':
		form := noContent
		err := p.s.array(func(j int) *Error {
			form = someContent
			part := at + "[" + strconv.Itoa(j) + "]"
			return p.part(part).in(part)
		})
		return form, err
	}
	return noContent, p.mismatch(at, "a string or an array of text parts")
}

// part reads {"type":"text","text":"…"}.
func (p *parser) part(at string) *Error {
	if p.s.space() != '{' {
		return p.mismatch(at, "an object")
	}
	var kind string
	var text bool
	err := p.s.object(func(key []byte) *Error {
		switch string(key) {
		case "type":
			if kind != "" {
				return invalid(CodeDuplicate, at+".type", "%s.type is there twice.", at)
			}
			return p.str(at+".type", &kind)
		case "text":
			if p.s.space() != '"' {
				return p.mismatch(at+".text", "a string")
			}
			text = true
		}
		_, err := p.s.value()
		return err
	})
	switch {
	case err != nil:
		return err
	case kind == "":
		return invalid(CodeMissing, at+".type", "%s.type is missing.", at)
	case kind != "text":
		return invalid(CodeUnsupportedParameter, at, "%s is of type %q; only text is supported.", at, clip(kind))
	case !text:
		return invalid(CodeMissing, at+".text", "%s.text is missing.", at)
	}
	return nil
}
