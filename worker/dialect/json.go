package dialect

import (
	"encoding/json"
	"strings"
)

// jsonArguments hands on a JSON object as it is written, byte for byte. It sees no more of it than brackets and quotes. A
// marker of ends that stands outside of quotes ends an object that was left open.
type jsonArguments struct {
	ends            []string
	depth           int
	quoted, escaped bool
}

func (j *jsonArguments) read(buf string, final bool) (n int, out string, done bool) {
	n, done = j.scan(buf, final)
	return n, buf[:n], done
}

// scan returns how much of s belongs to the value, and whether it ends there.
func (j *jsonArguments) scan(s string, final bool) (n int, done bool) {
	for ; n < len(s); n++ {
		switch b := s[n]; {
		case j.escaped:
			j.escaped = false
		case j.quoted:
			j.escaped = b == '\\'
			j.quoted = b != '"'
		case b == '"':
			j.quoted = true
		case b == '}' || b == ']':
			if j.depth--; j.depth <= 0 {
				return n + 1, true
			}
		case b == '<' || b == '[' || b == '{':
			ends, may := beginsAny(s[n:], j.ends)
			if ends || may && !final {
				return n, ends
			}
			if b != '<' {
				j.depth++
			}
		}
	}
	return n, false
}

// beginsAny reports whether s begins with one of markers, or may when more comes. With an empty one nothing begins.
func beginsAny(s string, markers []string) (does, may bool) {
	for _, m := range markers {
		if m == "" {
			continue
		}
		if strings.HasPrefix(s, m) {
			return true, true
		}
		may = may || strings.HasPrefix(m, s)
	}
	return false, may
}

// quoted consumes a JSON string and returns what it says.
func (c *cursor) quoted() (string, bool) {
	from := c.at
	if !c.takes(`"`) {
		return "", false
	}
	for escaped := false; c.at < len(c.s); c.at++ {
		switch b := c.s[c.at]; {
		case escaped:
			escaped = false
		case b == '\\':
			escaped = true
		case b == '"':
			c.at++
			var out string
			err := json.Unmarshal([]byte(c.s[from:c.at]), &out)
			return out, err == nil
		}
	}
	c.ended()
	return "", false
}

// object reports whether an object comes next, by its first member's name and the colon or by its end.
func (c *cursor) object() bool {
	if !c.takes("{") {
		return false
	}
	if c.space(); c.takes("}") {
		return true
	}
	_, ok := c.quoted()
	c.space()
	return ok && c.sees(":")
}

// value consumes a JSON value, of which it checks no more than jsonArguments do.
func (c *cursor) value() (string, bool) {
	from := c.at
	switch {
	case c.sees(`"`):
		_, ok := c.quoted()
		return c.s[from:c.at], ok
	case c.sees("{"), c.sees("["):
		var j jsonArguments
		n, done := j.scan(c.s[c.at:], c.final)
		if !done {
			c.ended()
		}
		c.at += n
		return c.s[from:c.at], done
	}
	return c.word(",}]")
}

// quote returns s as a JSON string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	escape(&b, s)
	b.WriteByte('"')
	return b.String()
}

// escape writes s as it stands within a JSON string.
func escape(b *strings.Builder, s string) {
	const hex = "0123456789abcdef"
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b.WriteString(s[from:i])
		from = i + 1
		switch c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\n':
			b.WriteString(`\n`)
		case '\t':
			b.WriteString(`\t`)
		case '\r':
			b.WriteString(`\r`)
		default:
			b.WriteString(`\u00`)
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	b.WriteString(s[from:])
}
