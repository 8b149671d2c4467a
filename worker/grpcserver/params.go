package grpcserver

import (
	"fmt"
	"math"
	"math/rand/v2"
	"unicode/utf8"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// The bounds of a request, beside those that the model sets.
const (
	maxStops       = 4
	maxStopBytes   = 256
	maxTemperature = 2
	maxPenalty     = 2
	maxRepetition  = 10
	maxBias        = 100
	maxBiases      = 300
	maxChoices     = 8
	maxTop         = 20
	maxSaltBytes   = 256
	maxNameBytes   = 253
	maxSchemaBytes = 256 << 10
	maxInputs      = 2048
)

// request checks q and fills in its defaults.
func request(q *workerv1.GenerateRequest) (*engine.Request, error) {
	r := &engine.Request{
		ID: clip(q.GetRequestId()), Stop: q.GetStop(), Choices: max(int(q.GetChoices()), 1), IgnoreEOS: q.GetIgnoreEos(),
		Logprobs: q.GetLogprobs(), TopLogprobs: int(q.GetTopLogprobs()), Priority: int(q.GetPriority()),
		CacheSalt: q.GetCacheSalt(), Adapter: q.GetAdapter(), JSONSchema: q.GetJsonSchema(),
		Name: engine.PromptName{Hash: q.GetPrefixHash(), Blocks: q.GetPrefixBlocks(), Bytes: q.GetPrefixBytes()},
	}
	switch {
	case q.GetMaxTokens() > math.MaxInt32:
		return nil, invalid("max_tokens", "%d is more than any context holds", q.GetMaxTokens())
	case q.GetMinTokens() > math.MaxInt32 || q.GetMaxTokens() > 0 && q.GetMinTokens() > q.GetMaxTokens():
		return nil, invalid("min_tokens", "%d is more than max_tokens, which is %d", q.GetMinTokens(), q.GetMaxTokens())
	case q.GetChoices() > maxChoices:
		return nil, invalid("n", "%d is more than %d", q.GetChoices(), maxChoices)
	case q.GetTopLogprobs() > maxTop:
		return nil, invalid("top_logprobs", "%d is more than %d", q.GetTopLogprobs(), maxTop)
	case q.GetTopLogprobs() > 0 && !q.GetLogprobs():
		return nil, invalid("top_logprobs", "it needs logprobs: true")
	case len(r.CacheSalt) > maxSaltBytes:
		return nil, invalid("cache_salt", "it has %d bytes; at most %d are allowed", len(r.CacheSalt), maxSaltBytes)
	case len(r.Adapter) > maxNameBytes:
		return nil, invalid("model", "the adapter's name has %d bytes; at most %d are allowed", len(r.Adapter), maxNameBytes)
	case len(r.JSONSchema) > maxSchemaBytes:
		return nil, invalid("response_format", "the schema has %d bytes; at most %d are allowed", len(r.JSONSchema), maxSchemaBytes)
	}
	r.MaxTokens, r.MinTokens = int(q.GetMaxTokens()), int(q.GetMinTokens())
	if err := stops(r.Stop); err != nil {
		return nil, err
	}
	var err error
	if r.Format, err = format(q.GetResponseFormat()); err != nil {
		return nil, err
	}
	if r.Sampling, err = sampling(q.GetSampling()); err != nil {
		return nil, err
	}
	if r.Resume, err = resume(q); err != nil {
		return nil, err
	}
	r.Prompt, err = prompt(q)
	return r, err
}

// resume is what was made elsewhere; nil: nothing.
func resume(q *workerv1.GenerateRequest) (*engine.Resume, error) {
	if len(q.GetResumeTokens()) == 0 && q.GetResumeText() == "" && q.GetResumeReasoning() == "" {
		return nil, nil
	}
	made, err := ids("resume_tokens", q.GetResumeTokens())
	return &engine.Resume{Tokens: made, Text: q.GetResumeText(), Reasoning: q.GetResumeReasoning()}, err
}

func stops(list []string) error {
	if len(list) > maxStops {
		return invalid("stop", "there are %d stop strings; at most %d are allowed", len(list), maxStops)
	}
	for i, stop := range list {
		if stop == "" || len(stop) > maxStopBytes || !utf8.ValidString(stop) {
			return invalid("stop", "string %d has %d bytes; 1 to %d are allowed", i, len(stop), maxStopBytes)
		}
	}
	return nil
}

func format(f workerv1.ResponseFormat) (engine.Format, error) {
	switch f {
	case workerv1.ResponseFormat_RESPONSE_FORMAT_UNSPECIFIED:
		return engine.FormatText, nil
	case workerv1.ResponseFormat_RESPONSE_FORMAT_JSON_OBJECT:
		return engine.FormatJSONObject, nil
	case workerv1.ResponseFormat_RESPONSE_FORMAT_JSON_SCHEMA:
		return engine.FormatJSONSchema, nil
	}
	return "", invalid("response_format", "there is no format %d", f)
}

func sampling(q *workerv1.Sampling) (engine.Sampling, error) {
	s := engine.Sampling{Temperature: 1, TopP: 1, Seed: rand.Uint64()}
	if q == nil {
		return s, nil
	}
	if q.Temperature != nil {
		s.Temperature = q.GetTemperature()
	}
	if q.TopP != nil {
		s.TopP = q.GetTopP()
	}
	if q.Seed != nil {
		s.Seed = uint64(q.GetSeed())
	}
	s.MinP, s.PresencePenalty, s.FrequencyPenalty = q.GetMinP(), q.GetPresencePenalty(), q.GetFrequencyPenalty()
	s.RepetitionPenalty = q.GetRepetitionPenalty()
	switch { // NaN fails every comparison
	case !between(s.Temperature, 0, maxTemperature):
		return s, invalid("temperature", "%v is not between 0 and %d", s.Temperature, maxTemperature)
	case !(s.TopP > 0 && s.TopP <= 1):
		return s, invalid("top_p", "%v is not above 0 and at most 1", s.TopP)
	case q.GetTopK() > math.MaxInt32:
		return s, invalid("top_k", "%d is more than any vocabulary has", q.GetTopK())
	case !between(s.MinP, 0, 1):
		return s, invalid("min_p", "%v is not between 0 and 1", s.MinP)
	case !between(s.PresencePenalty, -maxPenalty, maxPenalty):
		return s, invalid("presence_penalty", "%v is not between -%d and %d", s.PresencePenalty, maxPenalty, maxPenalty)
	case !between(s.FrequencyPenalty, -maxPenalty, maxPenalty):
		return s, invalid("frequency_penalty", "%v is not between -%d and %d", s.FrequencyPenalty, maxPenalty, maxPenalty)
	case q.RepetitionPenalty != nil && !(s.RepetitionPenalty > 0 && s.RepetitionPenalty <= maxRepetition):
		return s, invalid("repetition_penalty", "%v is not above 0 and at most %d", s.RepetitionPenalty, maxRepetition)
	}
	s.TopK = int(q.GetTopK())
	var err error
	s.LogitBias, err = biases(q.GetLogitBias())
	return s, err
}

func between(v, low, high float64) bool { return v >= low && v <= high }

func biases(m map[uint32]float32) (map[engine.Token]float32, error) {
	if len(m) == 0 {
		return nil, nil
	}
	if len(m) > maxBiases {
		return nil, invalid("logit_bias", "there are %d tokens; at most %d are allowed", len(m), maxBiases)
	}
	out := make(map[engine.Token]float32, len(m))
	for t, bias := range m {
		if t > math.MaxInt32 {
			return nil, invalid("logit_bias", "token %d is outside every vocabulary", t)
		}
		if !between(float64(bias), -maxBias, maxBias) {
			return nil, invalid("logit_bias", "%v for token %d is not between -%d and %d", bias, t, maxBias, maxBias)
		}
		out[engine.Token(t)] = bias
	}
	return out, nil
}

func prompt(q *workerv1.GenerateRequest) (engine.Prompt, error) {
	switch p := q.GetPrompt().(type) {
	case *workerv1.GenerateRequest_Chat:
		return chatPrompt(p.Chat)
	case *workerv1.GenerateRequest_Text:
		return textPrompt(p.Text)
	case *workerv1.GenerateRequest_Tokens:
		return tokenPrompt(p.Tokens)
	}
	return engine.Prompt{}, invalid("prompt", "there is none")
}

func chatPrompt(c *workerv1.ChatPrompt) (engine.Prompt, error) {
	if len(c.GetMessages()) == 0 {
		return engine.Prompt{}, invalid("messages", "there are none")
	}
	return engine.Prompt{Chat: &engine.Chat{Messages: c.GetMessages(), Tools: c.GetTools()}}, nil
}

func textPrompt(p *workerv1.TextPrompt) (engine.Prompt, error) {
	if p.GetText() == "" {
		return engine.Prompt{}, invalid("prompt", "the text is empty")
	}
	return engine.Prompt{Text: p.GetText()}, nil
}

func tokenPrompt(p *workerv1.TokenPrompt) (engine.Prompt, error) {
	tokens, err := ids("prompt", p.GetTokens())
	if err != nil {
		return engine.Prompt{}, err
	}
	if len(tokens) == 0 {
		return engine.Prompt{}, invalid("prompt", "there are no tokens")
	}
	return engine.Prompt{Tokens: tokens}, nil
}

// ids are the tokens of a field.
func ids(field string, list []uint32) ([]engine.Token, error) {
	tokens := make([]engine.Token, len(list))
	for i, t := range list {
		if t > math.MaxInt32 {
			return nil, invalid(field, "token %d at index %d is outside every vocabulary", t, i)
		}
		tokens[i] = engine.Token(t)
	}
	return tokens, nil
}

func invalid(field, format string, args ...any) error {
	return &engine.InvalidError{Field: field, Message: fmt.Sprintf(format, args...)}
}
