// Package seam joins an output that goes on elsewhere to what its reader has. It compares texts, and nothing more: what is
// made, and of which tokens, its callers know.
package seam

import (
	"strings"
	"unicode/utf8"
)

// Compare compares what was said with what its reader has of it. ahead is what the reader has beyond that, rest is what it
// lacks, and ok is false where neither is the beginning of the other.
func Compare(said, has string) (ahead Ahead, rest string, ok bool) {
	switch {
	case strings.HasPrefix(has, said):
		return Ahead(has[len(said):]), "", true
	case strings.HasPrefix(said, has):
		return "", said[len(has):], true
	}
	return "", "", false
}

// Ahead is text that the reader has, and that may be said a second time.
type Ahead string

// Unsaid returns what of the next text the reader has not: all but what both begin with, in whole characters. Where they
// part, the reader's is forgotten.
func (a *Ahead) Unsaid(text string) string {
	if *a == "" || text == "" {
		return text
	}
	n := 0
	for n < min(len(*a), len(text)) && (*a)[n] == text[n] {
		n++
	}
	if n < len(text) && n < len(*a) {
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		*a = ""
	} else {
		*a = (*a)[n:]
	}
	return text[n:]
}
