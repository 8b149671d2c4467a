package openai

import (
	"strconv"
	"strings"
)

// reader reads the object that a body is, and values of the kinds that parameters have.
type reader struct {
	s    scanner
	seen []string // known parameters so far
}

func newReader(body []byte) reader {
	return reader{s: scanner{b: body}, seen: make([]string, 0, 16)}
}

// readBody reads the whole body of r. Every parameter of known is read by its function, whose value is not null; one of
// refused is judged; any other is skipped. Both of the needed ones must be there.
func readBody[P any](r *reader, p P, known map[string]func(P, string) *Error, refused map[string]only, needed, also string) *Error {
	switch r.s.space() {
	case 0:
		if r.s.i >= len(r.s.b) {
			return invalid(CodeInvalidJSON, "", "The body is empty; send a JSON object with %s and %s.", needed, also)
		}
	case '{':
	default:
		if _, err := r.s.value(); err != nil {
			return err
		}
		return invalid(CodeInvalidType, "", "The body must be a JSON object with %s and %s.", needed, also)
	}
	if r.s.space() != '{' {
		return fail(r.s.i, "unexpected character")
	}
	if err := r.s.object(func(key []byte) *Error { return readMember(r, p, known, refused, key) }); err != nil {
		return err
	}
	if r.s.space(); r.s.i < len(r.s.b) {
		return fail(r.s.i, "something after the object's end")
	}
	for _, name := range []string{needed, also} {
		if !r.has(name) {
			return invalid(CodeMissing, name, "%s is missing.", name)
		}
	}
	return nil
}

// readMember reads one parameter.
func readMember[P any](r *reader, p P, known map[string]func(P, string) *Error, refused map[string]only, key []byte) *Error {
	read, honoured := known[string(key)]
	rule, bad := refused[string(key)]
	if !honoured && !bad {
		_, err := r.s.value()
		return err.in(clip(string(key)))
	}
	name := string(key)
	if r.has(name) {
		return invalid(CodeDuplicate, name, "%s is there twice; which one is meant can't be known.", name)
	}
	if r.s.space() == 'n' {
		return r.s.word("null").in(name)
	}
	r.seen = append(r.seen, name)
	if bad {
		raw, err := r.s.value()
		if err != nil {
			return err.in(name)
		}
		return rule.judge(name, raw)
	}
	return read(p, name).in(name)
}

func (r *reader) has(name string) bool {
	for _, s := range r.seen {
		if s == name {
			return true
		}
	}
	return false
}

// clip shortens a name that a client made up.
func clip(name string) string {
	const most = 64
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

// model reads the name of a model.
func (r *reader) model(name string, to *string) *Error {
	if err := r.str(name, to); err != nil {
		return err
	}
	if *to == "" {
		return invalid(CodeInvalidValue, name, "model must not be empty.")
	}
	return nil
}

func (r *reader) str(name string, to *string) *Error {
	if r.s.space() != '"' {
		return r.mismatch(name, "a string")
	}
	b, err := r.s.text()
	*to = string(b)
	return err
}

// mismatch reads a value of the wrong type, so that bad JSON is called that, and says what it should be.
func (r *reader) mismatch(name, want string) *Error {
	got := r.s.kind()
	if _, err := r.s.value(); err != nil {
		return err
	}
	return wrongType(name, want, got)
}

func (r *reader) boolean(name string, to *bool) *Error {
	switch r.s.space() {
	case 't':
		*to = true
		return r.s.word("true")
	case 'f':
		*to = false
		return r.s.word("false")
	}
	return r.mismatch(name, "a boolean")
}

// number reads a number and returns its text.
func (r *reader) number(name, want string) (string, *Error) {
	if c := r.s.space(); c != '-' && (c < '0' || c > '9') {
		return "", r.mismatch(name, want)
	}
	raw, err := r.s.value()
	return string(raw), err
}

func (r *reader) integer(name string) (int64, *Error) {
	text, err := r.number(name, "an integer")
	if err != nil {
		return 0, err
	}
	if strings.ContainsAny(text, ".eE") {
		return 0, wrongType(name, "an integer", text)
	}
	n, bad := strconv.ParseInt(text, 10, 64)
	if bad != nil {
		return 0, invalid(CodeInvalidValue, name, "%s must be an integer of 64 bits, and %s is not.", name, clip(text))
	}
	return n, nil
}

func (r *reader) decimal(name string, ok func(float64) bool, bounds string) (*float64, *Error) {
	text, err := r.number(name, "a number")
	if err != nil {
		return nil, err
	}
	f, bad := strconv.ParseFloat(text, 64)
	if bad != nil || !ok(f) {
		return nil, invalid(CodeInvalidValue, name, "%s must be %s, and %s is not.", name, bounds, clip(text))
	}
	return &f, nil
}

// number32 reads an integer within bounds.
func (r *reader) number32(name string, low, high int64, to *uint32) *Error {
	n, err := r.integer(name)
	if err != nil {
		return err
	}
	if n < low || n > high {
		return invalid(CodeInvalidValue, name, "%s must be from %d to %d, and %d is not.", name, low, high, n)
	}
	*to = uint32(n)
	return nil
}
