package seam

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestAReaderIsAheadOrBehindOrElsewhere(t *testing.T) {
	for _, c := range []struct {
		said, has string
		ahead     Ahead
		rest      string
		ok        bool
	}{
		{"abc", "abc", "", "", true},
		{"ab", "abc", "c", "", true},
		{"abc", "ab", "", "c", true},
		{"", "", "", "", true},
		{"abc", "abd", "", "", false},
	} {
		if ahead, rest, ok := Compare(c.said, c.has); ahead != c.ahead || rest != c.rest || ok != c.ok {
			t.Errorf("%q and %q: got %q, %q, %t", c.said, c.has, ahead, rest, ok)
		}
	}
}

func TestWhatTheReaderHasIsNotSaidAgain(t *testing.T) {
	for name, c := range map[string]struct {
		ahead Ahead
		texts []string
		want  string
	}{
		"nothing is ahead":            {"", []string{"a", "b"}, "ab"},
		"all in one piece":            {"ab", []string{"abc"}, "c"},
		"in many pieces":              {"abc", []string{"a", "", "bc", "d"}, "d"},
		"less comes than was ahead":   {"abc", []string{"ab"}, ""},
		"they part at once":           {"x", []string{"ab"}, "ab"},
		"they part later":             {"abx", []string{"a", "bc", "x"}, "cx"},
		"they part inside a letter":   {"\u00fc", []string{"\u00f6k"}, "\u00f6k"},
		"they agree beyond a letter":  {"\u00fcx", []string{"\u00fcx\u00fc"}, "\u00fc"},
		"the same word a second time": {"ab", []string{"ab", "ab"}, "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, text := range c.texts {
				got += c.ahead.Unsaid(text)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAnOutputThatIsRepeatedIsSaidOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.String().Draw(t, "whole")
		border := rapid.IntRange(0, len(whole)).Draw(t, "border")
		for border < len(whole) && !utf8.RuneStart(whole[border]) {
			border++
		}
		ahead, got := Ahead(whole[:border]), whole[:border]
		for rest := []rune(whole); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			got += ahead.Unsaid(string(rest[:n]))
			rest = rest[n:]
		}
		if got != whole {
			t.Fatalf("got %q, want %q", got, whole)
		}
	})
}
