package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"k8s.io/utils/clock"

	wire "github.com/ringfleet/ringfleet/router/openai"
)

// several is a play in which two choices take turns: one thinks and calls a tool, the other talks.
func several() play {
	delta := func(d wire.Delta) step { return step{event: Event{Delta: d, Tokens: 1}} }
	end := func(choice uint32, why wire.FinishReason, completion uint32) step {
		return step{event: Event{Delta: wire.Delta{Choice: choice}, Finish: why, Usage: wire.Usage{Prompt: 9, Completion: completion, Cached: 4}}}
	}
	return play{steps: []step{
		accepted,
		delta(wire.Delta{Reasoning: "Hm."}),
		delta(wire.Delta{Choice: 1, Text: "Hel"}),
		delta(wire.Delta{ToolCalls: []wire.ToolCall{{ID: "call_1", Name: "weather", Arguments: `{"city":`}}}),
		delta(wire.Delta{Choice: 1, Text: "lo"}),
		end(1, wire.FinishStop, 2),
		delta(wire.Delta{ToolCalls: []wire.ToolCall{{Arguments: `"Rome"}`}, {Index: 1, ID: "call_2", Name: "time", Arguments: "{}"}}}),
		end(0, wire.FinishToolCalls, 3),
	}}
}

func TestOpenAIsClientReadsSeveralChoicesWithToolCalls(t *testing.T) {
	params := question("small")
	params.N = openai.Int(2)
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	check := func(t *testing.T, got openai.ChatCompletion) {
		t.Helper()
		if len(got.Choices) != 2 {
			t.Fatalf("%d choices", len(got.Choices))
		}
		tools, talk := got.Choices[0], got.Choices[1]
		if talk.Message.Content != "Hello" || talk.FinishReason != "stop" || tools.FinishReason != "tool_calls" {
			t.Errorf("choices %+v", got.Choices)
		}
		calls := tools.Message.ToolCalls
		if len(calls) != 2 || calls[0].ID != "call_1" || calls[0].Function.Name != "weather" || calls[0].Function.Arguments != `{"city":"Rome"}` ||
			calls[1].ID != "call_2" || calls[1].Function.Arguments != "{}" {
			t.Errorf("calls %+v", calls)
		}
		if u := got.Usage; u.PromptTokens != 9 || u.CompletionTokens != 5 || u.TotalTokens != 14 || u.PromptTokensDetails.CachedTokens != 4 {
			t.Errorf("usage %+v", u)
		}
	}
	t.Run("at once", func(t *testing.T) {
		c := client(t, newRig(clock.RealClock{}, several()))
		got, err := c.Chat.Completions.New(context.Background(), params)
		if err != nil {
			t.Fatal(err)
		}
		check(t, *got)
	})
	t.Run("streamed", func(t *testing.T) {
		c := client(t, newRig(clock.RealClock{}, several()))
		stream := c.Chat.Completions.NewStreaming(context.Background(), params)
		var all openai.ChatCompletionAccumulator
		for stream.Next() {
			all.AddChunk(stream.Current())
		}
		if err := errors.Join(stream.Err(), stream.Close()); err != nil {
			t.Fatal(err)
		}
		check(t, all.ChatCompletion)
	})
}

func TestReasoningIsToldApartFromTheAnswer(t *testing.T) {
	r := newRig(clock.RealClock{}, several())
	url := r.serve(context.Background(), t)
	resp, err := http.Post(url+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"small","n":2,"messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Choices []struct {
			Message struct {
				Content   *string
				Reasoning string `json:"reasoning_content"`
			}
		}
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	if m := body.Choices[0].Message; m.Content != nil || m.Reasoning != "Hm." {
		t.Errorf("got %s", raw)
	}
}

func TestAChoiceThatNobodyAskedForIsAFault(t *testing.T) {
	stray := play{steps: []step{accepted, {event: Event{Delta: wire.Delta{Choice: 7, Text: "x"}}}}, attempts: 2}
	for _, stream := range []string{"false", "true"} {
		r := newRig(clock.RealClock{}, stray)
		resp, err := http.Post(r.serve(context.Background(), t)+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"small","stream":`+stream+`,"messages":[{"role":"user","content":"x"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusBadGateway {
			t.Errorf("stream %s: status %d", stream, resp.StatusCode)
		}
		_ = resp.Body.Close()
	}
}

func TestAnAnswerThatIsTooLargeToBeGatheredIsRefusedAndStreamsAsAny(t *testing.T) {
	list := make([]wire.Logprob, 1000)
	for i := range list {
		list[i] = wire.Logprob{Bytes: []byte("x"), Top: make([]wire.Logprob, 20)}
	}
	long := play{steps: []step{accepted}, attempts: 1}
	for range 40 { // 1.3 MiB each
		long.steps = append(long.steps, step{event: Event{Delta: wire.Delta{Text: "x", Logprobs: list}, Tokens: len(list)}})
	}
	long.steps = append(long.steps, finished)
	r := newRig(clock.RealClock{}, long)
	w := r.do("POST", pathChat, ask)
	if message, _, param, _ := errorObject(t, w.Body.Bytes()); w.Code != http.StatusBadRequest || param != "stream" || r.script.count() != 1 || r.script.open() != 0 {
		t.Errorf("%d %s for %q after %d calls, %d open", w.Code, message, param, r.script.count(), r.script.open())
	}
	if w := newRig(clock.RealClock{}, long).do("POST", pathChat, askStream); w.Code != http.StatusOK || !strings.HasSuffix(w.Body.String(), wire.Done) {
		t.Errorf("streamed: %d", w.Code)
	}
}
