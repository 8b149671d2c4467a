package openai

import (
	"encoding/binary"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds of a body, so that a small one can't cost much: nesting, and values of any kind.
const (
	maxDepth  = 64
	maxValues = 200_000
)

// scanner reads one JSON text from front to back without building it. It accepts what encoding/json accepts, but for
// invalid UTF-8, lone surrogates and NUL, which no tokenizer takes, and for what is beyond the bounds.
type scanner struct {
	b      []byte
	i      int
	depth  int
	values int
}

// fail is a syntax error at byte off. The caller adds the parameter that it was reading.
func fail(off int, format string, args ...any) *Error {
	return &Error{Type: InvalidRequest, Code: CodeInvalidJSON,
		Message: fmt.Sprintf("The body is not valid JSON: %s at byte %d.", fmt.Sprintf(format, args...), off)}
}

// space skips white space and returns the next byte, or 0 at the end.
func (s *scanner) space() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// kind names the value that comes next, as people call it.
func (s *scanner) kind() string {
	switch c := s.space(); {
	case c == '"':
		return "a string"
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == 't', c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	case c == '-', c >= '0' && c <= '9':
		return "a number"
	}
	return "no value"
}

// enter counts one more level, and leave takes it back.
func (s *scanner) enter() *Error {
	if s.depth++; s.depth > maxDepth {
		return fail(s.i, "more than %d levels of nesting", maxDepth)
	}
	s.i++
	return nil
}

func (s *scanner) leave() {
	s.depth--
	s.i++
}

// object reads an object that begins here. For every member it calls each, which must read the value.
func (s *scanner) object(each func(key []byte) *Error) *Error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.space() == '}' {
		s.leave()
		return nil
	}
	for {
		if s.space() != '"' {
			return fail(s.i, "expected a key")
		}
		key, err := s.text()
		if err != nil {
			return err
		}
		if s.space() != ':' {
			return fail(s.i, "expected a colon")
		}
		s.i++
		if err := each(key); err != nil {
			return err
		}
		switch s.space() {
		case ',':
			s.i++
		case '}':
			s.leave()
			return nil
		default:
			return fail(s.i, "expected a comma or the end of the object")
		}
	}
}

// array reads an array that begins here. For every element it calls each, which must read the value.
func (s *scanner) array(each func(i int) *Error) *Error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.space() == ']' {
		s.leave()
		return nil
	}
	for i := 0; ; i++ {
		if err := each(i); err != nil {
			return err
		}
		switch s.space() {
		case ',':
			s.i++
		case ']':
			s.leave()
			return nil
		default:
			return fail(s.i, "expected a comma or the end of the array")
		}
	}
}

// value reads any value and returns its bytes.
func (s *scanner) value() ([]byte, *Error) {
	if s.values++; s.values > maxValues {
		return nil, fail(s.i, "more than %d values", maxValues)
	}
	c := s.space()
	start := s.i
	var err *Error
	switch {
	case c == '"':
		_, err = s.quoted()
	case c == '{':
		err = s.object(func([]byte) *Error { _, err := s.value(); return err })
	case c == '[':
		err = s.array(func(int) *Error { _, err := s.value(); return err })
	case c == 't':
		err = s.word("true")
	case c == 'f':
		err = s.word("false")
	case c == 'n':
		err = s.word("null")
	case c == '-', c >= '0' && c <= '9':
		err = s.number()
	case s.i >= len(s.b):
		err = fail(s.i, "unexpected end")
	default:
		err = fail(s.i, "unexpected character %q", rune(c))
	}
	if err != nil {
		return nil, err
	}
	return s.b[start:s.i], nil
}

func (s *scanner) word(w string) *Error {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return fail(s.i, "expected %s", w)
	}
	s.i += len(w)
	return nil
}

