package scheduler

import (
	"strings"
	"unicode/utf8"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// text turns the bytes of tokens into text that may be sent. It holds back no more than it must: the bytes of an
// unfinished UTF-8 character (at most 3), and the longest end of the text that may still become a stop string. Whenever text
// is sent, all tokens so far are handed out with it, and no token before that unless none of its text is held back. So the
// tokens that were handed out always tell what was sent and what is held: whoever pushes them again is where this is. After
// a stop string only those are handed out of which text was sent.
type text struct {
	stops   []string
	broken  []byte // an unfinished character
	held    string // whole characters that may begin a stop string
	sends   bool   // the last push sent text
	stopped bool   // by a stop string: nothing follows

	produced int // bytes of whole characters so far, held ones included
	sent     int // bytes that were sent
	tokens   []spelled
}

// spelled is a token that was not handed out yet, and the range of its text in what was produced.
type spelled struct {
	token      engine.Token
	logprob    *engine.Logprob // where asked for
	start, end int
}

// push adds a token and its bytes, and returns what may be sent now. A stop string that is completed by it ends the text
// before it, unless it isn't armed yet; then it is text as any.
func (t *text) push(token spelled, piece []byte, armed bool) string {
	token.start = t.produced
	whole := t.decode(piece)
	t.produced += len(whole)
	token.end = t.produced
	if len(t.broken) > 0 {
		token.end++ // its text is complete with the next character only
	}
	t.tokens = append(t.tokens, token)
	if len(t.stops) == 0 {
		t.sent, t.sends = t.produced, whole != ""
		return whole
	}

	t.held += whole
	passed := 0
	for {
		at, end := firstStop(t.held[passed:], t.stops)
		if at < 0 {
			break
		}
		if armed {
			out := t.held[:passed+at]
			t.sent += len(out)
			t.held, t.broken, t.sends, t.stopped = "", nil, false, true
			return out
		}
		passed += end
	}
	keep := possibleStop(t.held[passed:], t.stops)
	out := t.held[:len(t.held)-keep]
	t.held = t.held[len(t.held)-keep:]
	t.sent += len(out)
	t.sends = out != ""
	return out
}

// flush returns all that is still held, for a text that ends without a stop string. An unfinished character becomes
// U+FFFD.
func (t *text) flush() string {
	if t.stopped {
		return ""
	}
	out := t.held
	if len(t.broken) > 0 {
		out += string(utf8.RuneError)
		t.produced++
	}
	t.held, t.broken = "", nil
	t.sent = t.produced
	return out
}

// ready is how many tokens may be handed out.
func (t *text) ready() int {
	if t.sends {
		return len(t.tokens)
	}
	n := 0
	for n < len(t.tokens) && (t.tokens[n].end <= t.sent || t.stopped && t.tokens[n].start < t.sent) {
		n++
	}
	return n
}

// drop forgets the first n tokens.
func (t *text) drop(n int) { t.tokens = append(t.tokens[:0], t.tokens[n:]...) }

// decode returns the whole characters of what is broken followed by piece, and keeps an unfinished one at the end.
// Bytes that can't be UTF-8 become U+FFFD.
func (t *text) decode(piece []byte) string {
	if len(t.broken) == 0 && utf8.Valid(piece) {
		return string(piece)
	}
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

// firstStop returns where the stop string that is complete first begins and ends, or -1. Of several that are complete at
// the same byte the one that begins first counts, so that the answer does not depend on where tokens end.
func firstStop(s string, stops []string) (begin, end int) {
	begin, end = -1, len(s)+1
	for _, stop := range stops {
		at := strings.Index(s, stop)
		if at < 0 {
			continue
		}
		if e := at + len(stop); e < end || e == end && at < begin {
			begin, end = at, e
		}
	}
	return begin, end
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
