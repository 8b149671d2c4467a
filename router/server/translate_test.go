package server

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/openai"
)

func TestEveryParameterOfAClientReachesTheWorker(t *testing.T) {
	body := `{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}],
		"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"seed":7,"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,
		"logit_bias":{"5":-100},"max_tokens":9,"min_tokens":2,"stop":["a"],"ignore_eos":true,"n":2,"logprobs":true,"top_logprobs":3,
		"response_format":{"type":"json_schema","json_schema":{"name":"s"}}}`
	r, err := openai.ParseChat([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	want := &workerv1.GenerateRequest{
		Prompt: &workerv1.GenerateRequest_Chat{Chat: &workerv1.ChatPrompt{
			Messages: []byte(`[{"role":"user","content":"x"}]`), Tools: []byte(`[{"type":"function","function":{"name":"f"}}]`),
		}},
		Sampling: &workerv1.Sampling{
			Temperature: proto.Float64(0.5), TopP: proto.Float64(0.9), TopK: proto.Uint32(40), MinP: proto.Float64(0.1), Seed: proto.Int64(7),
			PresencePenalty: proto.Float64(1), FrequencyPenalty: proto.Float64(-1), RepetitionPenalty: proto.Float64(1.5),
			LogitBias: map[uint32]float32{5: -100},
		},
		MaxTokens: 9, MinTokens: 2, Stop: []string{"a"}, IgnoreEos: true, Choices: 2, Logprobs: true, TopLogprobs: 3,
		ResponseFormat: workerv1.ResponseFormat_RESPONSE_FORMAT_JSON_SCHEMA, JsonSchema: []byte(`{"name":"s"}`), Adapter: "tuned",
	}
	if got := question(r, "tuned"); !proto.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestEveryPartOfAnAnswerReachesTheClient(t *testing.T) {
	got := answer(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{
		Choice: 1, Text: "a", Reasoning: "b", Tokens: []uint32{5, 6},
		ToolCalls: []*workerv1.ToolCall{{Index: 2, Id: "i", Name: "n", Arguments: "{}"}},
		Logprobs:  []*workerv1.Logprob{{Bytes: []byte("a"), Logprob: -1, Top: []*workerv1.Logprob{{Bytes: []byte("c"), Logprob: -2}}}},
	}}})
	want := gateway.Event{Tokens: 2, Delta: openai.Delta{
		Choice: 1, Text: "a", Reasoning: "b", ToolCalls: []openai.ToolCall{{Index: 2, ID: "i", Name: "n", Arguments: "{}"}},
		Logprobs: []openai.Logprob{{Bytes: []byte("a"), Logprob: -1, Top: []openai.Logprob{{Bytes: []byte("c"), Logprob: -2}}}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	got = answer(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Finish{Finish: &workerv1.Finish{
		Choice: 1, Reason: workerv1.FinishReason_FINISH_REASON_TOOL_CALLS,
		Usage: &workerv1.Usage{PromptTokens: 3, CompletionTokens: 2, CachedTokens: 1},
	}}})
	want = gateway.Event{
		Delta: openai.Delta{Choice: 1}, Finish: openai.FinishToolCalls, Usage: openai.Usage{Prompt: 3, Completion: 2, Cached: 1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
