package dialect

import (
	"encoding/json"
	"strings"
)

// literal makes JSON of arguments that are written as a programming language would: Python's keyword arguments, or Gemma's
// objects without quotes around keys. A bare word before a colon, or before an equals sign outside of all brackets, is a
// key; one that is neither a number nor a constant is a string.
type literal struct {
	// delimiter encloses strings, in which nothing is escaped; "": they are Python's.
	delimiter string
	// ends is the marker after the call, where arguments that were left open end; "": there is none.
	ends string
	// brackets that are open, as what closes them; the first closes the arguments.
	brackets []byte
	opened   bool
	within   string // what ends the string that is being read; "": none is
}

func (l *literal) read(buf string, final bool) (n int, out string, done bool) {
	var b strings.Builder
	if !l.opened {
		b.WriteByte('{')
		l.opened = true
	}
	for n < len(buf) && !done {
		used, wait := 0, false
		switch {
		case l.within == "":
			used, wait, done = l.token(buf[n:], final, &b)
		case l.delimiter != "":
			used, wait = l.plain(buf[n:], final, &b)
		default:
			used, wait = l.python(buf[n:], final, &b)
		}
		n += used
		if wait {
			break
		}
	}
	return n, b.String(), done
}

// token reads what comes next outside of strings.
func (l *literal) token(s string, final bool, b *strings.Builder) (n int, wait, done bool) {
	if does, may := beginsAny(s, []string{l.ends}); does || may && !final {
		return 0, !does, does
	}
	if l.delimiter != "" {
		does, may := beginsAny(s, []string{l.delimiter})
		if does {
			l.within = l.delimiter
			b.WriteByte('"')
			return len(l.delimiter), false, false
		}
		if may && !final {
			return 0, true, false
		}
	}
	switch c := s[0]; c {
	case ' ', '\n', '\t', '\r':
		return 1, false, false
	case '=':
		if l.delimiter == "" {
			b.WriteByte(':')
			return 1, false, false
		}
	case ',', ':':
		b.WriteByte(c)
		return 1, false, false
	case '"', '\'':
		l.within = s[:1]
		b.WriteByte('"')
		return 1, false, false
	case '{', '[', '(':
		return 1, false, !l.open(c, b)
	case '}', ']', ')':
		if c != l.brackets[len(l.brackets)-1] {
			return 0, false, true
		}
		l.shut(c, b)
		return 1, false, len(l.brackets) == 0
	}
	return l.bare(s, final, b)
}

// deepest is how far values may nest.
const deepest = 200

func (l *literal) open(c byte, b *strings.Builder) bool {
	if len(l.brackets) > deepest {
		return false
	}
	if c == '{' {
		b.WriteByte('{')
	} else {
		b.WriteByte('[')
	}
	l.brackets = append(l.brackets, map[byte]byte{'{': '}', '[': ']', '(': ')'}[c])
	return true
}

func (l *literal) shut(c byte, b *strings.Builder) {
	l.brackets = l.brackets[:len(l.brackets)-1]
	if c == '}' || len(l.brackets) == 0 {
		b.WriteByte('}')
	} else {
		b.WriteByte(']')
	}
}

// bare reads a word without quotes up to what follows it.
func (l *literal) bare(s string, final bool, b *strings.Builder) (n int, wait, done bool) {
	stops := ",:()[]{}\"'<"
	if l.delimiter == "" {
		stops += "="
	}
	n = strings.IndexAny(s[1:], stops) + 1
	if n == 0 {
		n = len(s)
	}
	switch {
	case n > MaxHeld:
		return 0, false, true
	case n == len(s) && !final:
		return 0, true, false
	}
	word := strings.TrimRight(s[:n], spaces)
	key := n < len(s) && strings.IndexByte(":=", s[n]) >= 0
	if v := constant(word); !key && json.Valid([]byte(v)) {
		b.WriteString(v)
	} else {
		b.WriteString(quote(word))
	}
	return n, false, false
}

// plain reads a string in which nothing is escaped.
func (l *literal) plain(s string, final bool, b *strings.Builder) (n int, wait bool) {
	markers := []string{l.within}
	at, _ := first(s, markers)
	if at >= 0 {
		escape(b, s[:at])
		b.WriteByte('"')
		n = at + len(l.within)
		l.within = ""
		return n, false
	}
	n = len(s)
	if !final {
		n -= partial(s, markers)
	}
	escape(b, s[:n])
	return n, true
}

// python reads a string in quotes.
func (l *literal) python(s string, final bool, b *strings.Builder) (n int, wait bool) {
	n = strings.IndexAny(s, `\`+l.within)
	if n < 0 {
		escape(b, s)
		return len(s), true
	}
	escape(b, s[:n])
	if s[n] == '\\' {
		used, json := escaped(s[n:], final)
		b.WriteString(json)
		return n + used, used == 0
	}
	switch closes, known := closesString(s[n+1:], final); {
	case !known:
		return n, true
	case closes:
		b.WriteByte('"')
		l.within = ""
	default:
		escape(b, s[n:n+1])
	}
	return n + 1, false
}

// closesString reports whether a quote before rest ends its string: models also write quotes into a string as they stand.
func closesString(rest string, final bool) (closes, known bool) {
	begin := rest[:min(len(rest), maxSpace)]
	after := strings.TrimLeft(begin, spaces)
	switch {
	case after != "":
		return strings.IndexByte(",)]}:<", after[0]) >= 0, true
	case len(begin) == maxSpace:
		return false, true
	}
	return final, final
}

// escaped returns the length of the escape sequence that s begins with, and its JSON. 0: more must come.
func escaped(s string, final bool) (n int, json string) {
	if len(s) == 1 && final {
		return 1, `\\`
	}
	if len(s) == 1 {
		return 0, ""
	}
	digits := 0
	switch s[1] {
	case 'n', 't', 'r', 'b', 'f', '"', '\\':
		return 2, s[:2]
	case '\'':
		return 2, "'"
	case '\n':
		return 2, ""
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	}
	if len(s) < 2+digits && !final {
		return 0, ""
	}
	code := s[2:min(len(s), 2+digits)]
	if digits == 0 || len(code) < digits || strings.Trim(code, "0123456789abcdefABCDEF") != "" {
		return 1, `\\`
	}
	return 2 + digits, `\u` + "0000"[digits:] + code
}
