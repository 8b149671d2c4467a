package llamacpp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ardanlabs/jinja"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// back is a conversation that comes back with calls of tools: two at once, and a third after their results.
const back = `[{"role":"user","content":"Weather?"},
{"role":"assistant","content":CONTENT,"tool_calls":[
  {"id":"call_a","type":"function","function":{"name":"weather","arguments":ARGUMENTS}},
  {"id":"call_b","type":"function","function":{"name":"now","arguments":""}}]},
{"role":"tool","tool_call_id":"call_b","content":"noon"},{"role":"tool","tool_call_id":"call_a","content":"sunny"},
{"role":"assistant","content":CONTENT,"tool_calls":[{"id":"call_a","type":"function","function":{"name":"now","arguments":"{}"}}]},
{"role":"tool","tool_call_id":"call_a","content":"one"},{"role":"tool","tool_call_id":"unknown","content":"two"}]`

// Parts of templates, after {% for m in messages %} and, of calls, {% for c in m.tool_calls %}.
const (
	asJSON    = `{{ c.function.name }}({{ c.function.arguments | tojson }})`
	asText    = `{{ c.function.name + '(' + c.function.arguments + ')' }}`
	byMember  = `{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %})`
	ofResults = `{% if m.role == 'tool' %}[{{ m.tool_call_id }}:{{ m.content }}]{% endif %}`
	nineOnly  = `{% if c.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}`
)

func showing(call string) string {
	return `{% for m in messages %}{% for c in m.tool_calls %}` + call + `{% endfor %}` + ofResults + `{% endfor %}`
}

const (
	sentText   = `"{\"city\":\"Bad \\\"Ems\\\"\",\"n\":[1,null,\"}\\u00e9\"]}"`
	sentObject = `{"city":"Bad \"Ems\"","n":[1,null,"}\u00e9"]}`
)

