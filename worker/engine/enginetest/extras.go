package enginetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// shareable is how many tokens of a prompt are sure to fill blocks of any engine.
const shareable = 400

// reuses: the same long prompt is not computed twice.
func (r *rig) reuses() {
	p := r.long(shareable)
	cold := r.answer(r.request(p, 4)).choices[0].usage
	if cold.Cached > cold.Prompt/2 {
		r.Errorf("of a new prompt of %d tokens %d were cached", cold.Prompt, cold.Cached)
	}
	if warm := r.answer(r.request(p, 4)).choices[0].usage; warm.Cached < 1 {
		r.no("not told")
	}
}

// salts: requests of different salts share nothing.
func (r *rig) salts() {
	p := r.long(shareable)
	salted := func(salt string) (engine.Usage, bool) {
		out, err := r.try(r.request(p, 4, func(q *engine.Request) { q.CacheSalt = salt }))
		if err != nil {
			if r.offered(err, "cache_salt") {
				r.Error(err)
			}
			return engine.Usage{}, false
		}
		return out.choices[0].usage, true
	}
	if _, ok := salted("one"); !ok {
		return
	}
	if u, ok := salted("two"); ok && u.Cached > 0 {
		r.Errorf("%d tokens were found under another salt", u.Cached)
	}
}

// minimum: a choice makes so many tokens before it may end.
func (r *rig) minimum() {
	out, err := r.try(r.request(r.chat(), 120, func(q *engine.Request) { q.MinTokens = 100 }))
	if err != nil {
		if r.offered(err, "min_tokens") {
			r.Error(err)
		}
		return
	}
	if n := out.choices[0].usage.Completion; n < 100 {
		r.Errorf("with min_tokens 100 it made %d", n)
	}
}

// ignoresEnd: it goes on to max_tokens, whatever the model says.
func (r *rig) ignoresEnd() {
	out, err := r.try(r.request(r.chat(), 120, func(q *engine.Request) { q.IgnoreEOS = true }))
	if err != nil {
		if r.offered(err, "ignore_eos") {
			r.Error(err)
		}
		return
	}
	if c := out.choices[0]; c.usage.Completion != 120 || c.finish != engine.FinishLength {
		r.Errorf("it made %d of 120 tokens and ended by %q", c.usage.Completion, c.finish)
	}
}

// bias: a token of bias 100 is what comes, and one of -100 is what doesn't.
func (r *rig) bias() {
	all, ok := r.tokensOf(r.h.Long)
	if !ok {
		return
	}
	token := all[len(all)-1]
	biased := func(v float32) string {
		return r.answer(r.request(r.text(), 6, func(q *engine.Request) {
			q.Sampling.LogitBias = map[engine.Token]float32{token: v}
		})).choices[0].text
	}
	piece := r.h.Long
	if len(all) > 1 {
		piece = piece[len(piece)-1:]
	}
	if text := biased(100); strings.Count(text, piece) < 6 {
		r.Errorf("with a bias of 100 for %q the text is %q", piece, text)
	}
	if text := biased(-100); len(all) == 1 && strings.Contains(text, piece) {
		r.Errorf("with a bias of -100 for %q the text is %q", piece, text)
	}
}

// logprobs: one for each token, none above 0, the greedy token among the most probable, best first.
func (r *rig) logprobs() {
	if !r.e.Info().Caps.Logprobs {
		r.no("not claimed")
		return
	}
	for name, p := range map[string]engine.Prompt{"text": r.text(), "chat": r.chat()} {
		c := r.answer(r.request(p, 8, func(q *engine.Request) { q.Logprobs, q.TopLogprobs = true, 3 })).choices[0]
		if len(c.logprobs) == 0 || len(c.logprobs) > c.usage.Completion || len(c.logprobs) < c.usage.Completion-1 {
			r.Errorf("%s: %d log probabilities for %d tokens", name, len(c.logprobs), c.usage.Completion)
		}
		var joined []byte
		for i, l := range c.logprobs {
			joined = append(joined, l.Bytes...)
			if !(l.Logprob <= 0) || len(l.Top) != 3 || l.Top[0].Logprob < l.Top[2].Logprob || l.Top[0].Top != nil {
				r.Errorf("%s: token %d has %v and the best %v", name, i, l.Logprob, l.Top)
				continue
			}
			if math.Abs(l.Top[0].Logprob-l.Logprob) > 0.05 {
				r.Errorf("%s: token %d has %v; a more probable one has %v", name, i, l.Logprob, l.Top[0].Logprob)
			}
		}
		if !bytes.Contains(joined, []byte(strings.TrimSpace(c.text))) {
			r.Errorf("%s: the tokens' bytes are %q; the text is %q", name, joined, c.text)
		}
	}
	if c := r.answer(r.request(r.text(), 4)).choices[0]; len(c.logprobs) > 0 {
		r.Error("log probabilities came unasked")
	}
}

