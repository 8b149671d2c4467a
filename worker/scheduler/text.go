package scheduler

import (
	"strings"
	"unicode/utf8"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// text turns the bytes of tokens into text that may be sent. It holds back no more than it must: the bytes of an
// unfinished UTF-8 character (at most 3), and the longest end of the text that may still become a stop string. A token
// is handed out together with the last of its text, so that tokens sent and text sent always agree.
type text struct {
	stops  []string
	broken []byte // an unfinished character
	held   string // whole characters that may begin a stop string

	produced int // bytes of whole characters so far, held ones included
	tokens   []spelled
}

// spelled is a token that was not handed out yet, and the range of its text in what was produced.
type spelled struct {
	token      engine.Token
	start, end int
}

// push adds a token and its bytes. It returns what may be sent now, and whether a stop string was completed; then the
// text ends before it, and nothing must follow.
func (t *text) push(token engine.Token, piece []byte) (out string, tokens []engine.Token, stopped bool) {
	start := t.produced
	whole := t.decode(piece)
	t.produced += len(whole)
	end := t.produced
	if len(t.broken) > 0 {
		end++ // its text is complete with the next character only
	}
	t.tokens = append(t.tokens, spelled{token, start, end})

	t.held += whole
	if at := firstStop(t.held, t.stops); at >= 0 {
		out = t.held[:at]
		sent := t.produced - len(t.held) + at
		t.held, t.broken = "", nil
		return out, t.take(func(s spelled) bool { return s.start < sent }), true
	}
	keep := possibleStop(t.held, t.stops)
	out = t.held[:len(t.held)-keep]
	t.held = t.held[len(t.held)-keep:]
	sent := t.produced - keep
	return out, t.take(func(s spelled) bool { return s.end <= sent }), false
}

// flush returns all that is still held, for a text that ends without a stop string. An unfinished character becomes
// U+FFFD.
func (t *text) flush() (string, []engine.Token) {
	out := t.held
	if len(t.broken) > 0 {
		out += string(utf8.RuneError)
	}
	t.held, t.broken = "", nil
	return out, t.take(func(spelled) bool { return true })
}

// take removes and returns the leading tokens for which ready holds.
func (t *text) take(ready func(spelled) bool) []engine.Token {
	n := 0
	for n < len(t.tokens) && ready(t.tokens[n]) {
		n++
	}
	if n == 0 {
		return nil
	}
	out := make([]engine.Token, n)
	for i, s := range t.tokens[:n] {
		out[i] = s.token
	}
	t.tokens = append(t.tokens[:0], t.tokens[n:]...)
	return out
}

// decode returns the whole characters of what is broken followed by piece, and keeps an unfinished one at the end.
// Bytes that can't be UTF-8 become U+FFFD.
func (t *text) decode(piece []byte) string {
	b := append(t.broken, piece...)
	var out strings.Builder
	for len(b) > 0 && utf8.FullRune(b) {
		r, n := utf8.DecodeRune(b)
		out.WriteRune(r)
		b = b[n:]
	}
	t.broken = append([]byte(nil), b...)
	return out.String()
}

// firstStop returns where the stop string begins that is complete first, or -1. Of several that are complete at the
// same byte the one that begins first counts, so that the answer does not depend on where tokens end.
func firstStop(s string, stops []string) int {
	begin, end := -1, len(s)+1
	for _, stop := range stops {
		at := strings.Index(s, stop)
		if at < 0 {
			continue
		}
		if e := at + len(stop); e < end || e == end && at < begin {
			begin, end = at, e
		}
	}
	return begin
}

// possibleStop returns the length of the longest end of s that a stop string begins with, without being all of it.
func possibleStop(s string, stops []string) int {
	longest := 0
	for _, stop := range stops {
		for n := min(len(stop)-1, len(s)); n > longest; n-- {
			if strings.HasSuffix(s, stop[:n]) {
				longest = n
				break
			}
		}
	}
	return longest
}
