package llamacpp

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/ardanlabs/jinja"
)

// A template comes with the weights and runs in this process, and its engine has no bounds of its own: what never ends keeps
// a model from being loaded, and what recurses without end kills the process. So a template has bounds here.
//
// The bounds are on rounds and on depth of calls. None is on memory: the engine gathers its texts and lists itself, so
// 'a' * 20000000000, or a text that is joined to itself in a loop, is bounded by the memory of the container alone, whose end
// is the end of the process. Nor is one on how deep values nest: a list that holds itself, or a million lists within each
// other, end the process where they are printed or compared, as they take more than the gigabyte that Go gives a stack.
const (
	maxSource = 1 << 20 // bytes of a template; the longest released ones have some 30,000
	maxCode   = 1 << 13 // bytes of a tag outside of its strings: an expression nests as deep as it is long
	maxNest   = 500     // brackets and blocks within each other
	maxDepth  = 50      // calls of macros within each other
	maxRange  = 1 << 16 // numbers of one range
	// maxRounds is of loops and calls of macros in one rendering. A message takes four tokens or more, so that a chat of a
	// million tokens has up to 2^18 messages, and templates go over them up to four times.
	maxRounds = 1 << 20
)

// The names under which the bounds are called. A template that has the prefix is refused, or it could call or replace them.
const (
	reserved  = "ringfleet_"
	roundName = reserved + "round"
	enterName = reserved + "enter"
	leaveName = reserved + "leave"
)

// before and behind are the statements that a bound is called before and behind. What is within call is called like a macro.
var (
	before = map[string]string{"endmacro": leaveName, "endcall": leaveName}
	behind = map[string]string{"for": roundName, "macro": enterName, "call": enterName}
)

// guarded returns source with calls of the bounds in its loops and macros, or why that can't be.
func guarded(source string) (string, error) {
	switch {
	case len(source) > maxSource:
		return "", fmt.Errorf("it has %d bytes, expected at most %d", len(source), maxSource)
	case strings.Contains(source, reserved):
		return "", fmt.Errorf("it has a name that begins with %s", reserved)
	}
	var out strings.Builder
	blocks, raw := 0, false
	for from := 0; ; {
		next, found, ok := nextTag(source, from)
		switch {
		case !ok:
			return "", fmt.Errorf("a tag that begins at byte %d is not closed", next.start)
		case !found:
			out.WriteString(source[from:])
			return out.String(), nil
		}
		text, tag := source[from:next.start], source[next.start:next.behind]
		from = next.behind
		word := keyword(next.content)
		if next.kind == '#' || raw && (next.kind != '%' || word != "endraw") {
			out.WriteString(text + tag)
			continue
		}
		if err := within(next, word); err != nil {
			return "", err
		}
		if next.kind == '{' {
			out.WriteString(text + tag)
			continue
		}
		if word == "for" {
			tag = counted(tag)
		}
		out.WriteString(text + callOf(before[word]) + tag + callOf(behind[word]))
		raw = word == "raw"
		if blocks += opens(next.content, word); blocks > maxNest {
			return "", fmt.Errorf("blocks nest deeper than %d", maxNest)
		}
	}
}

// callOf is a tag that calls a bound; none for "".
func callOf(bound string) string {
	if bound == "" {
		return ""
	}
	return "{{ " + bound + "() }}"
}

// keyword is the word that a statement begins with, cut as the engine cuts it.
func keyword(content string) string {
	content = strings.TrimSpace(content)
	if end := strings.IndexFunc(content, func(r rune) bool { return !unicode.IsLetter(r) && r != '_' }); end >= 0 {
		return content[:end]
	}
	return content
}

// opens is by how many blocks a statement opens or closes.
func opens(content, word string) int {
	switch word {
	case "for", "macro", "if", "call", "filter", "generation":
		return 1
	case "set":
		if !strings.Contains(content, "=") {
			return 1
		}
	case "endfor", "endmacro", "endif", "endcall", "endfilter", "endgeneration", "endset":
		return -1
	}
	return 0
}

// within returns why a tag, if it is a statement that begins with word, is out of bounds.
func within(t tag, word string) error {
	bytes, depth, match := measure(t.content)
	if bytes > maxCode {
		return fmt.Errorf("the tag at byte %d has %d bytes outside of its strings, expected at most %d", t.start, bytes, maxCode)
	}
	if depth > maxNest {
		return fmt.Errorf("brackets nest %d deep in the tag at byte %d, expected at most %d", depth, t.start, maxNest)
	}
	if t.kind == '%' && word == "for" && !match {
		return fmt.Errorf("the brackets of the loop at byte %d don't match", t.start)
	}
	// What a parameter is when it isn't given is evaluated before the body, and so before its bound. The engine cuts
	// parameters at commas even within strings, so strings count as well.
	_, parameters, _ := strings.Cut(t.content, "(")
	if t.kind == '%' && word == "macro" && strings.ContainsAny(parameters, "(|") {
		return fmt.Errorf("the macro at byte %d calls something in its parameters", t.start)
	}
	return nil
}

