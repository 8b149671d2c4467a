package dialect

import "strings"

// spaces are the characters that markup may have between its parts.
const spaces = " \n\t\r"

// cursor reads a head or what follows a call. Its methods return false where the text differs. Where the text so far ends
// before that is decided, they return false too and set short: the same must be tried again with more text.
type cursor struct {
	s     string
	at    int
	final bool // no more text comes
	short bool
}

// newCursor sees at most MaxHeld bytes of s, so that the outcome doesn't depend on how much more has come already.
func newCursor(s string, final bool) *cursor {
	if len(s) >= MaxHeld {
		return &cursor{s: s[:MaxHeld], final: true}
	}
	return &cursor{s: s, final: final}
}

// ended notes that the text ended too early.
func (c *cursor) ended() { c.short = c.short || !c.final }

// sees reports whether x comes next.
func (c *cursor) sees(x string) bool {
	rest := c.s[c.at:]
	if strings.HasPrefix(rest, x) {
		return true
	}
	if strings.HasPrefix(x, rest) {
		c.ended()
	}
	return false
}

// takes consumes x if it comes next.
func (c *cursor) takes(x string) bool {
	if !c.sees(x) {
		return false
	}
	c.at += len(x)
	return true
}

// space consumes any space.
func (c *cursor) space() {
	rest := strings.TrimLeft(c.s[c.at:], spaces)
	c.at = len(c.s) - len(rest)
	if rest == "" {
		c.ended()
	}
}

// upTo consumes and returns what stands before the first of ends.
func (c *cursor) upTo(ends ...string) (string, bool) {
	at, _ := first(c.s[c.at:], ends)
	if at < 0 {
		c.ended()
		return "", false
	}
	out := c.s[c.at : c.at+at]
	c.at += at
	return out, true
}

// word consumes and returns the bytes that are no space and none of stops; there must be one at least.
func (c *cursor) word(stops string) (string, bool) {
	from := c.at
	if n := strings.IndexAny(c.s[from:], spaces+stops); n >= 0 {
		c.at += n
		return c.s[from:c.at], n > 0
	}
	c.at = len(c.s)
	c.ended()
	return c.s[from:c.at], c.final && c.at > from
}

// first returns where the first of markers begins in s and which it is, or -1.
func first(s string, markers []string) (at int, marker string) {
	at = -1
	for _, m := range markers {
		if i := strings.Index(s, m); i >= 0 && (at < 0 || i < at) {
			at, marker = i, m
		}
	}
	return at, marker
}

// partial returns the length of the longest end of s that one of markers begins with, without being all of it.
func partial(s string, markers []string) int {
	longest := 0
	for _, m := range markers {
		for n := min(len(m)-1, len(s)); n > longest; n-- {
			if strings.HasSuffix(s, m[:n]) {
				longest = n
				break
			}
		}
	}
	return longest
}
