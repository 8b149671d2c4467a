package scheduler

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// feed pushes s in pieces whose lengths are taken from cuts in turn, and returns the text that came out.
func feed(t *testing.T, x *text, s string, cuts []byte) (out string, stopped bool) {
	t.Helper()
	var b strings.Builder
	sent := 0
	for i, n := 0, 0; i < len(s); n++ {
		width := 1
		if len(cuts) > 0 {
			width = int(cuts[n%len(cuts)])%7 + 1
		}
		piece := s[i:min(i+width, len(s))]
		i += len(piece)
		got := x.push(spelled{token: engine.Token(n)}, []byte(piece), true)
		for ; x.ready() > 0; x.drop(1) {
			if k := x.tokens[0].token; int(k) != sent {
				t.Fatalf("token %d came out where %d was due", k, sent)
			}
			sent++
		}
		if !utf8.ValidString(got) {
			t.Fatalf("a character was cut: %q", got)
		}
		if len(x.broken) > 3 || !unfinished(x.broken) {
			t.Fatalf("%q is held, and is no beginning of a character", x.broken)
		}
		if most := longest(x.stops) - 1; len(x.held) > max(most, 0) {
			t.Fatalf("%q is held, more than the %d bytes that may begin a stop", x.held, most)
		}
		b.WriteString(got)
		if x.stopped {
			return b.String(), true
		}
	}
	return b.String(), false
}

// unfinished says whether b may become a character, or is nothing.
func unfinished(b []byte) bool { return len(b) == 0 || !utf8.FullRune(b) }

// longest is the length of the longest string.
func longest(list []string) (n int) {
	for _, s := range list {
		n = max(n, len(s))
	}
	return n
}

// characters is what s says: each byte that is of no character is a U+FFFD, as is a character that its end cuts off.
func characters(s []byte) string {
	var out strings.Builder
	for len(s) > 0 && utf8.FullRune(s) {
		r, n := utf8.DecodeRune(s)
		out.WriteRune(r)
		s = s[n:]
	}
	if len(s) > 0 {
		out.WriteRune(utf8.RuneError)
	}
	return out.String()
}

// reference is the obvious answer: byte by byte, whichever stop string is complete first ends the text.
func reference(s string, stops []string) (string, bool) {
	for end := 1; end <= len(s); end++ {
		best := -1
		for _, stop := range stops {
			if strings.HasSuffix(s[:end], stop) && (best < 0 || end-len(stop) < best) {
				best = end - len(stop)
			}
		}
		if best >= 0 {
			return s[:best], true
		}
	}
	return s, false
}

// FuzzStopHoldback: however a text is cut, what is sent is the text up to the stop that is complete first; nothing is sent
// twice, and no more is held than may still become a stop.
func FuzzStopHoldback(f *testing.F) {
	f.Fuzz(func(t *testing.T, s, a, b string, cuts []byte) {
		var stops []string
		for _, stop := range []string{a, b} {
			if stop != "" && utf8.ValidString(stop) {
				stops = append(stops, stop)
			}
		}
		s = strings.ToValidUTF8(s, "")
		want, wantStop := reference(s, stops)
		x := &text{stops: stops}
		got, stopped := feed(t, x, s, cuts)
		if !stopped {
			if n := possibleStop(s, stops); len(x.broken) == 0 && len(x.held) != n {
				t.Fatalf("%q is held, the longest possible stop is %d bytes", x.held, n)
			}
			got += x.flush()
		}
		if got != want || stopped != wantStop {
			t.Fatalf("got %q (stopped %v), want %q (stopped %v) for %q, stops %q", got, stopped, want, wantStop, s, stops)
		}
	})
}

// FuzzUTF8Holdback: however bytes are cut, what is sent is the characters that they are together, and no more than the
// beginning of one is held.
func FuzzUTF8Holdback(f *testing.F) {
	f.Fuzz(func(t *testing.T, s, cuts []byte) {
		x := &text{}
		got, _ := feed(t, x, string(s), cuts)
		got += x.flush()
		if want := characters(s); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		if utf8.Valid(s) && got != string(s) {
			t.Fatalf("%q became %q", s, got)
		}
		if len(x.tokens) != x.ready() {
			t.Fatalf("%d tokens were not handed out", len(x.tokens)-x.ready())
		}
	})
}

