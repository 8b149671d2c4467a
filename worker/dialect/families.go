package dialect

import "strings"

// family is a family of models that write calls alike.
type family struct {
	name string
	// Of one of signs all must be in a template of the family. The first family that fits counts.
	signs [][]string
	// markup lists the texts of the tokens that its calls are made of, besides those of reasoning.
	markup []string
	// stops lists the texts of the tokens with which a model waits for the results of its calls.
	stops []string
	calls func(t tools) calls
	// within: a call may begin within reasoning, which it ends. These models forget to end it.
	within bool
	// bare: a call of a tool may begin by it without a marker, where nothing was written before; "": none may.
	bare string
	// channels: messages have headers, which mark reasoning and calls both.
	channels bool
}

// reasonings are the marks of reasoning. A template that has the second of a pair uses it.
var reasonings = []marks{
	{"<think>", "</think>"},
	{"[THINK]", "[/THINK]"},
	{"<seed:think>", "</seed:think>"},
	{"<mm:think>", "</mm:think>"},
	{"<|channel>thought", "<channel|>"},
}

// foreign are signs of models whose calls none of families writes, though their templates have its signs.
var foreign = family{signs: [][]string{
	{"]<]minimax[>["}, // MiniMax M3
	{"<|python_tag|>", "'<function='", "'</function>'"}, // Functionary 3.1
}}

// Detect recognises a dialect by the text of a chat template. Whether a prompt ends within reasoning After sees.
func Detect(template string) Dialect {
	var d Dialect
	strange := foreign.has(template)
	for i := range families {
		if !strange && families[i].has(template) {
			d.family = &families[i]
			break
		}
	}
	if d.family != nil && d.family.channels {
		return d
	}
	for _, m := range reasonings {
		if strings.Contains(template, m.closing) {
			d.think = m
			break
		}
	}
	return d
}

func (f *family) has(template string) bool {
	for _, all := range f.signs {
		missing := false
		for _, sign := range all {
			missing = missing || !strings.Contains(template, sign)
		}
		if !missing {
			return true
		}
	}
	return false
}