// number reads -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
func (s *scanner) number() *Error {
	if s.b[s.i] == '-' {
		s.i++
	}
	switch {
	case s.i < len(s.b) && s.b[s.i] == '0':
		s.i++
	case s.digits() == 0:
		return fail(s.i, "expected a digit")
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if s.digits() == 0 {
			return fail(s.i, "expected a digit")
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if s.digits() == 0 {
			return fail(s.i, "expected a digit")
		}
	}
	return nil
}

func (s *scanner) digits() int {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i - from
}

// plain are the bytes that mean nothing special in a string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 0x20 && c != '"' && c != '\\'
	}
	return t
}()

// Eight bytes at once: ones has 1 in each of them, highs its highest bit.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special is not 0 where one of eight bytes is not plain.
func special(w uint64) uint64 {
	quote, slash := w^ones*'"', w^ones*'\\'
	return ((w-ones*0x20)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

// quoted reads a string that begins here and reports whether it holds an escape.
func (s *scanner) quoted() (escaped bool, err *Error) {
	start, b := s.i, s.b
	i := start + 1
	for {
		for i+8 <= len(b) && special(binary.LittleEndian.Uint64(b[i:])) == 0 {
			i += 8
		}
		for i < len(b) && plain[b[i]] {
			i++
		}
		s.i = i
		switch {
		case i >= len(b):
			return false, fail(i, "a string without an end")
		case b[i] == '"':
			s.i++
			if !utf8.Valid(b[start:s.i]) {
				return false, fail(start, "a string that is not UTF-8")
			}
			return escaped, nil
		case b[i] != '\\':
			return false, fail(i, "a control character in a string")
		}
		escaped = true
		if err := s.escape(); err != nil {
			return false, err
		}
		i = s.i
	}
}

// escape reads one escape; a surrogate pair is one.
func (s *scanner) escape() *Error {
	at := s.i
	if s.i+1 >= len(s.b) {
		return fail(at, "a string without an end")
	}
	s.i += 2
	switch s.b[at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
	default:
		return fail(at, "an unknown escape")
	}
	r, ok := s.hex4()
	switch {
	case !ok:
		return fail(at, "an escape without four hexadecimal digits")
	case r == 0:
		return fail(at, "a NUL character in a string")
	case r >= 0xDC00 && r < 0xE000:
		return fail(at, "half a surrogate pair")
	case r < 0xD800 || r >= 0xE000:
		return nil
	}
	if s.i+1 >= len(s.b) || s.b[s.i] != '\\' || s.b[s.i+1] != 'u' {
		return fail(at, "half a surrogate pair")
	}
	s.i += 2
	if r, ok = s.hex4(); !ok || r < 0xDC00 || r >= 0xE000 {
		return fail(at, "half a surrogate pair")
	}
	return nil
}

func (s *scanner) hex4() (r rune, ok bool) {
	if len(s.b)-s.i < 4 {
		return 0, false
	}
	for _, c := range s.b[s.i : s.i+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	s.i += 4
	return r, true
}

// text reads a string that begins here and returns what it says. Without escapes that is a part of the body.
func (s *scanner) text() ([]byte, *Error) {
	start := s.i
	escaped, err := s.quoted()
	if err != nil {
		return nil, err
	}
	if !escaped {
		return s.b[start+1 : s.i-1], nil
	}
	return unescaped(s.b[start+1 : s.i-1]), nil
}

// meaning is what each escape of one letter stands for.
var meaning = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescaped returns what the inside of a string says, whose escapes are known to be sound. It is no longer than that.
func unescaped(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		switch {
		case b[i] != '\\':
			out = append(out, b[i])
			i++
		case b[i+1] != 'u':
			out = append(out, meaning[b[i+1]])
			i += 2
		default:
			at := scanner{b: b, i: i + 2}
			r, _ := at.hex4()
			if utf16.IsSurrogate(r) {
				at.i += 2 // the other half follows
				low, _ := at.hex4()
				r = utf16.DecodeRune(r, low)
			}
			out = utf8.AppendRune(out, r)
			i = at.i
		}
	}
	return out
}
