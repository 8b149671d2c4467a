package llamacpp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ardanlabs/jinja"
)

// history is how a template wants the calls of tools that a conversation brings back. OpenAI says how clients send them:
// arguments as the text of JSON, a content that may be missing, and ids of any kind.
type history struct {
	// text: arguments stay text, because the template joins them to other text. Else they are objects.
	text bool
	// content that a message with calls and without a text must have; nil: any that says nothing.
	content *jinja.Value
	ids     idForm
	// single: a message has one call, followed by its result. Others the template refuses, or shows only the first of.
	single bool
}

// idForm is a form of a call's id.
type idForm int

const (
	// anyID is what the client sent.
	anyID idForm = iota
	// shortID is nine letters and digits.
	shortID
	// countedID is functions.name:n, where n counts the calls of the conversation from 0.
	countedID
	// countedEachID is the same, but n counts those of a message. The template writes the ids of calls itself, and only
	// those of results as they are given.
	countedEachID
)

// The calls of the conversations that are tried. The long id is as the scheduler makes them.
const (
	triedKey, triedValue = "k" + needle, "v" + needle
	triedArguments       = `{"` + triedKey + `": "` + triedValue + `"}`
	secondTried          = "second" + needle // the name of another call
	longTriedID          = "call_0123456789abcdef01234567"
	shortTriedID         = "call00001"
)

// learn tries how the template wants calls. What no trial shows is left as clients send it.
func (t *template) learn() history {
	var h history
	object, text := jinja.NewDict(), jinja.NewString(triedArguments)
	object.AsDict().Set(triedKey, jinja.NewString(triedValue))
	void, none := jinja.NewString(""), jinja.None()
	tried := func(arguments, content jinja.Value, id string) bool {
		out, err := t.trial(t.conversation(arguments, content, id), jinja.None())
		switch {
		case err != nil:
			return false
		case arguments.IsString():
			return strings.Contains(out, triedArguments)
		}
		return strings.Contains(out, triedValue) && !strings.Contains(out, "'"+triedKey+"'") // not JSON, but as Python prints it
	}
	for _, arguments := range []jinja.Value{object, text} {
		for _, id := range []string{longTriedID, shortTriedID} {
			asNone, asVoid := tried(arguments, none, id), tried(arguments, void, id)
			if !asNone && !asVoid {
				continue
			}
			h.text = arguments.IsString()
			content := void
			switch {
			case !asVoid:
				content, h.content = none, &none
			case !asNone:
				h.content = &void
			}
			if id == shortTriedID {
				h.ids = shortID
			}
			second := id[:len(id)-1] + "2"
			out, err := t.trial(t.conversation(arguments, content, id, second), jinja.None())
			h.single = err != nil || !strings.Contains(out, secondTried)
			return t.counted(h)
		}
	}
	return t.counted(h)
}

// counted adds to h that the model counts its calls, if it does.
func (t *template) counted(h history) history {
	if t.dialect.Name() != "kimi-k2" {
		return h
	}
	h.ids = countedID
	arguments, content := jinja.NewDict(), jinja.NewString("")
	messages := t.conversation(arguments, content, longTriedID).AsList().Items
	out, err := t.trial(jinja.NewList(append(messages[:len(messages):len(messages)], messages[1:]...)), jinja.None())
	if err == nil && strings.Count(out, "functions."+needle+":0<|tool_call_argument_begin|>") > 1 {
		h.ids = countedEachID
	}
	return h
}