// object: the output is a JSON object, or as much of one as max_tokens allow.
func (r *rig) object() {
	if !r.e.Info().Caps.JSONObject {
		r.no("not claimed")
		return
	}
	c := r.answer(r.request(r.jsonPrompt(), 160, func(q *engine.Request) { q.Format = engine.FormatJSONObject })).choices[0]
	if !strings.HasPrefix(strings.TrimSpace(c.text), "{") {
		r.Errorf("the output is %q", c.text)
	}
	r.validJSON(c)
}

// schema: the output is what a JSON schema describes.
func (r *rig) schema() {
	const schema = `{"name":"answer","strict":true,"schema":{"type":"object","properties":{"ok":{"type":"boolean"},` +
		`"word":{"type":"string","maxLength":12}},"required":["ok","word"],"additionalProperties":false}}`
	out, err := r.try(r.request(r.jsonPrompt(), 160, func(q *engine.Request) {
		q.Format, q.JSONSchema = engine.FormatJSONSchema, []byte(schema)
	}))
	if err != nil {
		if r.offered(err, "response_format") {
			r.Error(err)
		}
		return
	}
	c := out.choices[0]
	r.validJSON(c)
	var got struct {
		OK   *bool
		Word *string
	}
	if c.finish == engine.FinishStop && (json.Unmarshal([]byte(c.text), &got) != nil || got.OK == nil || got.Word == nil) {
		r.Errorf("the schema wants ok and word; the output is %q", c.text)
	}
}

func (r *rig) jsonPrompt() engine.Prompt {
	if r.h.JSONChat == "" {
		r.Fatal("the harness has no chat that asks for JSON")
	}
	return engine.Prompt{Chat: &engine.Chat{Messages: []byte(r.h.JSONChat)}}
}

// validJSON: a choice that ended by itself is JSON; one that was cut is the beginning of JSON.
func (r *rig) validJSON(c choice) {
	if c.finish == engine.FinishStop && !json.Valid([]byte(c.text)) {
		r.Errorf("it ended by itself, and is no JSON: %q", c.text)
		return
	}
	d := json.NewDecoder(strings.NewReader(c.text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return
		} else if err != nil {
			r.Errorf("it is not even the beginning of JSON (%v): %q", err, c.text)
			return
		}
	}
}

// tools: calls come with an id, a name of the list and arguments that are JSON; without tools the same chat is text.
func (r *rig) tools() {
	if !r.e.Info().Caps.Tools {
		r.no("not claimed")
		return
	}
	if r.h.ToolChat == "" {
		r.Fatal("the harness has no chat that calls tools")
	}
	p := engine.Prompt{Chat: &engine.Chat{Messages: []byte(r.h.ToolChat), Tools: []byte(r.h.Tools)}}
	c := r.answer(r.request(p, 160)).choices[0]
	if len(c.calls) == 0 || c.finish != engine.FinishToolCalls {
		r.Fatalf("it made %d calls and ended by %q: %q", len(c.calls), c.finish, c.text)
	}
	ids := map[string]bool{}
	for _, call := range c.calls {
		if !strings.Contains(r.h.Tools, `"`+call.Name+`"`) || !json.Valid([]byte(call.Arguments)) || ids[call.ID] {
			r.Errorf("a call is %+v", call)
		}
		ids[call.ID] = true
	}
	p.Chat.Tools = nil
	if c := r.answer(r.request(p, 40)).choices[0]; len(c.calls) > 0 || c.finish == engine.FinishToolCalls {
		r.Errorf("without tools it made %d calls and ended by %q", len(c.calls), c.finish)
	}
}