// FuzzSeam: whoever pushes the tokens again that were handed out has the text that was sent, wherever that is, and the same
// after the rest.
func FuzzSeam(f *testing.F) {
	f.Add([]byte("the end is near"), "end", "nearer", []byte{3, 1})
	f.Add([]byte("bSSSSP"), "SSSP", "", []byte{2, 1})
	f.Add([]byte("gr\u00fcn \U0001F642 ENDE"), "N \U0001F642 ", "ENDER", []byte{0, 6})
	f.Add([]byte{0xff, 'a', 0xe4, 0xbd, 'b'}, "b", "", []byte{2, 0})
	f.Fuzz(func(t *testing.T, s []byte, a, b string, cuts []byte) {
		var stops []string
		for _, stop := range []string{a, b} {
			if stop != "" && utf8.ValidString(stop) {
				stops = append(stops, stop)
			}
		}
		s = s[:min(len(s), 200)]
		var pieces [][]byte
		for n := 0; len(s) > 0; n++ {
			width := 1
			if len(cuts) > 0 {
				width = int(cuts[n%len(cuts)]) % 7 // some tokens have no text
			}
			if width == 0 && n%2 == 0 {
				width = 1
			}
			pieces, s = append(pieces, s[:min(width, len(s))]), s[min(width, len(s)):]
		}
		push := func(x *text, pieces [][]byte) (out string) {
			for i, p := range pieces {
				if !x.stopped {
					out += x.push(spelled{token: engine.Token(i)}, p, true)
				}
			}
			return out
		}
		whole := push(&text{stops: stops}, pieces)
		x, sent, handed := &text{stops: stops}, "", 0
		for i, p := range pieces {
			sent += x.push(spelled{token: engine.Token(i)}, p, true)
			n := x.ready()
			x.drop(n)
			if handed += n; x.stopped {
				break
			}
			again := &text{stops: stops}
			got := push(again, pieces[:handed])
			if got != sent {
				t.Fatalf("after %d tokens %q was sent and %d were handed out, of which %q is sent", i+1, sent, handed, got)
			}
			if got += push(again, pieces[handed:]); got != whole {
				t.Fatalf("behind %d tokens it becomes %q, want %q", handed, got, whole)
			}
		}
	})
}

func TestTokensComeOutWithTheFirstOfTheirText(t *testing.T) {
	x := &text{stops: []string{"STOP"}}
	steps := []struct {
		piece, out string
		tokens     int
		stopped    bool
	}{
		{"\xe4", "", 0, false},      // its text needs the next token
		{"\xbd\xa0", "你", 2, false}, // both are complete
		{"a\xe4", "a", 1, false},    // the first of its text is sent
		{"\xbd\xa0", "你", 1, false}, //
		{"", "", 1, false},          // a special token has no text and waits for nothing
		{"S", "", 0, false},         // it may be a stop
		{"", "", 0, false},          // nothing overtakes what is held
		{"bST", "Sb", 3, false},     // half of it may be a stop
		{"O", "", 0, false},         //
		{"Pxyz", "", 0, true},       // the stop, of which nothing is sent
	}
	for i, s := range steps {
		out, tokens := x.push(spelled{token: engine.Token(i)}, []byte(s.piece), true), x.ready()
		x.drop(tokens)
		if out != s.out || tokens != s.tokens || x.stopped != s.stopped {
			t.Fatalf("step %d: got %q, %d tokens, stopped %v; want %q, %d, %v", i, out, tokens, x.stopped, s.out, s.tokens, s.stopped)
		}
	}
}

func TestAStopStringCountsOnlyWhenArmed(t *testing.T) {
	for _, c := range []struct {
		name, text string
		armedAt    int // bytes
		want       string
	}{
		{"before", "a END b", 7, "a END b"},
		{"across", "a END b", 4, "a "},
		{"after", "END b END", 5, "END b "},
		{"overlapping", "ENDEND", 4, "END"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, got := &text{stops: []string{"END"}}, ""
			for i := range len(c.text) {
				if got += x.push(spelled{}, []byte{c.text[i]}, i >= c.armedAt); x.stopped {
					break
				}
			}
			if got += x.flush(); got != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
}
