package dialect

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// pushes returns what each piece brings, joined, and at last what Flush brings.
func pushes(d Dialect, tools string, pieces ...string) []string {
	s := d.Splitter([]byte(tools))
	var out []string
	for _, p := range pieces {
		out = append(out, show(s.Push(p)))
	}
	rest, _ := s.Flush()
	return append(out, show(rest))
}

func show(parts []engine.Part) string {
	var out []string
	for _, p := range parts {
		switch {
		case p.Call != nil && p.Call.Name != "":
			out = append(out, fmt.Sprintf("call %d %s", p.Call.Index, p.Call.Name))
		case p.Call != nil:
			out = append(out, "+"+p.Call.Arguments)
		case p.Reasoning != "":
			out = append(out, "~"+p.Reasoning)
		default:
			out = append(out, p.Text)
		}
	}
	return strings.Join(out, "|")
}

// What each piece brings at once, and what has to wait.
func TestOutputWaitsForNothingButMarkup(t *testing.T) {
	hermes, qwen, glm := Detect("<tool_call></think>"), Detect("<function=<parameter="), Detect("<arg_key>")
	cases := map[string]struct {
		dialect      Dialect
		tools        string
		pieces, want []string
	}{
		"text": {hermes, testTools,
			[]string{"Hi", " there", "\n", "<b>", " a < b", " <to", "ol", "kit>"},
			[]string{"Hi", " there", "\n", "<b>", " a < b", " ", "", "<toolkit>", ""}},
		"space at the beginning waits for what it belongs to": {hermes, testTools,
			[]string{"\n", " ", "x"}, []string{"", "", "\n x", ""}},
		"space alone is text":                 {hermes, testTools, []string{" \n"}, []string{"", " \n"}},
		"text that ends like a marker begins": {hermes, testTools, []string{"a<tool_ca"}, []string{"a", "<tool_ca"}},
		"without tools and reasoning nothing waits": {Dialect{}, testTools,
			[]string{"\n", "<tool_call>", "<think>"}, []string{"\n", "<tool_call>", "<think>", ""}},
		"reasoning": {hermes, "",
			[]string{"<th", "ink>", "\n", "Hm", ".", "\n", "\nOr", "</thi", "s>", "\n", "</think>", "\n", "\n",
				"So", " \n"},
			[]string{"", "", "", "~Hm", "~.", "", "~\n\nOr", "", "~</this>", "", "", "", "", "So", " \n", ""}},
		"an answer in JSON": {Detect("<|python_tag|>"), testTools,
			[]string{"{", `"summ`, `ary": "`, "a b", " c"}, []string{"", "", `{"summary": "`, "a b", " c", ""}},
		"text without a header": {Detect("<|channel|><|message|>"), testTools, []string{"He", "llo", " to", " you"},
			[]string{"He", "llo", " to", " you", ""}},
		"arguments of JSON": {hermes, testTools,
			[]string{"<tool_call>", `{"name": "weath`, `er", `, `"arguments": `, `{"ci`, `ty": "<`, `/tool_`, `",`, `"x":1}`, "}",
				"\n</tool_call>"},
			[]string{"", "", "", "", "call 0 weather|+{\"ci", `+ty": "<`, "+/tool_", `+",`, `+"x":1}`, "", "", ""}},
		"strings in tags": {qwen, testTools,
			[]string{"<tool_call>\n<function=write>", "\n<parameter=text>\n", "one\n", "two </", "param>", "\n</parameter>",
				"\n</function>", "\n</tool_call>"},
			[]string{"", "call 0 write|+{\"text\":\"", "+one", `+\ntwo `, "+</param>", `+"`, "+}", "", ""}},
		"other values in tags wait for their end": {glm, testTools,
			[]string{"<tool_call>weather\n<arg_key>days</arg_key>\n<arg_value>1", "2", "</arg_value>"},
			[]string{"call 0 weather|+{\"days\":", "", "+12", ""}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := pushes(c.dialect, c.tools, c.pieces...)
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// Each of these grows for ever without ever becoming what it may become.
func TestNeverMoreThanTheMostIsHeld(t *testing.T) {
	cases := map[string]struct {
		template, begin, more string
	}{
		"space":                       {"<tool_call></think>", "", " \n"},
		"a name":                      {"<tool_call>", `<tool_call>{"name": "`, "a"},
		"arguments before the name":   {"<tool_call>", `<tool_call>{"arguments": {`, `"a":1,`},
		"members":                     {"<tool_call>", `<tool_call>{`, `"a":1,`},
		"space after a call":          {"<tool_call>", `<tool_call>{"name":"now"}`, " \n"},
		"a call after a call":         {"<tool_call>", `<tool_call>{"name":"now"},`, `{"a":`},
		"members after the arguments": {"<tool_call>", `<tool_call>{"name":"now","arguments":{}`, `,"a":1`},
		"space in reasoning":          {"</think>", "<think>a", "\n"},
		"a value of a number":         {"<function=<parameter=", "<function=weather><parameter=days>\n", "1"},
		"a value of an object":        {"<function=<parameter=", "<function=search><parameter=filter>\n{", `"a":1,`},
		"the name of a parameter":     {"<function=<parameter=", "<function=search><parameter=", `a`},
		"space between parameters":    {"<function=<parameter=", "<function=search><parameter=a>\n</parameter>", "\n"},
		"a call without a marker":     {"<|python_tag|>", `{"name": "`, "a"},
		"a word":                      {"<|tool_call_start|>", "<|tool_call_start|>[now(a=", "a"},
		"brackets":                    {"<|tool_call_start|>", "<|tool_call_start|>[now(a=", "["},
		"space after a quote":         {"<|tool_call_start|>", "<|tool_call_start|>[now(a='b'", " "},
		"an id":                       {"[TOOL_CALLS]", "[TOOL_CALLS]now[CALL_ID]", "1"},
		"a header":                    {"<|channel|><|message|>", "<|channel|>commentary to=functions.", "a"},
		"space in a header":           {"<|channel|><|message|>", "<|channel|>commentary ", " "},
		"space after a message":       {"<|channel|><|message|>", "<|channel|>final to=functions.now<|message|>{}", " "},
		"text":                        {"<tool_call>", "", "<tool_cal"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := Detect(c.template).Splitter([]byte(testTools))
			s.Push(c.begin)
			more := strings.Repeat(c.more, 32)
			for n := 0; n < 3*MaxHeld; n += len(more) {
				s.Push(more)
				if h := heldBy(s); h > MaxHeld+len(c.begin)+len(more) {
					t.Fatalf("after %d bytes %d are held", n, h)
				}
			}
		})
	}
}

// heldBy returns how many bytes a splitter keeps.
func heldBy(s engine.Splitter) int {
	if h, is := s.(*channels); is {
		return len(h.held)
	}
	sp := s.(*splitter)
	n := len(sp.held)
	switch r := sp.last.reader.(type) {
	case *tags:
		n += r.kept.Len()
	case *literal:
		n += len(r.brackets)
	}
	return n
}

// A megabyte of arguments comes out whole, and what is too long to be certain comes out as what it begins as.
func TestLongArgumentsAreHandedOn(t *testing.T) {
	long := strings.Repeat("0123456789abcde\n", 1<<16)
	numbers := "[" + strings.Repeat("1, ", MaxHeld) + "1]"
	digits := strings.Repeat("1", 2*MaxHeld)
	written := jsonOf(map[string]string{"text": long})
	cases := map[string]struct{ template, begin, value, end, want string }{
		"a string in JSON": {"<tool_call>", `<tool_call>{"name":"write","arguments":`, written, "}</tool_call>", written},
		"a string in a tag": {"<arg_key>", "<tool_call>write<arg_key>text</arg_key><arg_value>", long,
			"</arg_value></tool_call>", written},
		"an array in a tag": {"<arg_key>", "<tool_call>search<arg_key>tags</arg_key><arg_value>", numbers,
			"</arg_value></tool_call>", `{"tags":` + numbers + "}"},
		"digits in a tag": {"<arg_key>", "<tool_call>weather<arg_key>days</arg_key><arg_value>", digits,
			"</arg_value></tool_call>", `{"days":"` + digits + `"}`},
		"an array in Python": {"<|tool_call_start|>", "<|tool_call_start|>[search(tags=", numbers, ")]<|tool_call_end|>",
			`{"tags":` + strings.ReplaceAll(numbers, " ", "") + "}"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			all := c.begin + c.value + c.end
			var pieces []string
			for rest := all; rest != ""; {
				n := min(len(rest), 1000)
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			got := split(Detect(c.template), testTools, all, pieces)
			if got.arguments[0] != c.want || got.text != "" || !json.Valid([]byte(got.arguments[0])) {
				t.Errorf("of %d bytes came %d bytes of arguments, want %d, and text of %d bytes", len(all), len(got.arguments[0]),
					len(c.want), len(got.text))
			}
			if whole := split(Detect(c.template), testTools, all, []string{all}); whole != got {
				t.Error("at once it is different")
			}
		})
	}
}

func FuzzSplitter(f *testing.F) {
	for i := range families {
		l := languages[families[i].name]
		if l.template == "" {
			f.Fatalf("no test writes as %s does", families[i].name)
		}
		f.Add(uint8(i), true, "<think>a</think>b"+
			l.call("now", []argument{{"a", "b<"}, {"c", []any{1.5, nil}}})+l.bad, uint16(i))
	}
	f.Add(uint8(0), true, "<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>", uint16(3))
	f.Add(uint8(11), true, `<|tool_call_start|>[now(a='\x4', b={"c": [None]})]<|tool_call_end|>`, uint16(2))
	f.Fuzz(func(t *testing.T, family uint8, tools bool, all string, size uint16) {
		all = strings.ToValidUTF8(all, "")
		d := Dialect{family: &families[int(family)%len(families)], think: reasonings[int(family)%len(reasonings)]}
		given := map[bool]string{true: testTools}[tools]
		runes := strings.SplitAfter(all, "")
		var pieces []string
		for n := int(size)%16 + 1; len(runes) > 0; {
			n = min(n, len(runes))
			pieces, runes = append(pieces, strings.Join(runes[:n], "")), runes[n:]
		}
		whole, cut := split(d, given, all, []string{all}), split(d, given, all, pieces)
		if whole != cut {
			t.Fatalf("at once it is\n%s\nand in pieces\n%s", whole, cut)
		}
		if !d.family.channels && !whole.called && !strings.Contains(all, d.think.open) && whole.text != all {
			t.Fatalf("of %q came the text %q", all, whole.text)
		}
	})
}
