package dialect

import (
	"encoding/json"
	"strings"
)

// tools are a request's tools: by name, what the parameters may be. nil: there are none.
type tools map[string]map[string]kinds

// kinds is a set of kinds of JSON values. The empty set means that nothing is known.
type kinds uint8

const (
	kindString kinds = 1 << iota
	kindNumber
	kindBoolean
	kindNull
	kindObject
	kindArray
)

// readTools reads OpenAI's array of tools. What it doesn't understand of a schema is unknown.
func readTools(text []byte) tools {
	if empty(text) {
		return nil
	}
	type function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	}
	var list []struct {
		Function function `json:"function"`
	}
	out := tools{}
	if json.Unmarshal(text, &list) != nil {
		return out
	}
	for _, t := range list {
		var s struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		_ = json.Unmarshal(t.Function.Parameters, &s) // no schema is an unknown one
		parameters := map[string]kinds{}
		for name, p := range s.Properties {
			parameters[name] = kindsOf(p)
		}
		out[t.Function.Name] = parameters
	}
	return out
}

// kindsOf returns what a JSON schema allows at its outermost level, by type, anyOf, oneOf and enum.
func kindsOf(schema json.RawMessage) kinds {
	var s struct {
		Type  any               `json:"type"`
		AnyOf []json.RawMessage `json:"anyOf"`
		OneOf []json.RawMessage `json:"oneOf"`
		Enum  []json.RawMessage `json:"enum"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return 0
	}
	var out kinds
	switch t := s.Type.(type) {
	case string:
		return kindNamed(t)
	case []any:
		for _, one := range t {
			name, _ := one.(string)
			out |= kindNamed(name)
		}
		return out
	}
	for _, option := range append(s.AnyOf, s.OneOf...) {
		k := kindsOf(option)
		if k == 0 {
			return 0
		}
		out |= k
	}
	for _, value := range s.Enum {
		out |= kindOf(string(value))
	}
	return out
}

func kindNamed(t string) kinds {
	switch t {
	case "string":
		return kindString
	case "number", "integer":
		return kindNumber
	case "boolean":
		return kindBoolean
	case "null":
		return kindNull
	case "object":
		return kindObject
	case "array":
		return kindArray
	}
	return 0
}

// kindOf returns the kind of a valid JSON value.
func kindOf(value string) kinds {
	switch strings.TrimSpace(value)[0] {
	case '"':
		return kindString
	case 't', 'f':
		return kindBoolean
	case 'n':
		return kindNull
	case '{':
		return kindObject
	case '[':
		return kindArray
	}
	return kindNumber
}

// encode makes JSON of the text of a value: itself where it is JSON of one of kinds but a string, or a Python literal of
// one of them; a string of the text otherwise.
func (k kinds) encode(text string) string {
	v := constant(strings.TrimSpace(text))
	if k&(kindObject|kindArray) != 0 && !json.Valid([]byte(v)) {
		v = compound(v)
	}
	if json.Valid([]byte(v)) {
		if of := kindOf(v); of != kindString && (k == 0 || k&of != 0) {
			return v
		}
	}
	return quote(text)
}

// compound returns the JSON of a Python dict or list, and else text itself.
func compound(text string) string {
	const key = "v"
	if !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
		return text
	}
	l := literal{brackets: []byte{')'}}
	n, out, done := l.read(key+"="+text+")", true)
	out, prefixed := strings.CutPrefix(out, `{"`+key+`":`)
	out, closed := strings.CutSuffix(out, "}")
	if !done || !prefixed || !closed || n != len(key+"="+text+")") {
		return text
	}
	return out
}

// constant returns the JSON of Python's True, False and None, and else word itself.
func constant(word string) string {
	switch word {
	case "True":
		return "true"
	case "False":
		return "false"
	case "None":
		return "null"
	}
	return word
}