// conversation is one in which as many tools were called at once as there are ids.
func (t *template) conversation(arguments, content jinja.Value, ids ...string) jinja.Value {
	text := jinja.NewString("x")
	asked := text
	if t.parts {
		asked = jinja.NewList([]jinja.Value{dictOf("type", jinja.NewString("text"), "text", text)})
	}
	var calls, results []jinja.Value
	for i, id := range ids {
		function := dictOf("name", jinja.NewString([]string{needle, secondTried}[i]), "arguments", arguments)
		calls = append(calls, dictOf("id", jinja.NewString(id), "type", jinja.NewString("function"), "function", function))
		results = append(results, dictOf("role", jinja.NewString("tool"), "content", text, "tool_call_id", jinja.NewString(id)))
	}
	user := dictOf("role", jinja.NewString("user"), "content", asked)
	caller := dictOf("role", jinja.NewString("assistant"), "content", content, "tool_calls", jinja.NewList(calls))
	answer := dictOf("role", jinja.NewString("assistant"), "content", text)
	return jinja.NewList(slices.Concat([]jinja.Value{user, caller}, results, []jinja.Value{answer, user}))
}

// dictOf makes a dict of keys, each followed by its value.
func dictOf(members ...any) jinja.Value {
	out := jinja.NewDict()
	for i := 0; i+1 < len(members); i += 2 {
		out.AsDict().Set(members[i].(string), members[i+1].(jinja.Value))
	}
	return out
}

// apply returns messages, which are objects, with their calls as the template wants them. It changes the objects.
func (h *history) apply(messages []jinja.Value) []jinja.Value {
	if h.single {
		messages = spread(messages)
	}
	ids := counter{form: h.ids}
	if h.ids == countedID && counts(messages) {
		ids.form = anyID
	}
	for _, m := range messages {
		message := m.AsDict()
		ids.result(message)
		calls := callsOf(message)
		if len(calls) == 0 {
			continue
		}
		if c, _ := message.Get("content"); h.content != nil && (!c.IsString() && !c.IsList() || c.IsString() && c.AsString() == "") {
			message.Set("content", *h.content)
		}
		ids.begin()
		for _, call := range calls {
			f, _ := call.Get("function")
			if !f.IsDict() {
				continue
			}
			ids.call(call, f.AsDict())
			h.arguments(f.AsDict())
		}
	}
	return messages
}

// spread gives each call a message of its own, before its results. Those that belong to no call follow the last.
func spread(messages []jinja.Value) (out []jinja.Value) {
	for i := 0; i < len(messages); i++ {
		message := messages[i].AsDict()
		calls, _ := message.Get("tool_calls")
		out = append(out, messages[i])
		if !calls.IsList() || calls.AsList().Len() < 2 {
			continue
		}
		end := i + 1
		for end < len(messages) && textOf(messages[end].AsDict(), "role") == "tool" {
			end++
		}
		byCall, rest := deal(calls.AsList().Items, messages[i+1:end])
		for n, call := range calls.AsList().Items {
			one := jinja.NewList([]jinja.Value{call})
			if n == 0 {
				message.Set("tool_calls", one)
			} else {
				out = append(out, dictOf("role", jinja.NewString("assistant"), "content", jinja.None(), "tool_calls", one))
			}
			out = append(out, byCall[n]...)
		}
		out = append(out, rest...)
		i = end - 1
	}
	return out
}

// deal returns the results of each of calls, and those that belong to none. A result without an id belongs to the next call
// that none names.
func deal(calls, results []jinja.Value) (byCall [][]jinja.Value, rest []jinja.Value) {
	byCall = make([][]jinja.Value, len(calls))
	place := make(map[string]int, len(calls)) // of the first call of that id
	for n, call := range slices.Backward(calls) {
		if call.IsDict() {
			place[textOf(call.AsDict(), "id")] = n
		}
	}
	var unnamed []jinja.Value
	for _, r := range results {
		id := textOf(r.AsDict(), "tool_call_id")
		n, known := place[id]
		switch {
		case id == "":
			unnamed = append(unnamed, r)
		case known:
			byCall[n] = append(byCall[n], r)
		default:
			rest = append(rest, r)
		}
	}
	for n := range byCall {
		if len(unnamed) > 0 && len(byCall[n]) == 0 {
			byCall[n], unnamed = unnamed[:1:1], unnamed[1:]
		}
	}
	return byCall, append(rest, unnamed...)
}