// adapters: one changes the output of requests that name it, and of no others, until it is unloaded.
func (r *rig) adapters() {
	if !r.e.Info().Caps.Adapters {
		if err := r.e.LoadAdapter(r.within(), engine.Adapter{Name: "a", Path: "/nowhere"}); !isInvalid(err) {
			r.Errorf("an adapter that is not claimed gave %v", err)
		}
		r.no("not claimed")
		return
	}
	a := r.h.Adapter
	if a.Name == "" {
		r.Fatal("the harness has no adapter")
	}
	if err := r.e.LoadAdapter(r.within(), engine.Adapter{Name: "broken", Path: a.Path + "/nothing-here"}); err == nil {
		r.Error("an adapter that is not there was loaded")
	}
	const n = 24
	plain := r.answer(r.request(r.text(), n)).choices[0].text
	for range 2 { // the second time replaces it
		if err := r.e.LoadAdapter(r.within(), a); err != nil {
			r.Fatal(err)
		}
	}
	with := func(q *engine.Request) { q.Adapter = a.Name }
	adapted := r.answer(r.request(r.text(), n, with)).choices[0].text
	if shared(plain, adapted) == len(plain) {
		r.Errorf("with the adapter and without the text is %q", plain)
	}
	if again := r.answer(r.request(r.text(), n)).choices[0].text; shared(plain, again)*4 < len(plain) {
		r.Errorf("a request without the adapter gave %q before and %q after it was loaded", plain, again)
	}
	if err := r.e.UnloadAdapter(r.within(), a.Name); err != nil {
		r.Fatal(err)
	}
	if _, err := r.try(r.request(r.text(), n, with)); !isInvalid(err) {
		r.Errorf("a request for an adapter that was unloaded gave %v", err)
	}
	if err := r.e.UnloadAdapter(r.within(), a.Name); !isInvalid(err) {
		r.Errorf("unloading it twice gave %v", err)
	}
}

func isInvalid(err error) bool {
	var invalid *engine.InvalidError
	return errors.As(err, &invalid)
}

// embeddings: a vector of unit length for each input, equal for equal inputs.
func (r *rig) embeddings() {
	embed := func(inputs ...engine.Prompt) (*engine.Embeddings, error) {
		return r.e.Embed(r.within(), &engine.EmbedRequest{ID: "embed", Inputs: inputs})
	}
	if !r.e.Info().Caps.Embeddings {
		if _, err := embed(r.text()); !isInvalid(err) {
			r.Errorf("embeddings that are not claimed gave %v", err)
		}
		r.no("not claimed")
		return
	}
	other := engine.Prompt{Text: "Snow" + r.h.Long}
	got, err := embed(r.text(), other, r.text())
	if err != nil {
		r.Fatal(err)
	}
	if len(got.Vectors) != 3 || got.PromptTokens < 3 {
		r.Fatalf("3 inputs gave %d vectors and %d tokens", len(got.Vectors), got.PromptTokens)
	}
	for i, v := range got.Vectors {
		if n := dot(v, v); math.Abs(n-1) > 1e-3 || len(v) != len(got.Vectors[0]) {
			r.Errorf("vector %d has %d numbers and the length %v", i, len(v), math.Sqrt(n))
		}
	}
	if same, different := dot(got.Vectors[0], got.Vectors[2]), dot(got.Vectors[0], got.Vectors[1]); same < 0.999 || different >= same {
		r.Errorf("equal texts have the similarity %v, different ones %v", same, different)
	}
	if _, err := embed(); !isInvalid(err) {
		r.Errorf("no inputs gave %v", err)
	}
}

func dot(a, b []float32) float64 {
	sum := 0.0
	for i := range min(len(a), len(b)) {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}
