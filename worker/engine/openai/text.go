package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// strayBase begins the private characters that stand for bytes which are no UTF-8, while JSON is read.
const strayBase = 0xF700

// standsForByte says whether r is one of them.
func standsForByte(r rune) bool { return r >= strayBase+0x80 && r <= strayBase+0xFF }

// mend returns JSON in which every byte that is no UTF-8 has become a private character, so that a server which cuts a
// character in two between events loses nothing. The same becomes of the bytes of such characters themselves. JSON that is
// sound is returned as it is.
func mend(data []byte) (out []byte, mended bool) {
	if utf8.Valid(data) {
		return data, false
	}
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if r == utf8.RuneError && n == 1 || standsForByte(r) {
			for _, c := range data[:n] {
				out = utf8.AppendRune(out, strayBase+rune(c))
			}
		} else {
			out = append(out, data[:n]...)
		}
		data = data[n:]
	}
	return out, true
}

// characters hands out whole characters of a text that comes in pieces.
type characters struct{ held string }

// add takes the next piece; mended says that private characters in it are bytes.
func (c *characters) add(s string, mended bool) string {
	if mended {
		var b strings.Builder
		for _, r := range s {
			if standsForByte(r) {
				b.WriteByte(byte(r - strayBase))
			} else {
				b.WriteRune(r)
			}
		}
		s = b.String()
	}
	s = c.held + s
	c.held = ""
	if n := incomplete(s); n > 0 {
		s, c.held = s[:len(s)-n], s[len(s)-n:]
	}
	return strings.ToValidUTF8(s, string(utf8.RuneError))
}

// rest is what was held back and never became a character.
func (c *characters) rest() string {
	return strings.ToValidUTF8(c.held, string(utf8.RuneError))
}

// incomplete returns how many bytes at the end of s begin a character that more bytes may complete.
func incomplete(s string) int {
	for n := 1; n <= min(len(s), utf8.UTFMax-1); n++ {
		if tail := s[len(s)-n:]; utf8.RuneStart(tail[0]) {
			if tail[0] >= utf8.RuneSelf && !utf8.FullRuneInString(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}

// callID names a tool call that the server left without a name: equal for equal calls of a request that is run again.
func callID(request string, choice, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", request, choice, index))
	return "call_" + hex.EncodeToString(sum[:12])
}
