package dialect

import (
	"encoding/json"
	"fmt"
	"strings"
)

// spoken is how the models of a family write.
type spoken struct {
	template string // a text by which the family is recognised
	call     func(name string, a []argument) string
	never    string // what strings can't hold; "": they may hold anything
	bad      string // what looks like a call and is none
}

type argument struct {
	name  string
	value any
}

const think = "{{ '</think>' }}"

// languages are the families by name.
var languages = map[string]spoken{
	"harmony": {
		template: "<|channel|><|message|>",
		bad:      "<|channel|>commentary to=browser.open<|message|>",
		call:     jsonCall("<|start|>assistant to=functions.%s<|channel|>commentary <|constrain|>json<|message|>%s<|call|>"),
	},
	"kimi-k2": {
		template: "<|tool_calls_section_begin|>" + think,
		bad:      "<|tool_call_begin|>functions.x<|tool_call_end|>",
		call: jsonCall("<|tool_calls_section_begin|><|tool_call_begin|>functions.%s:0<|tool_call_argument_begin|>%s" +
			"<|tool_call_end|><|tool_calls_section_end|>"),
	},
	"deepseek": {
		template: "<｜tool▁call▁begin｜>" + think,
		bad:      "<｜tool▁calls▁begin｜>none<｜tool▁calls▁end｜>",
		call: jsonCall("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>%s\n```json\n%s\n```" +
			"<｜tool▁call▁end｜>\n<｜tool▁calls▁end｜>"),
	},
	"deepseek-dsml": {
		template: "｜DSML｜" + think,
		bad:      "<｜DSML｜tool_calls></｜DSML｜tool_calls>",
		never:    "</｜DSML｜parameter>",
		call: func(name string, a []argument) string {
			out := "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"" + name + "\">\n"
			for _, one := range a {
				_, is := one.value.(string)
				out += tagsOf([]argument{one}, `<｜DSML｜parameter name="`, fmt.Sprintf(`" string="%v">`, is), "</｜DSML｜parameter>\n")
			}
			return out + "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
		},
	},
	"minimax": {
		template: "<minimax:tool_call>" + think,
		bad:      "<minimax:tool_call><invoke>",
		never:    "</parameter>",
		call: func(name string, a []argument) string {
			return "<minimax:tool_call>\n<invoke name=\"" + name + "\">\n" +
				tagsOf(a, `<parameter name="`, `">`, "</parameter>\n") + "</invoke>\n</minimax:tool_call>"
		},
	},
	"glm": {
		template: "<arg_key>" + think,
		bad:      "<tool_call>two words</tool_call>",
		never:    "</arg_value>",
		call: func(name string, a []argument) string {
			return "<tool_call>" + name + "\n" + tagsOf(a, "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n") + "</tool_call>\n"
		},
	},
	"seed": {
		template: "<seed:tool_call></seed:think>",
		bad:      "<seed:tool_call><parameter=x>",
		never:    "</parameter>",
		call: func(name string, a []argument) string {
			return "<seed:tool_call>\n<function=" + name + ">\n" + tagsOf(a, "<parameter=", ">", "</parameter>\n") +
				"</function>\n</seed:tool_call>"
		},
	},
	"qwen3-coder": {
		template: "<function=<parameter=" + think,
		bad:      "<tool_call>\n<function=>",
		never:    "</parameter>",
		call: func(name string, a []argument) string {
			return "<tool_call>\n<function=" + name + ">\n" + tagsOf(a, "<parameter=", ">\n", "\n</parameter>\n") +
				"</function>\n</tool_call>\n"
		},
	},
	"mistral": {
		template: "[TOOL_CALLS] [/THINK]",
		bad:      "[TOOL_CALLS]no name[ARGS]",
		call:     jsonCall("[TOOL_CALLS]%s[ARGS]%s"),
	},
	"gemma4": {
		template: "<|tool_call>call:<channel|>",
		bad:      "<|tool_call>call:(x)",
		never:    `<|"|>`,
		call:     gemmaCall("<|tool_call>", "<tool_call|>", `<|"|>`),
	},
	"functiongemma": {
		template: "<start_function_call>",
		bad:      "<start_function_call>x",
		never:    "<escape>",
		call:     gemmaCall("<start_function_call>", "<end_function_call>", "<escape>"),
	},
	"lfm2": {
		template: "<|tool_call_start|>" + think,
		bad:      "<|tool_call_start|>[x(1)]<|tool_call_end|>",
		call: func(name string, a []argument) string {
			var parts []string
			for _, one := range a {
				parts = append(parts, one.name+"="+pythonOf(one.value))
			}
			return "<|tool_call_start|>[" + name + "(" + strings.Join(parts, ", ") + ")]<|tool_call_end|>"
		},
	},
	"phi4": {
		template: "<|/tool_call|>",
		bad:      "functools(x)",
		call:     jsonCall(`<|tool_call|>{"name": "%s", "arguments": %s}<|/tool_call|>`),
	},
	"nemotron": {
		template: "<TOOLCALL>",
		bad:      "<TOOLCALL>[]</TOOLCALL>",
		call:     jsonCall(`<TOOLCALL>[{"name": "%s", "arguments": %s, "id": "1"}, {"name": "x"}]</TOOLCALL>`),
	},
	"granite": {
		template: "<|tool_call|>" + think,
		bad:      "<|tool_call|>[{}]",
		call:     jsonCall(`<|tool_call|>[{"arguments": %[2]s, "name": "%[1]s"}]`),
	},
	"apriel": {
		template: "<tool_calls>[",
		bad:      "<tool_calls>[weather]",
		call:     jsonCall(`<tool_calls>[{"name": "%s", "arguments": %s, "id": "1"}]</tool_calls>`),
	},
	"hermes": {
		template: "<tool_call>" + think,
		bad:      "<tool_call>{weather}",
		call:     jsonCall("<tool_call>\n{\"name\": \"%s\", \"arguments\": %s}\n</tool_call>\n"),
	},
	"llama3": {
		template: "<|python_tag|>",
		bad:      "<|python_tag|>print(1)",
		call:     jsonCall(`<|python_tag|>{"name": "%s", "parameters": %s}`),
	},
}

// jsonCall is a call of a format with a name and JSON.
func jsonCall(format string) func(string, []argument) string {
	return func(name string, a []argument) string { return fmt.Sprintf(format, name, object(a)) }
}

// gemmaCall is a call with bare keys, and strings between delimiters.
func gemmaCall(open, closing, delimiter string) func(string, []argument) string {
	return func(name string, a []argument) string {
		var parts []string
		for _, one := range a {
			parts = append(parts, one.name+":"+gemmaOf(one.value, delimiter))
		}
		return open + "call:" + name + "{" + strings.Join(parts, ",") + "}" + closing
	}
}

func gemmaOf(v any, delimiter string) string {
	var parts []string
	switch v := v.(type) {
	case string:
		return delimiter + v + delimiter
	case []any:
		for _, one := range v {
			parts = append(parts, gemmaOf(one, delimiter))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case map[string]any:
		for k, one := range v {
			parts = append(parts, k+":"+gemmaOf(one, delimiter))
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
	var parts []string
	for _, one := range a {
		parts = append(parts, jsonOf(one.name)+": "+jsonOf(one.value))
	}
	return "{" + strings.Join(parts, ", ") + "}"
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
