package llamacpp

import (
	"fmt"
	"strings"

	"github.com/ardanlabs/jinja"
)

// A template comes with the weights and runs in this process, and its engine has no bounds of its own: what never ends keeps
// a model from being loaded, and what recurses without end kills the process. So a template has bounds here.
const (
	maxSource = 1 << 20 // bytes of a template; the longest released ones have some 30,000
	maxNest   = 500     // brackets and blocks within each other
	maxDepth  = 50      // calls of macros within each other
	maxRounds = 1 << 20 // rounds of loops and calls of macros in one rendering
	maxRange  = 1 << 16 // numbers of one range
)

// The names under which the bounds are called. No template has them.
const roundName, enterName, leaveName = "ringfleet_round", "ringfleet_enter", "ringfleet_leave"

// bounded are the statements behind which a bound is called, opens is by how many blocks a statement opens or closes.
var (
	bounded = map[string]string{"for": roundName, "macro": enterName}
	opens   = map[string]int{
		"for": 1, "macro": 1, "if": 1, "call": 1, "filter": 1,
		"endfor": -1, "endmacro": -1, "endif": -1, "endcall": -1, "endfilter": -1,
	}
)

// guarded returns source with calls of the bounds in its loops and macros, or why that can't be.
func guarded(source string) (string, error) {
	if len(source) > maxSource {
		return "", fmt.Errorf("it has %d bytes, expected at most %d", len(source), maxSource)
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
		word := first(next.content)
		statement := next.kind == '%' && (!raw || word == "endraw")
		if statement && word == "endmacro" {
			out.WriteString(source[from:next.start] + "{{ " + leaveName + "() }}")
			from = next.start
		}
		out.WriteString(source[from:next.behind])
		from = next.behind
		if raw && !statement {
			continue
		}
		if depth := nested(next.content); next.kind != '#' && depth > maxNest {
			return "", fmt.Errorf("brackets nest %d deep in the tag at byte %d, expected at most %d", depth, next.start, maxNest)
		}
		if !statement {
			continue
		}
		if bound := bounded[word]; bound != "" {
			out.WriteString("{{ " + bound + "() }}")
		}
		blocks += opens[word]
		raw = word == "raw"
		if blocks > maxNest {
			return "", fmt.Errorf("blocks nest deeper than %d", maxNest)
		}
	}
}

// first is the word that a tag begins with.
func first(content string) string {
	if words := strings.Fields(content); len(words) > 0 {
		return words[0]
	}
	return ""
}

// nested is how deep the brackets of a tag nest, or how many signs, nots and elses it has outside of strings, which nest as well.
func nested(content string) int {
	code := unquoted(content)
	depth, most := 0, 0
	for _, c := range []byte(code) {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		most = max(most, depth)
	}
	return max(most, strings.Count(code, "not "), strings.Count(code, "-"), strings.Count(code, "else "))
}

// unquoted is content without what is in its strings.
func unquoted(content string) string {
	var out strings.Builder
	var quote byte
	for i := 0; i < len(content); i++ {
		switch c := content[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
		case c == '\'' || c == '"':
			quote = c
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}

// bounds are the values that hold one rendering to the bounds.
func bounds() map[string]jinja.Value {
	rounds, depth := 0, 0
	round := func() error {
		if rounds++; rounds > maxRounds {
			return fmt.Errorf("it takes more than %d rounds", maxRounds)
		}
		return nil
	}
	nothing := jinja.NewString("")
	type args = []jinja.Value
	type named = map[string]jinja.Value
	return map[string]jinja.Value{
		roundName: jinja.NewCallable(roundName, func(args, named) (jinja.Value, error) { return nothing, round() }),
		enterName: jinja.NewCallable(enterName, func(args, named) (jinja.Value, error) {
			if depth++; depth > maxDepth {
				return nothing, fmt.Errorf("its macros call each other more than %d deep", maxDepth)
			}
			return nothing, round()
		}),
		leaveName: jinja.NewCallable(leaveName, func(args, named) (jinja.Value, error) { depth--; return nothing, nil }),
		"range":   jinja.NewCallable("range", func(a args, _ named) (jinja.Value, error) { return numbers(a) }),
	}
}

// numbers is Jinja's range, bounded.
func numbers(a []jinja.Value) (jinja.Value, error) {
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
			return jinja.None(), fmt.Errorf("range: more than %d numbers", maxRange)
		}
		items = append(items, jinja.NewInt(i))
	}
	return jinja.NewList(items), nil
}
