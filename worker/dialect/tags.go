package dialect

import "strings"

// tags makes JSON of the parameters of one tagged call. A value that can only be a string is handed on while it comes.
// Another is kept until its end, because it is known only then whether it is JSON; one longer than MaxHeld is taken for
// what it begins as.
type tags struct {
	form       *tagged
	parameters map[string]kinds

	in     place
	opened bool
	count  int // of values
	kinds  kinds
	kept   strings.Builder
}

// place is where in a call its tags are read.
type place int

const (
	betweenValues place = iota
	beforeValue
	inKept
	inString
	inVerbatim
)

func (t *tags) read(buf string, final bool) (n int, out string, done bool) {
	var b strings.Builder
	if !t.opened {
		b.WriteByte('{')
		t.opened = true
	}
	for more := true; more && !done; {
		var used int
		if t.in == betweenValues {
			used, more, done = t.between(buf[n:], final, &b)
		} else {
			used, more = t.value(buf[n:], final, &b)
		}
		n += used
	}
	if final && t.in == inKept {
		b.WriteString(t.kinds.encode(t.kept.String()))
	}
	return n, b.String(), done
}

// between reads up to the next value or to the end. Where anything else stands the arguments stay unclosed.
func (t *tags) between(buf string, final bool, b *strings.Builder) (n int, more, done bool) {
	c := newCursor(buf, final)
	c.space()
	key, kinds, ok := t.key(c)
	if c.short {
		return 0, false, false
	}
	if ok {
		if t.count > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quote(key) + ":")
		t.count++
		t.kinds, t.in = kinds, beforeValue
		return c.at, true, false
	}
	ends := t.form.ends(c)
	if c.short {
		return 0, false, false
	}
	if ends {
		b.WriteByte('}')
	}
	return 0, false, true
}

// key reads up to a value, and returns what kinds of value it may be.
func (t *tags) key(c *cursor) (key string, k kinds, ok bool) {
	f := t.form
	if !c.takes(f.key) {
		return "", 0, false
	}
	if key, ok = c.upTo(f.keyed); !ok {
		return "", 0, false
	}
	c.takes(f.keyed)
	k = t.parameters[key]
	switch {
	case !f.typed:
	case c.takes(`true">`):
		k = kindString
	case c.takes(`false">`):
		k = kindNumber | kindBoolean | kindNull | kindObject | kindArray
	default:
		return "", 0, false
	}
	if f.value == "" {
		return key, k, true
	}
	c.space()
	return key, k, c.takes(f.value)
}

// value reads of a value what has come, and its end.
func (t *tags) value(buf string, final bool, b *strings.Builder) (n int, more bool) {
	markers := []string{t.form.valued}
	if t.form.lines {
		markers = append(markers, "\n"+t.form.valued)
	}
	if t.in == beforeValue {
		if t.form.lines && buf == "" {
			return 0, false
		}
		if t.form.lines && buf[0] == '\n' {
			n = 1
		}
		t.in = inKept
		if t.kinds == kindString {
			t.in = inString
			b.WriteByte('"')
		}
	}
	rest := buf[n:]
	at, marker := first(rest, markers)
	if at >= 0 {
		t.add(rest[:at], b)
		t.finish(b)
		return n + at + len(marker), true
	}
	at = len(rest)
	if !final {
		at -= partial(rest, markers)
	}
	t.add(rest[:at], b)
	return n + at, false
}

func (t *tags) add(text string, b *strings.Builder) {
	switch t.in {
	case inString:
		escape(b, text)
	case inVerbatim:
		b.WriteString(text)
	default:
		t.kept.WriteString(text)
		if t.kept.Len() > MaxHeld {
			t.overflow(b)
		}
	}
}

// overflow decides what a long value is by what it begins as.
func (t *tags) overflow(b *strings.Builder) {
	text := t.kept.String()
	t.kept.Reset()
	begin := strings.TrimLeft(text[:MaxHeld], spaces)
	compound := strings.HasPrefix(begin, "{") || strings.HasPrefix(begin, "[")
	if compound && (t.kinds == 0 || t.kinds&kindOf(begin) != 0) {
		t.in = inVerbatim
	} else {
		t.in = inString
		b.WriteByte('"')
	}
	t.add(text, b)
}

func (t *tags) finish(b *strings.Builder) {
	switch t.in {
	case inString:
		b.WriteByte('"')
	case inKept:
		b.WriteString(t.kinds.encode(t.kept.String()))
		t.kept.Reset()
	}
	t.in = betweenValues
}