func TestCallsComeBackAsTheTemplateWantsThem(t *testing.T) {
	const section = `{% if false %}<|tool_calls_section_begin|>{% endif %}`
	cases := map[string]struct{ template, content, arguments, want string }{
		"as JSON": {showing(asJSON), `null`, sentText,
			`weather({"city": "Bad \"Ems\"", "n": [1, null, "}é"]})now({})[call_b:noon][call_a:sunny]now({})[call_a:one][unknown:two]`},
		"as JSON, sent as an object": {showing(asJSON), `null`, sentObject,
			`weather({"city": "Bad \"Ems\"", "n": [1, null, "}é"]})now({})[call_b:noon][call_a:sunny]now({})[call_a:one][unknown:two]`},
		"as JSON, of arguments that are none": {showing(asJSON), `null`, `"{\"city\":"`,
			`weather("{\"city\":")now({})[call_b:noon][call_a:sunny]now({})[call_a:one][unknown:two]`},
		"member by member": {showing(byMember), `null`, sentText,
			`weather(city=Bad "Ems";n=[1, None, '}é'];)now()[call_b:noon][call_a:sunny]now()[call_a:one][unknown:two]`},
		"joined to text": {showing(asText), `null`, sentText,
			`weather({"city":"Bad \"Ems\"","n":[1,null,"}\u00e9"]})now({})[call_b:noon][call_a:sunny]now({})[call_a:one][unknown:two]`},
		"joined to text, sent as an object": {showing(asText), `null`, sentObject,
			`weather({"city": "Bad \"Ems\"", "n": [1, null, "}é"]})now({})[call_b:noon][call_a:sunny]now({})[call_a:one][unknown:two]`},
		"where the content must be none": {
			`{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}` + asText + `{% endfor %}{% endif %}{% endfor %}`,
			`""`, sentText, `weather({"city":"Bad \"Ems\"","n":[1,null,"}\u00e9"]})now({})now({})`},
		"where the content must be text": {
			`{% for m in messages %}{{ m.content.strip() + ':' }}{% for c in m.tool_calls %}` + asJSON + `{% endfor %}{% endfor %}`,
			`null`, `"{}"`, `Weather?::weather({})now({})noon:sunny::now({})one:two:`},
		"a text beside calls stays": {
			`{% for m in messages %}{{ m.content.strip() + ':' }}{% for c in m.tool_calls %}` + asJSON + `{% endfor %}{% endfor %}`,
			`"I look."`, `"{}"`, `Weather?:I look.:weather({})now({})noon:sunny:I look.:now({})one:two:`},
		"one at a time, others refused": {
			`{% for m in messages %}{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}` +
				`{{ m.content }}{% for c in m.tool_calls %}` + asJSON + `{% endfor %}` + ofResults + `{% endfor %}`,
			`"I look."`, `"{}"`, `Weather?I look.weather({})sunny[call_a:sunny]now({})noon[call_b:noon]` +
				`I look.now({})one[call_a:one]two[unknown:two]`},
		"one at a time, others forgotten": {
			`{% for m in messages %}{% for c in m.tool_calls[:1] %}` + asJSON + `{% endfor %}` + ofResults + `{% endfor %}`,
			`null`, `"{}"`, `weather({})[call_a:sunny]now({})[call_b:noon]now({})[call_a:one][unknown:two]`},
		"ids of nine characters": {showing(nineOnly + `{{ c.id }} ` + asJSON), `null`, `"{}"`,
			`05f49740f weather({})9d60374e1 now({})[9d60374e1:noon][05f49740f:sunny]05f49740f now({})[05f49740f:one][unknown:two]`},
		"ids that count the calls of the conversation": {section + showing(`{{ c.id }}`+asJSON), `null`, `"{}"`,
			`functions.weather:0weather({})functions.now:1now({})[functions.now:1:noon][functions.weather:0:sunny]` +
				`functions.now:2now({})[functions.now:2:one][unknown:two]`},
		"ids that count the calls of a message": {
			section + showing(`{{ 'functions.' + c.function.name + ':' + loop.index0 | string }}<|tool_call_argument_begin|>`), `null`, `"{}"`,
			`functions.weather:0<|tool_call_argument_begin|>functions.now:1<|tool_call_argument_begin|>[functions.now:1:noon]` +
				`[functions.weather:0:sunny]functions.now:0<|tool_call_argument_begin|>[functions.now:0:one][unknown:two]`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			messages := strings.NewReplacer("CONTENT", c.content, "ARGUMENTS", c.arguments).Replace(back)
			got, err := newTemplate(c.template, "m", "", "").render(engine.Chat{Messages: []byte(messages)})
			if err != nil || got != c.want {
				t.Errorf("got  %s (%v)\nwant %s", got, err, c.want)
			}
		})
	}
}

func TestIdsThatHaveTheirFormStay(t *testing.T) {
	const section = `{% if false %}<|tool_calls_section_begin|>{% endif %}`
	const messages = `[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[
		{"id":"FIRST","type":"function","function":{"name":"a","arguments":"{}"}},
		{"id":"SECOND","type":"function","function":{"name":"b","arguments":"{}"}}]},{"role":"tool","tool_call_id":"SECOND","content":"y"}]`
	cases := map[string]struct{ template, first, second, want string }{
		"of nine characters": {showing(nineOnly + `{{ c.id }} ` + asJSON), "abcABC019", "call_b",
			"abcABC019 a({})9d60374e1 b({})[9d60374e1:y]"},
		"counted":         {section + showing(`{{ c.id }} `), "functions.a:4", "functions.b:7", "functions.a:4 functions.b:7 [functions.b:7:y]"},
		"one of two":      {section + showing(`{{ c.id }} `), "functions.a:4", "call_b", "functions.a:0 functions.b:1 [functions.b:1:y]"},
		"of another name": {section + showing(`{{ c.id }} `), "functions.b:4", "functions.b:5", "functions.a:0 functions.b:1 [functions.b:1:y]"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			chat := engine.Chat{Messages: []byte(strings.NewReplacer("FIRST", c.first, "SECOND", c.second).Replace(messages))}
			if got, err := newTemplate(c.template, "m", "", "").render(chat); err != nil || got != c.want {
				t.Errorf("got %s (%v), want %s", got, err, c.want)
			}
		})
	}
}

