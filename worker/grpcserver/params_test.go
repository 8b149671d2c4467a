package grpcserver

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
)

func TestAnEmptyRequestTakesTheDefaultsOfTheContract(t *testing.T) {
	r, err := request(text(nil))
	if err != nil {
		t.Fatal(err)
	}
	r.Sampling.Seed = 0 // random
	want := &engine.Request{ID: "r", Prompt: engine.Prompt{Text: "Hi"}, Choices: 1, Sampling: engine.Sampling{Temperature: 1, TopP: 1}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got %+v\nwant %+v", r, want)
	}
}

func TestEveryParameterReachesTheEngine(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	k, seed := uint32(40), int64(7)
	r, err := request(text(func(q *workerv1.GenerateRequest) {
		q.MaxTokens, q.MinTokens, q.Choices, q.IgnoreEos = 9, 3, 2, true
		q.Logprobs, q.TopLogprobs, q.Priority, q.CacheSalt, q.Adapter = true, 5, -4, "salt", "lora"
		q.ResponseFormat, q.JsonSchema = workerv1.ResponseFormat_RESPONSE_FORMAT_JSON_SCHEMA, []byte("{}")
		q.Stop = []string{"\n"}
		q.ResumeTokens, q.ResumeText, q.ResumeReasoning = []uint32{5, 6}, "so far", "thought"
		q.Sampling = &workerv1.Sampling{
			Temperature: f(0.5), TopP: f(0.9), Seed: &seed, TopK: &k, MinP: f(0.1), PresencePenalty: f(1), FrequencyPenalty: f(-1),
			RepetitionPenalty: f(1.1), LogitBias: map[uint32]float32{3: -100},
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := &engine.Request{
		ID: "r", Prompt: engine.Prompt{Text: "Hi"}, Choices: 2, MaxTokens: 9, MinTokens: 3, Stop: []string{"\n"}, IgnoreEOS: true,
		Logprobs: true, TopLogprobs: 5, Format: engine.FormatJSONSchema, JSONSchema: []byte("{}"), Priority: -4, CacheSalt: "salt",
		Adapter: "lora", Resume: &engine.Resume{Tokens: []engine.Token{5, 6}, Text: "so far", Reasoning: "thought"}, Sampling: engine.Sampling{
			Temperature: 0.5, TopP: 0.9, Seed: 7, TopK: 40, MinP: 0.1, PresencePenalty: 1, FrequencyPenalty: -1, RepetitionPenalty: 1.1,
			LogitBias: map[engine.Token]float32{3: -100},
		},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got %+v\nwant %+v", r, want)
	}
}

func TestAParameterOutOfBoundsIsRefusedByName(t *testing.T) {
	number := func(set func(*workerv1.Sampling, *float64), v float64) func(*workerv1.GenerateRequest) {
		return func(q *workerv1.GenerateRequest) {
			q.Sampling = &workerv1.Sampling{}
			set(q.Sampling, &v)
		}
	}
	minP := func(s *workerv1.Sampling, v *float64) { s.MinP = v }
	presence := func(s *workerv1.Sampling, v *float64) { s.PresencePenalty = v }
	frequency := func(s *workerv1.Sampling, v *float64) { s.FrequencyPenalty = v }
	repetition := func(s *workerv1.Sampling, v *float64) { s.RepetitionPenalty = v }
	bias := func(token uint32, v float32) func(*workerv1.GenerateRequest) {
		return func(q *workerv1.GenerateRequest) {
			q.Sampling = &workerv1.Sampling{LogitBias: map[uint32]float32{token: v}}
		}
	}
	for name, c := range map[string]struct {
		change func(*workerv1.GenerateRequest)
		field  string
	}{
		"nine choices":                     {func(q *workerv1.GenerateRequest) { q.Choices = 9 }, "n"},
		"more min_tokens than max_tokens":  {func(q *workerv1.GenerateRequest) { q.MinTokens, q.MaxTokens = 5, 4 }, "min_tokens"},
		"21 top_logprobs":                  {func(q *workerv1.GenerateRequest) { q.Logprobs, q.TopLogprobs = true, 21 }, "top_logprobs"},
		"top_logprobs without logprobs":    {func(q *workerv1.GenerateRequest) { q.TopLogprobs = 1 }, "top_logprobs"},
		"a format that nobody knows":       {func(q *workerv1.GenerateRequest) { q.ResponseFormat = 9 }, "response_format"},
		"a schema of a megabyte":           {func(q *workerv1.GenerateRequest) { q.JsonSchema = make([]byte, 1<<20) }, "response_format"},
		"a salt of a kilobyte":             {func(q *workerv1.GenerateRequest) { q.CacheSalt = strings.Repeat("s", 1024) }, "cache_salt"},
		"an adapter's name of a kilobyte":  {func(q *workerv1.GenerateRequest) { q.Adapter = strings.Repeat("s", 1024) }, "model"},
		"a min_p above 1":                  {number(minP, 1.1), "min_p"},
		"a min_p of NaN":                   {number(minP, math.NaN()), "min_p"},
		"a presence_penalty of 3":          {number(presence, 3), "presence_penalty"},
		"a frequency_penalty of -3":        {number(frequency, -3), "frequency_penalty"},
		"a repetition_penalty of 0":        {number(repetition, 0), "repetition_penalty"},
		"an infinite repetition_penalty":   {number(repetition, math.Inf(1)), "repetition_penalty"},
		"a bias of 101":                    {bias(1, 101), "logit_bias"},
		"a bias of NaN":                    {bias(1, float32(math.NaN())), "logit_bias"},
		"a token made beyond 31 bit":       {func(q *workerv1.GenerateRequest) { q.ResumeTokens = []uint32{1, math.MaxUint32} }, "resume_tokens"},
		"a bias for a token beyond 31 bit": {bias(math.MaxUint32, 1), "logit_bias"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := request(text(c.change))
			if bad := (*engine.InvalidError)(nil); !errors.As(err, &bad) || bad.Field != c.field {
				t.Errorf("got %v, want one that names %s", err, c.field)
			}
		})
	}
}

func text(change func(*workerv1.GenerateRequest)) *workerv1.GenerateRequest {
	q := &workerv1.GenerateRequest{RequestId: "r", Prompt: &workerv1.GenerateRequest_Text{Text: &workerv1.TextPrompt{Text: "Hi"}}}
	if change != nil {
		change(q)
	}
	return q
}
