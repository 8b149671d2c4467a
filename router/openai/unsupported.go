package openai

import (
	"bytes"
	"slices"
	"strconv"
)

// only is a parameter that would change the answer and isn't honoured. The values listed here ask for nothing, and pass.
type only []string

// unsupported holds these parameters: OpenAI's first, then those of other servers that clients send along.
var unsupported = map[string]only{
	"best_of":             {"1"},
	"parallel_tool_calls": {"true"},
	"functions":           {"[]"},
	"function_call":       {`"none"`, `"auto"`},
	"modalities":          {`["text"]`, "[]"},
	"audio":               {},
	"prediction":          {},
	"web_search_options":  {},
	"reasoning_effort":    {`"none"`},
	"verbosity":           {`"medium"`},

	"stop_token_ids":       {"[]"},
	"chat_template":        {},
	"chat_template_kwargs": {"{}"},
	"structured_outputs":   {"{}"},
	"guided_json":          {},
	"guided_regex":         {},
	"guided_choice":        {},
	"guided_grammar":       {},
}

// judge refuses a value that asks for something.
func (o only) judge(name string, raw []byte) *Error {
	if slices.ContainsFunc(o, func(want string) bool { return same(raw, want) }) {
		return nil
	}
	if len(o) == 0 {
		return invalid(CodeUnsupportedParameter, name, "%s is not supported; leave it out.", name)
	}
	return invalid(CodeUnsupportedParameter, name, "%s is supported only as %s; leave it out.", name, o[0])
}

// same reports whether raw says what want, which has no white space, says.
func same(raw []byte, want string) bool {
	if len(raw) > 64 {
		return false
	}
	if f, err := strconv.ParseFloat(want, 64); err == nil {
		g, err := strconv.ParseFloat(string(raw), 64)
		return err == nil && f == g
	}
	return string(bytes.Join(bytes.Fields(raw), nil)) == want
}
