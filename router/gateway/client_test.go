package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"k8s.io/utils/clock"
)

// client returns OpenAI's own client for a rig.
func client(t *testing.T, r *rig) openai.Client {
	t.Helper()
	return openai.NewClient(option.WithBaseURL(r.serve(context.Background(), t)+"/v1"), option.WithAPIKey("any"), option.WithMaxRetries(0))
}

func question(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{
		openai.SystemMessage("Be brief."), openai.UserMessage("Hello?"),
	}}
}

func TestOpenAIsClientGetsAnAnswer(t *testing.T) {
	c := client(t, newRig(clock.RealClock{}, says("Hel", "lo")))
	got, err := c.Chat.Completions.New(context.Background(), question("small"))
	if err != nil {
		t.Fatal(err)
	}
	choice := got.Choices[0]
	if choice.Message.Content != "Hello" || choice.FinishReason != "stop" || choice.Message.Role != "assistant" {
		t.Errorf("choice %+v", choice)
	}
	if u := got.Usage; u.PromptTokens != 9 || u.CompletionTokens != 2 || u.TotalTokens != 11 || u.PromptTokensDetails.CachedTokens != 4 {
		t.Errorf("usage %+v", u)
	}
}

func TestOpenAIsClientReadsAStream(t *testing.T) {
	c := client(t, newRig(clock.RealClock{}, says("Hel", "lo\u2028", "😀")))
	params := question("org/small-1.0")
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := c.Chat.Completions.NewStreaming(context.Background(), params)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			t.Errorf("a chunk that does not fit: %+v", stream.Current())
		}
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		t.Fatal(err)
	}
	if got := all.Choices[0]; got.Message.Content != "Hello\u2028😀" || got.FinishReason != "stop" || all.Usage.TotalTokens != 11 {
		t.Errorf("%+v", all.ChatCompletion)
	}
}

func TestOpenAIsClientSeesEveryError(t *testing.T) {
	for name, c := range map[string]struct {
		play   play
		change func(*openai.ChatCompletionNewParams)
		status int
		code   string
		param  string
	}{
		"an unknown model":  {play: says("x"), change: func(p *openai.ChatCompletionNewParams) { p.Model = "smollm" }, status: 404, code: "model_not_found", param: "model"},
		"a bad temperature": {play: says("x"), change: func(p *openai.ChatCompletionNewParams) { p.Temperature = openai.Float(3) }, status: 400, code: "invalid_value", param: "temperature"},
		"no worker":         {play: play{refuse: &Fault{Kind: NoCapacity}}, change: func(*openai.ChatCompletionNewParams) {}, status: 503, code: "no_capacity"},
		"a full queue":      {play: play{refuse: &Fault{Kind: Busy}}, change: func(*openai.ChatCompletionNewParams) {}, status: 429, code: "slow_down"},
	} {
		t.Run(name, func(t *testing.T) {
			params := question("small")
			c.change(&params)
			cl := client(t, newRig(clock.RealClock{}, c.play))
			_, err := cl.Chat.Completions.New(context.Background(), params)
			var e *openai.Error
			if !errors.As(err, &e) || e.StatusCode != c.status || e.Code != c.code || e.Param != c.param || e.Message == "" {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestOpenAIsClientSeesAStreamBreak(t *testing.T) {
	c := client(t, newRig(clock.RealClock{}, play{steps: []step{accepted, text("Hi"), lost()}}))
	stream := c.Chat.Completions.NewStreaming(context.Background(), question("small"))
	var got strings.Builder
	for stream.Next() {
		got.WriteString(stream.Current().Choices[0].Delta.Content)
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "worker_lost") || got.String() != "Hi" {
		t.Errorf("%q, %v", got.String(), err)
	}
	_ = stream.Close()
}

func TestOpenAIsClientFindsModels(t *testing.T) {
	c := client(t, newRig(clock.RealClock{}))
	list, err := c.Models.List(context.Background())
	if err != nil || len(list.Data) != 4 {
		t.Fatalf("%v %+v", err, list)
	}
	for _, m := range list.Data {
		if got, err := c.Models.Get(context.Background(), m.ID); err != nil || got.ID != m.ID {
			t.Errorf("%s: %v", m.ID, err)
		}
	}
}
