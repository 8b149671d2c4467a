package dialect

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// testTools are the tools of all tests.
const testTools = `[
{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{
  "city":{"type":"string"},"days":{"type":"integer"},"metric":{"type":"boolean"}}}}},
{"type":"function","function":{"name":"write","parameters":{"type":"object","properties":{
  "path":{"type":"string"},"text":{"type":"string"}}}}},
{"type":"function","function":{"name":"search","parameters":{"type":"object","properties":{
  "query":{"type":["string","null"]},"filter":{"type":"object"},"tags":{"type":"array"},"any":{}}}}},
{"type":"function","function":{"name":"now"}}]`

// A transcript has a template, and what a model with it writes: after "say" a request with tools, after "say no-tools" one
// without. The output is what a client gets; ⏎ is a line break.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		var d Dialect
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			switch td.Cmd {
			case "template":
				d = Detect(td.Input)
				return describe(d)
			case "prompt":
				d = d.After(td.Input)
				return describe(d)
			case "say":
				tools := testTools
				if td.HasArg("no-tools") {
					tools = "[]"
				}
				whole := split(d, tools, td.Input, []string{td.Input})
				if got := split(d, tools, td.Input, strings.SplitAfter(td.Input, "")); got != whole {
					td.Fatalf(t, "character by character it is\n%s\nand at once\n%s", got, whole)
				}
				return whole.String()
			}
			td.Fatalf(t, "unknown command %s", td.Cmd)
			return ""
		})
	})
}

func describe(d Dialect) string {
	opened := ""
	if d.opened {
		opened = ", opened by the prompt"
	}
	if d.think.open == "" {
		return d.Name() + "\n"
	}
	return fmt.Sprintf("%s, reasoning %s…%s%s\n", d.Name(), d.think.open, d.think.closing, opened)
}

// outcome is what a client gets in all.
type outcome struct {
	lines  string // kinds and contents in order
	text   string
	reason string
	names  string // of the calls, each followed by a space
	called bool

	arguments [8]string // of the first calls
}

func (o outcome) String() string { return fmt.Sprintf("%scalled: %v\n", o.lines, o.called) }

// split feeds pieces to a splitter of d, and checks what holds for any output.
func split(d Dialect, tools, all string, pieces []string) outcome {
	s := d.Splitter([]byte(tools))
	var parts []engine.Part
	for _, p := range pieces {
		parts = append(parts, s.Push(p)...)
	}
	rest, called := s.Flush()
	parts = append(parts, rest...)

	o := outcome{called: called}
	var lines, content strings.Builder
	var arguments [len(o.arguments)]strings.Builder
	kind := ""
	line := func(next string) {
		if kind != "" {
			fmt.Fprintf(&lines, "%s «%s»\n", kind, strings.ReplaceAll(content.String(), "\n", "⏎"))
		}
		kind = next
		content.Reset()
	}
	calls := 0
	for _, p := range parts {
		next, add := "text", p.Text
		switch {
		case p.Reasoning != "":
			next, add = "reasoning", p.Reasoning
			o.reason += add
		case p.Call != nil && p.Call.Name != "":
			line("")
			fmt.Fprintf(&lines, "call %d %s\n", p.Call.Index, p.Call.Name)
			o.names += p.Call.Name + " "
			if p.Call.Index != calls || p.Call.Arguments != "" || p.Call.ID != "" {
				panic(fmt.Sprintf("call %d begins as %+v", calls, *p.Call))
			}
			calls++
			continue
		case p.Call != nil:
			next, add = fmt.Sprintf("  arguments %d", p.Call.Index), p.Call.Arguments
			if p.Call.Index != calls-1 {
				panic(fmt.Sprintf("arguments of call %d after the beginning of call %d", p.Call.Index, calls-1))
			}
			if calls <= len(o.arguments) {
				arguments[calls-1].WriteString(add)
			}
		default:
			o.text += add
		}
		if add == "" || utf8.ValidString(all) && !utf8.ValidString(add) {
			panic(fmt.Sprintf("part %+v of %q", p, all))
		}
		if next != kind {
			line(next)
		}
		content.WriteString(add)
	}
	line("")
	o.lines = lines.String()
	for i := range arguments {
		o.arguments[i] = arguments[i].String()
	}
	return o
}
