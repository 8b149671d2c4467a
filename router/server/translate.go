package server

import (
	"fmt"
	"math"
	"slices"
	"strings"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/openai"
)

// codeContextLength is the code of a worker's refusal of a prompt that is too long.
const codeContextLength = "context_length_exceeded"

var formats = map[openai.Format]workerv1.ResponseFormat{
	openai.FormatJSONObject: workerv1.ResponseFormat_RESPONSE_FORMAT_JSON_OBJECT,
	openai.FormatJSONSchema: workerv1.ResponseFormat_RESPONSE_FORMAT_JSON_SCHEMA,
}

// question is a chat request in the workers' words.
func question(r *openai.ChatRequest, adapter string) *workerv1.GenerateRequest {
	return &workerv1.GenerateRequest{
		Prompt: &workerv1.GenerateRequest_Chat{Chat: &workerv1.ChatPrompt{Messages: r.Messages, Tools: r.Tools}},
		Sampling: &workerv1.Sampling{
			Temperature: r.Temperature, TopP: r.TopP, TopK: r.TopK, MinP: r.MinP, Seed: r.Seed,
			PresencePenalty: r.PresencePenalty, FrequencyPenalty: r.FrequencyPenalty, RepetitionPenalty: r.RepetitionPenalty,
			LogitBias: r.LogitBias,
		},
		MaxTokens: r.MaxTokens, MinTokens: r.MinTokens, Stop: r.Stop, IgnoreEos: r.IgnoreEOS, Choices: r.Choices,
		Logprobs: r.Logprobs, TopLogprobs: r.TopLogprobs, ResponseFormat: formats[r.Format], JsonSchema: r.Schema,
		Adapter: adapter,
	}
}

var reasons = map[workerv1.FinishReason]openai.FinishReason{
	workerv1.FinishReason_FINISH_REASON_LENGTH:     openai.FinishLength,
	workerv1.FinishReason_FINISH_REASON_TOOL_CALLS: openai.FinishToolCalls,
}

// answer is a worker's event in the gateway's words.
func answer(r *workerv1.GenerateResponse) gateway.Event {
	if f := r.GetFinish(); f != nil {
		why, known := reasons[f.GetReason()]
		if !known {
			why = openai.FinishStop
		}
		u := f.GetUsage()
		return gateway.Event{
			Delta: openai.Delta{Choice: f.GetChoice()}, Finish: why,
			Usage: openai.Usage{Prompt: u.GetPromptTokens(), Completion: u.GetCompletionTokens(), Cached: u.GetCachedTokens()},
		}
	}
	d := r.GetDelta()
	e := gateway.Event{Tokens: len(d.GetTokens()), Delta: openai.Delta{
		Choice: d.GetChoice(), Text: d.GetText(), Reasoning: d.GetReasoning(), Logprobs: logprobs(d.GetLogprobs()),
	}}
	for _, t := range d.GetToolCalls() {
		e.Delta.ToolCalls = append(e.Delta.ToolCalls, openai.ToolCall{
			Index: t.GetIndex(), ID: t.GetId(), Name: t.GetName(), Arguments: t.GetArguments(),
		})
	}
	return e
}

func logprobs(list []*workerv1.Logprob) []openai.Logprob {
	if len(list) == 0 {
		return nil
	}
	out := make([]openai.Logprob, len(list))
	for i, l := range list {
		out[i] = openai.Logprob{Bytes: l.GetBytes(), Logprob: l.GetLogprob(), Top: logprobs(l.GetTop())}
	}
	return out
}

// inputs are those of a request for embeddings in the workers' words.
func inputs(r *openai.EmbeddingRequest) []*workerv1.EmbedInput {
	out := make([]*workerv1.EmbedInput, len(r.Inputs))
	for i, in := range r.Inputs {
		if in.Text != "" {
			out[i] = &workerv1.EmbedInput{Input: &workerv1.EmbedInput_Text{Text: &workerv1.TextPrompt{Text: in.Text}}}
		} else {
			out[i] = &workerv1.EmbedInput{Input: &workerv1.EmbedInput_Tokens{Tokens: &workerv1.TokenPrompt{Tokens: in.Tokens}}}
		}
	}
	return out
}

// vectors are a worker's in the gateway's words. It holds a worker to what it promises: one for each of n inputs, all of
// one length, of numbers that JSON has.
func vectors(list []*workerv1.Vector, n int) ([][]float32, error) {
	if len(list) != n {
		return nil, fmt.Errorf("it sent %d vectors for %d inputs", len(list), n)
	}
	out := make([][]float32, n)
	for i, v := range list {
		out[i] = v.GetValues()
		if len(out[i]) == 0 || len(out[i]) != len(out[0]) {
			return nil, fmt.Errorf("vector %d has %d numbers, the first has %d", i, len(out[i]), len(out[0]))
		}
		for _, x := range out[i] {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				return nil, fmt.Errorf("vector %d holds %v", i, x)
			}
		}
	}
	return out, nil
}

// params are the fields of a worker's request that clients know by the same name.
var params = []string{
	"messages", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "n", "logprobs", "top_logprobs",
	"presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "response_format", "tools", "model",
	"input",
}

// param is the client's name for a field of a worker's request, or "".
func param(field string) string {
	name := field[strings.LastIndexByte(field, '.')+1:]
	if root, _, _ := strings.Cut(name, "["); slices.Contains(params, root) {
		return name
	}
	if strings.HasPrefix(field, "messages[") {
		return field
	}
	return ""
}
