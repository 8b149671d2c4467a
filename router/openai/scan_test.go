package openai

import (
	"strings"
	"testing"
)

func TestEveryByteOfAStringIsSeenWhereverItIs(t *testing.T) {
	for c := range 0x80 {
		for at := range 20 {
			around := strings.Repeat("\x20\x7f!#[]", 4) + "\u00e9\u00a2" // beside what is special, by one bit or by one
			in := `"` + around[:at] + string(rune(c)) + around[at:] + `"`
			s := scanner{b: []byte(in)}
			_, err := s.quoted()
			switch {
			case c == '"':
				if s.i != at+2 {
					t.Fatalf("a quote at %d: read up to %d, %v", at, s.i, err)
				}
			case c < 0x20, c == '\\':
				if err == nil {
					t.Fatalf("byte %#x at %d is taken for a plain one", c, at)
				}
			case err != nil || s.i != len(in):
				t.Fatalf("byte %#x at %d: read up to %d of %d, %v", c, at, s.i, len(in), err)
			}
		}
	}
}
