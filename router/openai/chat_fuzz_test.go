package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// opinion is a body as encoding/json reads it.
type opinion map[string]json.RawMessage

// read decodes a parameter that is there and not null.
func read[T any](o opinion, name string) *T {
	raw, there := o[name]
	if !there || string(raw) == "null" {
		return nil
	}
	v := new(T)
	if json.Unmarshal(raw, v) != nil {
		return nil
	}
	return v
}

// or is what a parameter says, or otherwise.
func or[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

// request is what a body asks for that is known to be accepted. Leading is left out.
func (o opinion) request() ChatRequest {
	r := ChatRequest{
		Model: or(read[string](o, "model"), ""), Messages: o["messages"],
		Stream:    or(read[bool](o, "stream"), false),
		MaxTokens: or(read[uint32](o, "max_completion_tokens"), or(read[uint32](o, "max_tokens"), 0)),
		MinTokens: or(read[uint32](o, "min_tokens"), 0), IgnoreEOS: or(read[bool](o, "ignore_eos"), false),
		Choices: or(read[uint32](o, "n"), 1), Logprobs: or(read[bool](o, "logprobs"), false), TopLogprobs: or(read[uint32](o, "top_logprobs"), 0),
		Sampling: Sampling{
			Temperature: read[float64](o, "temperature"), TopP: read[float64](o, "top_p"), MinP: read[float64](o, "min_p"), Seed: read[int64](o, "seed"),
			PresencePenalty: read[float64](o, "presence_penalty"), FrequencyPenalty: read[float64](o, "frequency_penalty"),
			RepetitionPenalty: read[float64](o, "repetition_penalty"),
		},
		Conversation: or(read[string](o, "conversation"), ""), PreviousResponseID: or(read[string](o, "previous_response_id"), ""),
		PromptCacheKey: or(read[string](o, "prompt_cache_key"), ""), User: or(read[string](o, "user"), ""),
	}
	if object := read[opinion](o, "stream_options"); object != nil {
		r.IncludeUsage = or(read[bool](*object, "include_usage"), false)
	}
	if object := read[opinion](o, "conversation"); object != nil {
		r.Conversation = or(read[string](*object, "id"), "")
	}
	if k := read[int64](o, "top_k"); k != nil {
		r.TopK = new(uint32(max(*k, 0)))
	}
	if list := read[[]json.RawMessage](o, "tools"); list != nil && len(*list) > 0 && or(read[string](o, "tool_choice"), "") != "none" {
		r.Tools = o["tools"]
	}
	if one := read[string](o, "stop"); one != nil {
		r.Stop = []string{*one}
	} else if r.Stop = or(read[[]string](o, "stop"), nil); len(r.Stop) == 0 {
		r.Stop = nil
	}
	if object := read[opinion](o, "response_format"); object != nil {
		switch kind := or(read[string](*object, "type"), ""); kind {
		case "json_schema":
			r.Schema = (*object)["json_schema"]
			fallthrough
		case "json_object":
			r.Format = Format(kind)
		}
	}
	for token, bias := range or(read[map[string]float64](o, "logit_bias"), nil) {
		if r.LogitBias == nil {
			r.LogitBias = map[uint32]float32{}
		}
		n, _ := strconv.ParseUint(token, 10, 31) // what is accepted is a number
		r.LogitBias[uint32(n)] = float32(bias)
	}
	return r
}

// ambiguous says whether a token of logit_bias has two names, such as 5 and 05: which is the last a map doesn't say.
func (o opinion) ambiguous() bool {
	biases := or(read[map[string]float64](o, "logit_bias"), nil)
	tokens := map[uint64]bool{}
	for name := range biases {
		n, _ := strconv.ParseUint(name, 10, 31)
		tokens[n] = true
	}
	return len(tokens) != len(biases)
}

// allocated is how many bytes f takes. Others allocate meanwhile, so the least of a few measurements counts.
func allocated(most uint64, f func()) uint64 {
	least := ^uint64(0)
	var before, after runtime.MemStats
	for range 5 {
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if least = min(least, after.TotalAlloc-before.TotalAlloc); least <= most {
			break
		}
	}
	return least
}

// mostAllocated is how many bytes reading a body may take: so much for each byte of it, and some for every request.
func mostAllocated(body []byte) uint64 { return 16*uint64(len(body)) + 4<<10 }

// stricter are the reasons for which JSON that is sound is refused as JSON.
var stricter = []string{"UTF-8", "surrogate", "NUL", "nesting", "values"}

// FuzzChatRequest: whatever comes, nothing panics or takes much more memory than the body has. What is accepted says the
// same for encoding/json, and its messages and tools are the client's own bytes; what is refused as JSON is none for
// encoding/json either, or is refused for one of the stated reasons.
func FuzzChatRequest(f *testing.F) {
	for _, c := range refusals {
		if len(c.body) < 1000 {
			f.Add([]byte(c.body))
		}
	}
	for _, c := range acceptances {
		f.Add([]byte(c.body))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		most := mostAllocated(b)
		if n := allocated(most, func() { _, _ = ParseChat(b) }); n > most {
			t.Fatalf("%d bytes are taken for the %d of %q", n, len(b), b)
		}
		req, err := ParseChat(b)
		var e *Error
		if err == nil {
			if diff := disagreement(b, req); diff != "" {
				t.Fatalf("%s, of %q", diff, b)
			}
			return
		}
		if !errors.As(err, &e) {
			t.Fatalf("an error that is no *Error: %v", err)
		}
		if e.Code == CodeInvalidJSON && json.Valid(b) && !slices.ContainsFunc(stricter, func(why string) bool { return strings.Contains(e.Message, why) }) {
			t.Fatalf("%q is JSON, but: %s", b, e.Message)
		}
		if !json.Valid(AppendError(nil, e)) {
			t.Fatalf("error object of %q is not JSON: %s", b, AppendError(nil, e))
		}
	})
}