// arguments makes a function's arguments text or an object. What is no JSON of an object stays as it is.
func (h *history) arguments(function *jinja.Dict) {
	a, found := function.Get("arguments")
	if found && a.IsString() && strings.TrimSpace(a.AsString()) == "" {
		a = jinja.NewString("{}") // how some clients write that there are none
		function.Set("arguments", a)
	}
	switch {
	case h.text && a.IsDict():
		if text, err := jsonText(a); err == nil {
			function.Set("arguments", jinja.NewString(text))
		}
	case !h.text && a.IsString():
		if v, err := parse([]byte(a.AsString())); err == nil && v.IsDict() {
			function.Set("arguments", v)
		}
	}
}

// callsOf returns the calls of a message that are objects.
func callsOf(message *jinja.Dict) (out []*jinja.Dict) {
	calls, _ := message.Get("tool_calls")
	if !calls.IsList() {
		return nil
	}
	for _, call := range calls.AsList().Items {
		if call.IsDict() {
			out = append(out, call.AsDict())
		}
	}
	return out
}

// counts reports whether the id of every call in messages has the form that countedID has.
func counts(messages []jinja.Value) bool {
	for _, m := range messages {
		for _, call := range callsOf(m.AsDict()) {
			f, _ := call.Get("function")
			if !f.IsDict() {
				continue
			}
			n, ok := strings.CutPrefix(textOf(call, "id"), "functions."+textOf(f.AsDict(), "name")+":")
			if _, err := strconv.ParseUint(n, 10, 31); !ok || err != nil {
				return false
			}
		}
	}
	return true
}

// counter gives calls and their results ids of a form.
type counter struct {
	form  idForm
	next  int
	given map[string]string // by the id that the client gave last
	// waiting are the ids of the last message's calls that have no result, in their order; answered are those of them that
	// have one.
	waiting  []string
	answered map[string]bool
}

// begin begins a message.
func (c *counter) begin() {
	if c.form == countedEachID {
		c.next = 0
	}
	c.waiting, c.answered = nil, map[string]bool{}
}

func (c *counter) call(call, function *jinja.Dict) {
	old, id := textOf(call, "id"), ""
	switch c.form {
	case anyID:
		return
	case shortID:
		id = short(old, c.next)
	case countedID, countedEachID:
		id = fmt.Sprintf("functions.%s:%d", textOf(function, "name"), c.next)
	}
	c.next++
	if c.given == nil {
		c.given = map[string]string{}
	}
	if old != "" {
		c.given[old] = id
	}
	c.waiting = append(c.waiting, id)
	call.Set("id", jinja.NewString(id))
}

// result gives the result of a call the id of that call. One that has no id belongs to the next call without a result.
func (c *counter) result(message *jinja.Dict) {
	old := textOf(message, "tool_call_id")
	id, known := c.given[old]
	for !known && old == "" && textOf(message, "role") == "tool" && len(c.waiting) > 0 {
		id, c.waiting = c.waiting[0], c.waiting[1:]
		known = !c.answered[id]
	}
	if known {
		c.answered[id] = true
		message.Set("tool_call_id", jinja.NewString(id))
	}
}

// short returns id if it has the form of shortID, and else one of that form that is made of it, or of the place of a call
// that has none.
func short(id string, place int) string {
	const length = len(shortTriedID)
	if len(id) == length && strings.Trim(id, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == "" {
		return id
	}
	if id == "" {
		id = strconv.Itoa(place)
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])[:length]
}

// textOf returns a member that is text, or "".
func textOf(d *jinja.Dict, key string) string {
	if v, _ := d.Get(key); v.IsString() {
		return v.AsString()
	}
	return ""
}

// jsonText writes a value as templates do.
func jsonText(v jinja.Value) (string, error) {
	t, err := toJSON()
	if err != nil {
		return "", err
	}
	return t.RenderValues(map[string]jinja.Value{"value": v})
}

var toJSON = sync.OnceValues(func() (*jinja.Template, error) { return jinja.Compile("{{ value | tojson }}") })
