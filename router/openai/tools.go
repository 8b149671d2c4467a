package openai

import "strconv"

// Bounds of tools, as OpenAI has them.
const (
	MaxTools         = 128
	MaxToolNameBytes = 64
)

// tools reads an array of functions, and remembers its bytes: templates see the keys in the client's order.
func (p *parser) tools(name string) *Error {
	if p.s.space() != '[' {
		return p.mismatch(name, "an array of tools")
	}
	start, count := p.s.i, 0
	err := p.s.array(func(i int) *Error {
		if count++; count > MaxTools {
			return invalid(CodeInvalidValue, name, "%s must have at most %d elements.", name, MaxTools)
		}
		at := name + "[" + strconv.Itoa(i) + "]"
		return p.tool(at).in(at)
	})
	if err == nil && count > 0 {
		p.req.Tools = p.s.b[start:p.s.i]
	}
	return err
}

// tool reads {"type":"function","function":{"name":"…",…}}.
func (p *parser) tool(at string) *Error {
	if p.s.space() != '{' {
		return p.mismatch(at, "an object")
	}
	var kind, function string
	var found bool
	err := p.s.object(func(key []byte) *Error {
		switch string(key) {
		case "type":
			return p.str(at+".type", &kind)
		case "function":
			found = true
			return p.function(at+".function", &function)
		}
		_, err := p.s.value()
		return err
	})
	switch {
	case err != nil:
		return err
	case kind != "function":
		return invalid(CodeUnsupportedParameter, at+".type", "%s.type must be function, and %q is not.", at, clip(kind))
	case !found:
		return invalid(CodeMissing, at+".function", "%s.function is missing.", at)
	case !toolName(function):
		return invalid(CodeInvalidValue, at+".function.name", "%s.function.name must have 1 to %d letters, digits, _ or -, and %q has not.",
			at, MaxToolNameBytes, clip(function))
	}
	return nil
}

// function reads a function's name, and the rest without looking: parameters are the model's to read.
func (p *parser) function(at string, name *string) *Error {
	if p.s.space() != '{' {
		return p.mismatch(at, "an object")
	}
	return p.s.object(func(key []byte) *Error {
		switch string(key) {
		case "name":
			return p.str(at+".name", name)
		case "parameters":
			if c := p.s.space(); c != '{' && c != 'n' {
				return p.mismatch(at+".parameters", "an object")
			}
		}
		_, err := p.s.value()
		return err
	})
}

// toolName reports whether a function may be called s.
func toolName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return len(s) > 0 && len(s) <= MaxToolNameBytes
}

// toolChoice reads auto or none. What forces a call is not supported.
func (p *parser) toolChoice(name string) *Error {
	raw, err := p.s.value()
	if err != nil {
		return err
	}
	switch string(raw) {
	case `"auto"`:
	case `"none"`:
		p.noTools = true
	default:
		return invalid(CodeUnsupportedParameter, name, `%s is supported only as "auto" or "none"; leave it out.`, name)
	}
	return nil
}
