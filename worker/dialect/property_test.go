package dialect

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// spoken is a family with a template's text by which it is detected, and how its models write.
type spoken struct {
	template string
	call     func(name string, arguments []argument) string // one that the next can follow
	string   func(s string) string                          // within values; nil: JSON
	never    []string                                       // what strings can't hold
	bad      string                                         // a call that is none
}

type argument struct {
	name  string
	value any
}

const think = "{{ '</think>' }}"

var languages = map[string]spoken{
	"hermes": {template: "<tool_call>" + think, bad: "<tool_call>{weather}", call: func(n string, a []argument) string {
		return fmt.Sprintf("<tool_call>\n{\"name\": %q, \"arguments\": %s}\n</tool_call>\n", n, object(a))
	}},
	"granite": {template: "<|tool_call|>" + think, bad: "<|tool_call|>[{}]", call: func(n string, a []argument) string {
		return fmt.Sprintf(`<|tool_call|>[{"arguments": %s, "name": %q}]`, object(a), n)
	}},
	"phi4": {template: "<|/tool_call|>", bad: "functools(x)", call: func(n string, a []argument) string {
		return fmt.Sprintf(`<|tool_call|>{"name": %q, "arguments": %s}<|/tool_call|>`, n, object(a))
	}},
	"nemotron": {template: "<TOOLCALL>", bad: "<TOOLCALL>[]</TOOLCALL>", call: func(n string, a []argument) string {
		return fmt.Sprintf(`<TOOLCALL>[{"name": %q, "arguments": %s, "id": "1"}, {"name": "x"}]</TOOLCALL>`, n, object(a))
	}},
	"llama3": {template: "<|python_tag|>", bad: "<|python_tag|>print(1)", call: func(n string, a []argument) string {
		return fmt.Sprintf(`<|python_tag|>{"name": %q, "parameters": %s}`, n, object(a))
	}},
	"mistral": {template: "[TOOL_CALLS] [/THINK]", bad: "[TOOL_CALLS]no name[ARGS]", call: func(n string, a []argument) string {
		return fmt.Sprintf("[TOOL_CALLS]%s[ARGS]%s", n, object(a))
	}},
	"deepseek": {template: "<｜tool▁call▁begin｜>" + think, bad: "<｜tool▁calls▁begin｜>none<｜tool▁calls▁end｜>", call: func(n string, a []argument) string {
		return fmt.Sprintf("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>%s\n```json\n%s\n```<｜tool▁call▁end｜>\n<｜tool▁calls▁end｜>", n, object(a))
	}},
	"kimi-k2": {template: "<|tool_calls_section_begin|>" + think, bad: "<|tool_call_begin|>functions.x<|tool_call_end|>", call: func(n string, a []argument) string {
		return fmt.Sprintf("<|tool_calls_section_begin|><|tool_call_begin|>functions.%s:0<|tool_call_argument_begin|>%s<|tool_call_end|><|tool_calls_section_end|>", n, object(a))
	}},
	"qwen3-coder": {template: "<function=<parameter=" + think, bad: "<tool_call>\n<function=>", never: []string{"</parameter>"}, call: func(n string, a []argument) string {
		return "<tool_call>\n<function=" + n + ">\n" + tagsOf(a, "<parameter=", ">\n", "\n</parameter>\n") + "</function>\n</tool_call>\n"
	}},
	"seed": {template: "<seed:tool_call></seed:think>", bad: "<seed:tool_call><parameter=x>", never: []string{"</parameter>"}, call: func(n string, a []argument) string {
		return "<seed:tool_call>\n<function=" + n + ">\n" + tagsOf(a, "<parameter=", ">", "</parameter>\n") + "</function>\n</seed:tool_call>"
	}},
	"minimax": {template: "<minimax:tool_call>" + think, bad: "<minimax:tool_call><invoke>", never: []string{"</parameter>"}, call: func(n string, a []argument) string {
		return "<minimax:tool_call>\n<invoke name=\"" + n + "\">\n" + tagsOf(a, `<parameter name="`, `">`, "</parameter>\n") + "</invoke>\n</minimax:tool_call>"
	}},
	"glm": {template: "<arg_key>" + think, bad: "<tool_call>two words</tool_call>", never: []string{"</arg_value>"}, call: func(n string, a []argument) string {
		return "<tool_call>" + n + "\n" + tagsOf(a, "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n") + "</tool_call>\n"
	}},
	"gemma4":        {template: "<|tool_call>call:<channel|>", bad: "<|tool_call>call:(x)", never: []string{`<|"|>`}, string: func(s string) string { return `<|"|>` + s + `<|"|>` }},
	"functiongemma": {template: "<start_function_call>", bad: "<start_function_call>x", never: []string{"<escape>"}, string: func(s string) string { return "<escape>" + s + "<escape>" }},
	"lfm2":          {template: "<|tool_call_start|>" + think, bad: "<|tool_call_start|>[x(1)]<|tool_call_end|>", string: func(s string) string { return jsonOf(s) }},
}