// single is a template that refuses a message with two calls, and numbered one that counts the calls of the conversation.
const (
	single = `{% for m in messages %}{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}` +
		`{% for c in m.tool_calls %}` + asJSON + `{% endfor %}` + ofResults + `{% endfor %}`
	numbered = `{% if false %}<|tool_calls_section_begin|>{% endif %}{% for m in messages %}{% for c in m.tool_calls %}{{ c.id }} {% endfor %}` +
		ofResults + `{% endfor %}`
)

func TestResultsWithoutAnIDBelongToTheCallsInOrder(t *testing.T) {
	cases := map[string]struct{ template, ids, results, want string }{
		"of calls without ids":      {single, ",,", ",,", `f0({})[:r0]f1({})[:r1]f2({})[:r2]`},
		"of calls with ids":         {single, "a,b,c", ",,", `f0({})[:r0]f1({})[:r1]f2({})[:r2]`},
		"beside one that has an id": {single, "a,b,c", "b,,", `f0({})[:r1]f1({})[b:r0]f2({})[:r2]`},
		"more than calls":           {single, ",", ",,", `f0({})[:r0]f1({})[:r1][:r2]`},
		"fewer than calls":          {single, ",,", ",", `f0({})[:r0]f1({})[:r1]f2({})`},
		"an unknown id":             {single, "a,b", "z,", `f0({})[:r1]f1({})[z:r0]`},
		"two of one call":           {single, "a,b", "a,a,b", `f0({})[a:r0][a:r1]f1({})[b:r2]`},
		"two calls of one id":       {single, "a,a", "a,", `f0({})[a:r0]f1({})[:r1]`},
		"counted, of calls without ids": {numbered, ",,", ",,",
			`functions.f0:0 functions.f1:1 functions.f2:2 [functions.f0:0:r0][functions.f1:1:r1][functions.f2:2:r2]`},
		"counted, beside one that has an id": {numbered, "a,b", "a,", `functions.f0:0 functions.f1:1 [functions.f0:0:r0][functions.f1:1:r1]`},
		"counted, more than calls":           {numbered, ",", ",,", `functions.f0:0 functions.f1:1 [functions.f0:0:r0][functions.f1:1:r1][:r2]`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			chat := engine.Chat{Messages: called(strings.Split(c.ids, ","), strings.Split(c.results, ","))}
			if got, err := newTemplate(c.template, "m", "", "").render(chat); err != nil || got != c.want {
				t.Errorf("got  %s (%v)\nwant %s", got, err, c.want)
			}
		})
	}
}

// called is a conversation of calls of those ids, and results of those; "" is none.
func called(ids, results []string) []byte {
	var calls, answers []string
	id := func(key, of string) string {
		if of == "" {
			return ""
		}
		return fmt.Sprintf(`"%s":"%s",`, key, of)
	}
	for i, of := range ids {
		calls = append(calls, fmt.Sprintf(`{%s"type":"function","function":{"name":"f%d","arguments":"{}"}}`, id("id", of), i))
	}
	for i, of := range results {
		answers = append(answers, fmt.Sprintf(`{"role":"tool",%s"content":"r%d"}`, id("tool_call_id", of), i))
	}
	return fmt.Appendf(nil, `[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[%s]},%s]`,
		strings.Join(calls, ","), strings.Join(answers, ","))
}

// In turn each call would be looked for among all results, which is 10^10 comparisons.
func TestManyCallsAreGivenTheirResultsInOnePass(t *testing.T) {
	const many = 150_000
	ids := make([]string, many)
	for i := range ids {
		ids[i] = fmt.Sprintf("call_%06d", i)
	}
	results := slices.Clone(ids)
	slices.Reverse(results)
	messages, err := parse(called(ids, results))
	if err != nil {
		t.Fatal(err)
	}
	ends(t, func() {
		out := spread(messages.AsList().Items)
		if last := out[len(out)-1].AsDict(); len(out) != 1+2*many || textOf(last, "tool_call_id") != ids[many-1] {
			t.Errorf("%d messages, the last %s", len(out), jinja.NewString(textOf(last, "tool_call_id")))
		}
	})
}
