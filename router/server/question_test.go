package server

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/openai"
)

// FuzzQuestion: what is accepted of a client reaches the worker as it was read, its messages and tools byte for byte.
func FuzzQuestion(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte, adapter string) {
		r, err := openai.ParseChat(body)
		if err != nil {
			return
		}
		sent := question(r, adapter)
		wire, err := proto.Marshal(sent)
		if adapter != string(bytes.ToValidUTF8([]byte(adapter), nil)) {
			return // no model's adapter is called so
		}
		if err != nil {
			t.Fatalf("%q can't be sent: %v", body, err)
		}
		var came workerv1.GenerateRequest
		if err := proto.Unmarshal(wire, &came); err != nil {
			t.Fatalf("%q can't be read: %v", body, err)
		}
		if !proto.Equal(sent, &came) {
			t.Fatalf("%v came as %v", sent, &came)
		}
		if d := lost(r, &came); d != "" {
			t.Fatalf("of %q the worker does not see %s: %v", body, d, &came)
		}
	})
}

// lost names what a worker does not see of a client's request, or "".
func lost(r *openai.ChatRequest, q *workerv1.GenerateRequest) string {
	s := q.GetSampling()
	for name, same := range map[string]bool{
		"messages":           bytes.Equal(q.GetChat().GetMessages(), r.Messages),
		"tools":              bytes.Equal(q.GetChat().GetTools(), r.Tools),
		"stop":               slices.Equal(q.GetStop(), r.Stop),
		"max_tokens":         q.GetMaxTokens() == r.MaxTokens,
		"min_tokens":         q.GetMinTokens() == r.MinTokens,
		"ignore_eos":         q.GetIgnoreEos() == r.IgnoreEOS,
		"n":                  q.GetChoices() == r.Choices,
		"logprobs":           q.GetLogprobs() == r.Logprobs,
		"top_logprobs":       q.GetTopLogprobs() == r.TopLogprobs,
		"response_format":    bytes.Equal(q.GetJsonSchema(), r.Schema) && (q.GetResponseFormat() != 0) == (r.Format != openai.FormatText),
		"temperature":        equal(s.Temperature, r.Temperature),
		"top_p":              equal(s.TopP, r.TopP),
		"top_k":              equal(s.TopK, r.TopK),
		"min_p":              equal(s.MinP, r.MinP),
		"seed":               equal(s.Seed, r.Seed),
		"presence_penalty":   equal(s.PresencePenalty, r.PresencePenalty),
		"frequency_penalty":  equal(s.FrequencyPenalty, r.FrequencyPenalty),
		"repetition_penalty": equal(s.RepetitionPenalty, r.RepetitionPenalty),
		"logit_bias":         len(s.GetLogitBias()) == len(r.LogitBias),
	} {
		if !same {
			return name
		}
	}
	return ""
}

// equal compares what may be absent.
func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
