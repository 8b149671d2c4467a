package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// The paths of the protocol.
const (
	chatPath       = "/v1/chat/completions"
	completionPath = "/v1/completions"
	embeddingsPath = "/v1/embeddings"
	modelsPath     = "/v1/models"
)

// body is a request as the server gets it.
type body map[string]any

// target is what a request is translated for.
type target struct {
	kind       Kind
	model      string
	context    int // 0: unknown
	vocab      int // 0: unknown
	tools      bool
	priorities bool
}

// translate returns the path and the body of one choice of r, or an *engine.InvalidError for what the server can't do.
func translate(t target, r *engine.Request, choice int) (string, body, error) {
	s := servers[t.kind]
	b := body{"model": t.model, "stream": true}
	options := map[string]any{"include_usage": true}
	if s.usageWithChunks {
		options["continuous_usage_stats"] = true
	}
	b["stream_options"] = options
	for _, more := range []map[string]any{s.neutral, s.extra} {
		for k, v := range more {
			b[k] = v
		}
	}
	path, err := b.prompt(t, &r.Prompt)
	if err != nil {
		return "", nil, err
	}
	if r.Resume != nil {
		if err := b.proceed(s, r.Resume); err != nil {
			return "", nil, err
		}
	}
	b.length(t, path, r)
	b.sampling(t, r, choice)
	if err := b.format(r); err != nil {
		return "", nil, err
	}
	b.logprobs(s, path, r)
	return path, b, b.fields(t, r)
}

// prompt sets what the output continues.
func (b body) prompt(t target, p *engine.Prompt) (path string, err error) {
	switch {
	case p.Chat != nil:
		messages, err := list("messages", p.Chat.Messages)
		if err != nil {
			return "", err
		}
		if messages == nil {
			return "", invalid("messages", "there are none")
		}
		tools, err := list("tools", p.Chat.Tools)
		if err != nil {
			return "", err
		}
		b["messages"] = messages
		if tools != nil && !t.tools {
			return "", invalid("tools", "this engine, of kind %s, calls none with this model", t.kind)
		}
		if tools != nil {
			b["tools"], b["tool_choice"] = tools, "auto"
		}
		return chatPath, nil
	case p.Tokens != nil:
		if err := checkTokens(t, p.Tokens); err != nil {
			return "", err
		}
		b["prompt"] = p.Tokens
		return completionPath, nil
	case !utf8.ValidString(p.Text):
		return "", invalid("prompt", "the text of %d bytes is not valid UTF-8", len(p.Text))
	case p.Text == "":
		return "", invalid("prompt", "it is empty")
	case t.context > 0 && len(p.Text)/longestToken >= t.context:
		return "", &engine.InvalidError{Field: "prompt", Code: engine.CodeContextLength, Message: fmt.Sprintf(
			"the prompt has %d bytes; the context of %d tokens holds at most %d", len(p.Text), t.context, t.context*longestToken)}
	}
	b["prompt"] = p.Text
	return completionPath, nil
}

// longestToken is more bytes than a token of any vocabulary has. A text that is longer than so many of them isn't sent at all:
// some servers' time to tokenise grows with the square of its length, and they don't stop when the caller is gone.
const longestToken = 1 << 10

// list returns JSON that must be an array, or nil where it is empty or absent.
func list(field string, text []byte) (json.RawMessage, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || bytes.Equal(text, []byte("null")) {
		return nil, nil
	}
	var items []json.RawMessage
	if !utf8.Valid(text) || json.Unmarshal(text, &items) != nil {
		return nil, invalid(field, "it is no array in JSON")
	}
	if len(items) == 0 {
		return nil, nil
	}
	return text, nil
}

func checkTokens(t target, tokens []engine.Token) error {
	if len(tokens) == 0 {
		return invalid("prompt", "there are no tokens")
	}
	if t.context > 0 && len(tokens) >= t.context {
		return tooLong("prompt", len(tokens), 0, t.context)
	}
	for i, token := range tokens {
		if token < 0 || t.vocab > 0 && int(token) >= t.vocab {
			return invalid("prompt", "token %d at index %d is outside the vocabulary", token, i)
		}
	}
	return nil
}

func tooLong(field string, prompt, output, context int) error {
	return &engine.InvalidError{Field: field, Code: engine.CodeContextLength, Message: fmt.Sprintf(
		"the prompt of %d tokens and %d tokens of output are more than the context of %d tokens", prompt, max(output, 1), context)}
}