// disagreement says how what was read of a body differs from what encoding/json reads, or "".
func disagreement(body []byte, req *ChatRequest) string {
	var o opinion
	if err := json.Unmarshal(body, &o); err != nil {
		return "it is no JSON: " + err.Error()
	}
	if req.Model == "" || len(req.Leading) == 0 || !bytes.Contains(body, req.Messages) || !bytes.Contains(body, req.Tools) {
		return "it has no model, or messages or tools that are not the client's"
	}
	if o.ambiguous() {
		return ""
	}
	got, want := *req, o.request()
	got.Leading = nil
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if a, b := g.Field(i), w.Field(i); !(a.Kind() == reflect.Slice && a.Len()+b.Len() == 0) && !reflect.DeepEqual(a.Interface(), b.Interface()) {
			if raw, is := b.Interface().(json.RawMessage); is && bytes.Equal(raw, a.Bytes()) {
				continue
			}
			return fmt.Sprintf("%s is %+v, not %+v", g.Type().Field(i).Name, a.Interface(), b.Interface())
		}
	}
	return ""
}

// Bodies that ask for as much memory as they can.
func TestABodyTakesNoMoreThan16TimesItsBytes(t *testing.T) {
	for name, b := range map[string]string{
		"many messages":          conversation("[" + strings.Repeat(`{"role":"tool","content":""},`, 9_000) + hello[1:]),
		"many parts":             conversation(`[{"role":"user","content":[` + strings.Repeat(`{"type":"text","text":""},`, 9_000) + `{"type":"text","text":""}]}]`),
		"many objects":           body(`"x":[` + strings.Repeat("{},", 50_000) + `0]`),
		"many arrays":            body(`"x":[` + strings.Repeat("[],", 50_000) + `0]`),
		"names with escapes":     body(`"x":{` + strings.Repeat(`"\n":0,`, 50_000) + `"a":0}`),
		"parameters":             body(strings.Repeat(`"\u0001":0,`, 50_000) + `"a":0`),
		"members of a message":   conversation(`[{"role":"user","content":"a",` + strings.Repeat(`"\n":0,`, 50_000) + `"a":0}]`),
		"many tools":             body(`"tools":[` + strings.Repeat(oneTool+",", MaxTools-1) + oneTool + `]`),
		"biases":                 body(`"logit_bias":{` + strings.Repeat(`"1":0,`, 9_000) + `"2":0}`),
		"a long text of escapes": body(`"user":"` + strings.Repeat(`\u00e9`, 50_000) + `"`),
	} {
		most := mostAllocated([]byte(b))
		if n := allocated(most, func() { _, _ = ParseChat([]byte(b)) }); n > most+uint64(len(b)) { // the copy of b is ours
			t.Errorf("%s: %d bytes for %d, %.1f times", name, n, len(b), float64(n)/float64(len(b)))
		}
	}
}