// families are in an order in which one that another's signs occur in comes first.
var families = []family{
	{
		name:     "harmony", // gpt-oss
		signs:    [][]string{{"<|channel|>", "<|message|>"}},
		markup:   []string{"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"},
		channels: true,
	},
	{
		name:  "kimi-k2",
		signs: [][]string{{"<|tool_calls_section_begin|>"}, {"tool_declare<|im_middle|>"}},
		markup: []string{"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
			"<|tool_call_end|>", "<|tool_calls_section_end|>"},
		within: true,
		calls: func(tools) calls {
			return &headed{section: "<|tool_calls_section_begin|>", begin: "<|tool_call_begin|>", name: kimi,
				tail: []string{"<|tool_call_end|>", "<|tool_calls_section_end|>"}}
		},
	},
	{
		name:  "deepseek", // R1, V3, V3.1
		signs: [][]string{{"<｜tool▁call▁begin｜>"}},
		markup: []string{"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
			"<｜tool▁calls▁end｜>"},
		calls: func(tools) calls {
			return &headed{section: "<｜tool▁calls▁begin｜>", begin: "<｜tool▁call▁begin｜>", name: deepseek,
				tail: []string{"```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}}
		},
	},
	{
		name:   "deepseek-dsml", // V3.2, V4
		signs:  [][]string{{"｜DSML｜"}},
		markup: []string{"｜DSML｜"},
		calls: func(t tools) calls {
			return &tagged{tools: t, typed: true,
				open:    []string{"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"},
				closing: []string{"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
				name:    `<｜DSML｜invoke name="`, named: `">`, end: "</｜DSML｜invoke>",
				key: `<｜DSML｜parameter name="`, keyed: `" string="`, valued: "</｜DSML｜parameter>"}
		},
	},
	{
		name:   "minimax", // M2
		signs:  [][]string{{"<minimax:tool_call>"}},
		markup: []string{"<minimax:tool_call>", "</minimax:tool_call>"},
		calls: func(t tools) calls {
			return &tagged{tools: t,
				open: []string{"<minimax:tool_call>"}, closing: []string{"</minimax:tool_call>"},
				name: `<invoke name="`, named: `">`, end: "</invoke>",
				key: `<parameter name="`, keyed: `">`, valued: "</parameter>"}
		},
	},
	{
		name:   "glm", // 4.5 and later
		signs:  [][]string{{"<arg_key>"}},
		markup: []string{"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
		calls: func(t tools) calls {
			return &tagged{tools: t,
				open: []string{"<tool_call>"}, closing: []string{"</tool_call>"},
				key: "<arg_key>", keyed: "</arg_key>", value: "<arg_value>", valued: "</arg_value>"}
		},
	},
	{
		name:   "seed",
		signs:  [][]string{{"<seed:tool_call>"}},
		markup: []string{"<seed:tool_call>", "</seed:tool_call>"},
		calls: func(t tools) calls {
			return &tagged{tools: t,
				open: []string{"<seed:tool_call>"}, closing: []string{"</seed:tool_call>"},
				name: "<function=", named: ">", end: "</function>",
				key: "<parameter=", keyed: ">", valued: "</parameter>"}
		},
	},
	{
		name:   "qwen3-coder", // and Qwen3.5, Nemotron 3
		signs:  [][]string{{"<function=", "<parameter="}},
		markup: []string{"<tool_call>", "</tool_call>"},
		within: true,
		calls: func(t tools) calls {
			return &tagged{tools: t, loose: true, lines: true,
				open: []string{"<tool_call>"}, closing: []string{"</tool_call>"},
				name: "<function=", named: ">", end: "</function>",
				key: "<parameter=", keyed: ">", valued: "</parameter>"}
		},
	},
	{
		name:   "mistral",
		signs:  [][]string{{"[TOOL_CALLS]"}},
		markup: []string{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
		calls: func(tools) calls {
			return &mistral{objects{open: []string{"[TOOL_CALLS]"}}}
		},
	},
	{
		name:   "gemma4",
		signs:  [][]string{{"<|tool_call>call:"}},
		markup: []string{"<|tool_call>", "<tool_call|>", `<|"|>`},
		stops:  []string{"<|tool_response>"},
		calls: func(tools) calls {
			return &written{open: "<|tool_call>", closing: "<tool_call|>", before: "call:", brackets: "{}", assign: ":",
				delimiter: `<|"|>`}
		},
	},
	{
		name:   "functiongemma",
		signs:  [][]string{{"<start_function_call>"}},
		markup: []string{"<start_function_call>", "<end_function_call>", "<escape>"},
		stops:  []string{"<start_function_response>"},
		calls: func(tools) calls {
			return &written{open: "<start_function_call>", closing: "<end_function_call>", before: "call:", brackets: "{}",
				assign: ":", delimiter: "<escape>"}
		},
	},
	{
		name:   "lfm2",
		signs:  [][]string{{"<|tool_call_start|>"}, {"<|tool_list_start|>"}, {`"List of tools: ["`}},
		markup: []string{"<|tool_call_start|>", "<|tool_call_end|>"},
		calls: func(tools) calls {
			const closing = "<|tool_call_end|>"
			return &written{open: "<|tool_call_start|>", closing: closing, list: true, brackets: "()", assign: "=",
				objects: &objects{closing: closing}}
		},
	},
	{
		name:   "phi4", // mini
		signs:  [][]string{{"<|/tool_call|>"}, {"<|/tool|>"}, {"functools["}},
		markup: []string{"<|tool_call|>", "<|/tool_call|>"},
		calls: func(tools) calls {
			return &objects{open: []string{"<|tool_call|>", "functools"}, closing: "<|/tool_call|>"}
		},
	},
	{
		name:   "nemotron", // Nano v2, Super v1.5
		signs:  [][]string{{"<TOOLCALL>"}},
		markup: []string{"<TOOLCALL>", "</TOOLCALL>"},
		calls: func(tools) calls {
			return &objects{open: []string{"<TOOLCALL>"}, closing: "</TOOLCALL>"}
		},
	},
	{
		name:   "granite", // 3
		signs:  [][]string{{"<|tool_call|>"}},
		markup: []string{"<|tool_call|>", "<tool_call>"},
		calls: func(tools) calls {
			return &objects{open: []string{"<|tool_call|>", "<tool_call>"}, closing: "</tool_call>"}
		},
	},
	{
		name:   "apriel", // 1.5, 1.6
		signs:  [][]string{{"<tool_calls>["}},
		markup: []string{"<tool_calls>", "</tool_calls>"},
		calls: func(tools) calls {
			return &objects{open: []string{"<tool_calls>"}, closing: "</tool_calls>"}
		},
	},
	{
		name:   "hermes", // and Qwen2.5, Qwen3, SmolLM3, Granite 4
		signs:  [][]string{{"<tool_call>"}},
		markup: []string{"<tool_call>", "</tool_call>"},
		calls: func(tools) calls {
			return &objects{open: []string{"<tool_call>"}, closing: "</tool_call>"}
		},
	},
	{
		name:   "llama3", // 3.1, 3.2, 3.3
		signs:  [][]string{{"<|python_tag|>"}, {"<|start_header_id|>", `"parameters": `}},
		markup: []string{"<|python_tag|>"},
		bare:   "{",
		calls: func(t tools) calls {
			return &objects{open: []string{"<|python_tag|>"}, tools: t}
		},
	},
}