// measure returns how many bytes of code are in no string, how deep its brackets nest, and whether as many are closed as are
// opened, none before.
func measure(code string) (bytes, most int, match bool) {
	depth, least := 0, 0
	for _, c := range unquoted(code, 0) {
		bytes++
		depth += bracket(c)
		most, least = max(most, depth), min(least, depth)
	}
	return bytes, most, least == 0 && depth == 0
}

// bracket is by how much a byte of code opens or closes brackets.
func bracket(c byte) int {
	switch c {
	case '(', '[', '{':
		return 1
	case ')', ']', '}':
		return -1
	}
	return 0
}

// counted returns a loop whose condition, if it has one, counts as a round whenever it is tried. The engine tries it for all
// items before the first round.
func counted(loop string) string {
	in := wordAt(loop, "in", 0)
	if in < 0 {
		return loop
	}
	at := wordAt(loop, "if", in+len("in"))
	if at < 0 {
		return loop
	}
	at += len("if")
	end := wordAt(loop, "recursive", at)
	if end < 0 {
		end = len(strings.TrimRight(loop[:len(loop)-len("%}")], "-+"))
	}
	return loop[:at] + " [" + roundName + "(), " + loop[at:end] + "][1] " + loop[end:]
}

// wordAt is where the engine finds a word of a loop at or behind from: outside of strings and of brackets. -1: nowhere.
func wordAt(loop, word string, from int) int {
	depth := -1 // the loop's own brace is one
	if from > 0 {
		depth = 0
	}
	for i, c := range unquoted(loop, from) {
		depth += bracket(c)
		if depth == 0 && strings.HasPrefix(loop[i:], word) && !isName(loop, i-1) && !isName(loop, i+len(word)) {
			return i
		}
	}
	return -1
}

// isName reports whether the byte at i can be of a name.
func isName(s string, i int) bool {
	if i < 0 || i >= len(s) {
		return false
	}
	c := s[i]
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// boundError says which bound a rendering has gone beyond.
type boundError struct{ says string }

func (e *boundError) Error() string { return e.says }

// bounds hold one rendering. What has gone beyond one stays there: the engine drops some errors.
type bounds struct {
	rounds, depth int
	err           error // *boundError
}

type (
	args  = []jinja.Value
	named = map[string]jinja.Value
)

// values are what the bounds are called by.
func (b *bounds) values() map[string]jinja.Value {
	out := map[string]jinja.Value{"range": jinja.NewCallable("range", func(a args, _ named) (jinja.Value, error) { return b.numbers(a) })}
	for name, f := range map[string]func() error{roundName: b.round, enterName: b.enter, leaveName: b.leave} {
		out[name] = jinja.NewCallable(name, func(args, named) (jinja.Value, error) { return jinja.NewString(""), f() })
	}
	return out
}

func (b *bounds) beyond(format string, args ...any) error {
	b.err = &boundError{fmt.Sprintf(format, args...)}
	return b.err
}

func (b *bounds) round() error {
	if b.err != nil {
		return b.err
	}
	if b.rounds++; b.rounds > maxRounds {
		return b.beyond("it takes more than %d rounds", maxRounds)
	}
	return nil
}

func (b *bounds) enter() error {
	if b.depth++; b.depth > maxDepth && b.err == nil {
		return b.beyond("its macros call each other more than %d deep", maxDepth)
	}
	return b.round()
}

func (b *bounds) leave() error {
	b.depth--
	return b.err
}

// numbers is Jinja's range, bounded.
func (b *bounds) numbers(a []jinja.Value) (jinja.Value, error) {
	if len(a) < 1 || len(a) > 3 {
		return jinja.None(), fmt.Errorf("range: expected 1 to 3 arguments, got %d", len(a))
	}
	n := make([]int64, len(a))
	for i, v := range a {
		if !v.IsInt() {
			return jinja.None(), fmt.Errorf("range: argument %d is no whole number", i)
		}
		n[i] = v.AsInt()
	}
	start, stop, step := int64(0), n[0], int64(1)
	if len(n) > 1 {
		start, stop = n[0], n[1]
	}
	if len(n) > 2 {
		step = n[2]
	}
	if step == 0 {
		return jinja.None(), fmt.Errorf("range: the step is 0")
	}
	var items []jinja.Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(items) == maxRange {
			return jinja.None(), b.beyond("range: more than %d numbers", maxRange)
		}
		items = append(items, jinja.NewInt(i))
	}
	return jinja.NewList(items), nil
}
