package dialect

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// schemaOf returns tools of which one has parameters of the kinds that the arguments have.
func schemaOf(name string, a []argument) string {
	properties := map[string]any{}
	for _, one := range a {
		kind := map[string]string{"string": "string", "float64": "number", "bool": "boolean", "[]interface {}": "array",
			"map[string]interface {}": "object"}[fmt.Sprintf("%T", one.value)]
		if kind == "" {
			kind = "null"
		}
		properties[one.name] = map[string]any{"type": kind}
	}
	return jsonOf([]any{map[string]any{"type": "function", "function": map[string]any{"name": name,
		"parameters": map[string]any{"properties": properties}}}})
}

var words = rapid.StringMatching(`[a-z_][a-z0-9_]{0,8}`)

func drawValue(t *rapid.T, strings_ *rapid.Generator[string], depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(1, kinds).Draw(t, "kind") {
	case 1:
		return float64(rapid.IntRange(-1000, 1000).Draw(t, "number"))
	case 2:
		return rapid.Bool().Draw(t, "boolean")
	case 3:
		return nil
	case 4:
		return strings_.Draw(t, "string")
	case 5:
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			out = append(out, drawValue(t, strings_, depth-1))
		}
		return out
	}
	out := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "size") {
		out["k"+words.Draw(t, "key")] = drawValue(t, strings_, depth-1)
	}
	return out
}

// cut cuts s into pieces of whole characters.
func cut(t *rapid.T, s string) []string {
	var out []string
	for s != "" {
		n := min(len(s), rapid.IntRange(1, 12).Draw(t, "cut"))
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n++
		}
		out, s = append(out, s[:n]), s[n:]
	}
	return out
}

// Whatever calls a family can write come out as they were meant, between the texts that were around them, however the
// output is cut.
func TestWhatAFamilyWritesIsUnderstood(t *testing.T) {
	for name, language := range languages {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				d := Detect(language.template)
				if d.Name() != name {
					t.Fatalf("detected %q", d.Name())
				}
				hard := rapid.OneOf(rapid.String(), rapid.StringMatching(`[<>/|\[\]{}"'\\ \n,:=a-c]{0,20}`), rapid.SampledFrom(d.Markup())).
					Filter(func(s string) bool { return language.never == "" || !strings.Contains(s, language.never) })
				text, reason, all := "", "", ""
				plain := rapid.StringMatching(`[A-Z][a-z ,.é]{0,10}[a-z]`)
				if d.think.open != "" && rapid.Bool().Draw(t, "reasons") {
					reason = plain.Draw(t, "reasoning")
					all = d.think.open + "\n" + reason + "\n" + d.think.closing + "\n\n"
				}
				var want []argument // name of the call, and its arguments
				tool := "t" + words.Draw(t, "name")
				var tools string
				for range rapid.IntRange(1, 3).Draw(t, "segments") {
					if rapid.Bool().Draw(t, "text") {
						s := plain.Draw(t, "plain")
						all, text = all+s, text+s
					}
					if rapid.Bool().Draw(t, "malformed") {
						all, text = all+language.bad+".", text+language.bad+"."
					}
					if tools != "" {
						continue
					}
					var a []argument
					for i := range rapid.IntRange(0, 3).Draw(t, "arguments") {
						a = append(a, argument{fmt.Sprint(words.Draw(t, "parameter"), i), drawValue(t, hard, 2)})
					}
					tools = schemaOf(tool, a)
					all += language.call(tool, a)
					want = a
				}
				pieces := cut(t, all)
				got := split(d, tools, all, pieces)
				if whole := split(d, tools, all, []string{all}); whole != got {
					t.Fatalf("of %q in pieces\n%s\nand at once\n%s", all, got, whole)
				}
				if got.text != text || got.reason != reason || !strings.HasPrefix(got.names, tool+" ") {
					t.Fatalf("of %q\n%s\nwant the call of %s, the text %q and the reasoning %q", all, got, tool, text, reason)
				}
				var args, expected any
				if err := json.Unmarshal([]byte(got.arguments[0]), &args); err != nil {
					t.Fatalf("arguments %q of %q are no JSON: %v", got.arguments[0], all, err)
				}
				if err := json.Unmarshal([]byte(object(want)), &expected); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(args, expected) {
					t.Fatalf("arguments of %q are\n%s, want\n%s", all, got.arguments[0], object(want))
				}
			})
		})
	}
}

// debris draws text that is mostly pieces of markup, whole and broken.
func debris(t *rapid.T, d Dialect) string {
	pieces := append(d.Markup(), "weather", "now", "functions.now:0", " to=functions.now", "assistant", "final", "analysis",
		"commentary", " ", "\n", "{", "}", "[", "]", "(", ")", ",", ":", "=", `"`, "'", `\`, `"name"`, `"arguments"`, `{"a": 1}`,
		`{"name": "now", "arguments": {`, "<function=now>", "</function>", "<parameter=a>", "</parameter>", `<invoke name="now">`,
		`<parameter name="a">`, "</invoke>", "call:now{", "now(", "a=1", "<arg_key>", "é", "<", "<|", "text", "functools",
		"```json", "<｜DSML｜tool_calls>", "<｜DSML｜invoke name=\"now\">")
	var b strings.Builder
	for range rapid.IntRange(0, 25).Draw(t, "length") {
		p := rapid.SampledFrom(pieces).Draw(t, "piece")
		if rapid.IntRange(0, 5).Draw(t, "break") == 0 {
			p = strings.ToValidUTF8(p[:rapid.IntRange(0, len(p)).Draw(t, "at")], "")
		}
		b.WriteString(p)
	}
	return b.String()
}

func TestHowTheTextIsCutMakesNoDifference(t *testing.T) {
	for i := range families {
		t.Run(families[i].name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				d := Dialect{family: &families[i], think: rapid.SampledFrom(append(reasonings, marks{})).Draw(t, "think")}
				d.opened = d.think.open != "" && rapid.Bool().Draw(t, "opened")
				all := debris(t, d)
				tools := rapid.SampledFrom([]string{testTools, ""}).Draw(t, "tools")
				whole, pieces := split(d, tools, all, []string{all}), split(d, tools, all, cut(t, all))
				if whole != pieces {
					t.Fatalf("%q at once is\n%s\nand in pieces\n%s", all, whole, pieces)
				}
			})
		})
	}
}

// A Splitter that finds neither reasoning nor calls hands out what it got. So does one that isn't given tools, as far as
// there is no reasoning.
func TestMarkupThatIsBrokenIsTextAgain(t *testing.T) {
	for i := range families {
		if families[i].channels {
			continue // whose headers are markup even so
		}
		t.Run(families[i].name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				d := Dialect{family: &families[i]}
				all := debris(t, d)
				tools := rapid.SampledFrom([]string{testTools, ""}).Draw(t, "tools")
				got := split(d, tools, all, cut(t, all))
				if !got.called && got.text != all || got.called && tools == "" {
					t.Fatalf("of %q came\n%s", all, got)
				}
			})
		})
	}
}