// write returns a call as the family writes it.
func (s spoken) write(of, name string, a []argument) string {
	var b strings.Builder
	switch of {
	case "lfm2":
		fmt.Fprintf(&b, "<|tool_call_start|>[%s(", name)
		for i, one := range a {
			fmt.Fprintf(&b, "%s%s=%s", comma(i), one.name, pythonOf(one.value))
		}
		return b.String() + ")]<|tool_call_end|>"
	case "gemma4", "functiongemma":
		marks := families[slices.IndexFunc(families, func(f family) bool { return f.name == of })].markup
		fmt.Fprintf(&b, "%scall:%s{", marks[0], name)
		for i, one := range a {
			fmt.Fprintf(&b, "%s%s:%s", comma(i), one.name, s.value(one.value))
		}
		return b.String() + "}" + marks[1]
	}
	return s.call(name, a)
}

func comma(i int) string { return map[bool]string{true: ","}[i > 0] }

// value writes a value as Gemma does: with bare keys, and strings between tokens.
func (s spoken) value(v any) string {
	var parts []string
	switch v := v.(type) {
	case string:
		return s.string(v)
	case []any:
		for _, one := range v {
			parts = append(parts, s.value(one))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case map[string]any:
		for k, one := range v {
			parts = append(parts, k+":"+s.value(one))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return jsonOf(v)
}

func pythonOf(v any) string {
	switch v := v.(type) {
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	case nil:
		return "None"
	}
	return jsonOf(v)
}

func jsonOf(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(out)
}

func object(a []argument) string {
	var b strings.Builder
	for i, one := range a {
		b.WriteString(comma(i) + jsonOf(one.name) + ": " + jsonOf(one.value))
	}
	return "{" + b.String() + "}"
}

func tagsOf(a []argument, key, keyed, valued string) string {
	var b strings.Builder
	for _, one := range a {
		v, is := one.value.(string)
		if !is {
			v = jsonOf(one.value)
		}
		b.WriteString(key + one.name + keyed + v + valued)
	}
	return b.String()
}

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
					Filter(func(s string) bool {
						return !slices.ContainsFunc(language.never, func(n string) bool { return strings.Contains(s+n[:1], n) || strings.Contains(s, n) })
					})
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
					all += language.write(name, tool, a)
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
	pieces := append(d.Markup(), "weather", "now", "functions.now:0", " to=functions.now", "assistant", "final", "analysis", "commentary", " ",
		"\n", "{", "}", "[", "]", "(", ")", ",", ":", "=", `"`, "'", `\`, `"name"`, `"arguments"`, `{"name": "now", "arguments": {`, "<function=now>",
		"</function>", "<parameter=a>", "</parameter>", `<invoke name="now">`, `<parameter name="a">`, "</invoke>", "call:now{", "now(", "a=1",
		"<arg_key>", "é", "<", "<|", "text", "functools", "```json", "<｜DSML｜tool_calls>", "<｜DSML｜invoke name=\"now\">", `{"a": 1}`)
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