// length sets how much is made. 0 means up to the end of the context, for which a text completion needs a number or null:
// without either the protocol says 16.
func (b body) length(t target, path string, r *engine.Request) {
	s := servers[t.kind]
	switch {
	case r.MaxTokens > 0:
		b["max_tokens"] = r.MaxTokens
	case path == chatPath:
	case s.unlimited:
		b["max_tokens"] = nil
	case t.context > 0 && r.Prompt.Tokens != nil:
		b["max_tokens"] = t.context - len(r.Prompt.Tokens)
	}
}

func (b body) sampling(t target, r *engine.Request, choice int) {
	q := &r.Sampling
	b["temperature"] = q.Temperature
	if q.TopP > 0 {
		b["top_p"] = q.TopP
	} else {
		b["top_p"] = 1
	}
	b["seed"] = (q.Seed + uint64(choice)) & math.MaxInt32 // what every server takes
	set := func(name string, v float64) {
		if v != 0 {
			b[name] = v
		}
	}
	set("presence_penalty", q.PresencePenalty)
	set("frequency_penalty", q.FrequencyPenalty)
	if name := servers[t.kind].lookBack; name != "" && t.context > 0 && (q.PresencePenalty != 0 || q.FrequencyPenalty != 0 || q.RepetitionPenalty > 0) {
		b[name] = t.context
	}
	if len(q.LogitBias) > 0 {
		bias := make(map[string]float32, len(q.LogitBias))
		for token, v := range q.LogitBias {
			bias[strconv.Itoa(int(token))] = v
		}
		b["logit_bias"] = bias
	}
	if len(r.Stop) > 0 {
		b["stop"] = r.Stop
	}
}

func (b body) format(r *engine.Request) error {
	switch r.Format {
	case engine.FormatText:
	case engine.FormatJSONObject:
		b["response_format"] = map[string]any{"type": "json_object"}
	case engine.FormatJSONSchema:
		if !json.Valid(r.JSONSchema) {
			return invalid("response_format", "its schema of %d bytes is no JSON", len(r.JSONSchema))
		}
		b["response_format"] = map[string]any{"type": "json_schema", "json_schema": json.RawMessage(r.JSONSchema)}
	default:
		return invalid("response_format", "%q is not known", r.Format)
	}
	return nil
}

// logprobs asks for log probabilities where the request does, or where the server names tokens only with them. Such a
// server does not give them with tools, so that the tokens of a chat with tools stay unknown.
func (b body) logprobs(s *server, path string, r *engine.Request) {
	if !r.Logprobs && (!s.idsByLogprobs || b["tools"] != nil) {
		return
	}
	top := 0
	if r.Logprobs {
		top = r.TopLogprobs
	}
	if s.idsByLogprobs {
		top = max(top, 1) // it knows no 0
	}
	if path == chatPath {
		b["logprobs"], b["top_logprobs"] = true, top
	} else {
		b["logprobs"] = top
	}
}

// fields sets what only some servers know.
func (b body) fields(t target, r *engine.Request) error {
	q := &r.Sampling
	values := map[Field]any{}
	put := func(f Field, is bool, v any) {
		if is {
			values[f] = v
		}
	}
	put(TopK, q.TopK > 0, q.TopK)
	put(MinP, q.MinP > 0, q.MinP)
	put(RepetitionPenalty, q.RepetitionPenalty > 0 && q.RepetitionPenalty != 1, q.RepetitionPenalty)
	put(MinTokens, r.MinTokens > 0, r.MinTokens)
	put(IgnoreEOS, r.IgnoreEOS, true)
	put(CacheSalt, r.CacheSalt != "", r.CacheSalt)
	put(AdapterName, r.Adapter != "", adapterModel(t, r.Adapter))
	put(Priority, r.Priority != 0 && t.priorities, priorityAt(t.kind, r.Priority))
	for _, f := range Fields {
		v, asked := values[f]
		if !asked {
			continue
		}
		switch name := servers[t.kind].names[f]; name {
		case "":
			return invalid(string(f), "an engine of kind %s does not know it", t.kind)
		case dropped:
		default:
			b[name] = v
		}
	}
	return nil
}

// adapterModel is how an adapter is asked for by the name of the model.
func adapterModel(t target, adapter string) string {
	if t.kind == SGLang {
		return t.model + ":" + adapter
	}
	return adapter
}

// priorityAt turns our order into the server's: vLLM starts the lowest first.
func priorityAt(k Kind, p int) int {
	if k == VLLM {
		return -p
	}
	return p
}

func invalid(field, format string, args ...any) error {
	return &engine.InvalidError{Field: field, Message: fmt.Sprintf(format, args...)}
}
