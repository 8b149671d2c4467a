package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
)

// stepwise lets a step run only when all was read that the steps before it have made.
type stepwise struct {
	*sim.Device
	asks, may, over chan struct{}
}

func (s *stepwise) Step(ctx context.Context, b *engine.Batch) (*engine.Result, error) {
	select {
	case s.asks <- struct{}{}:
		select {
		case <-s.may:
		case <-s.over:
		}
	case <-s.over:
	}
	return s.Device.Step(ctx, b)
}

// newStepwise is a rig whose steps wait for their reader.
func newStepwise(t *testing.T, device sim.Options, loaded *engine.Loaded) (*rig, *stepwise) {
	t.Helper()
	s := &stepwise{asks: make(chan struct{}), may: make(chan struct{}), over: make(chan struct{})}
	r := rigOf(t, &gate{wrap: func(d *sim.Device) engine.Executor {
		s.Device = d
		return s
	}}, device, loaded, nil)
	t.Cleanup(func() { close(s.over) })
	return r, s
}

// chunks returns what each step of a request makes.
func (s *stepwise) chunks(t *testing.T, e engine.Engine, q *engine.Request) (list []engine.Chunk) {
	t.Helper()
	stream, err := e.Generate(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	out := stream.(*hooked).output
	for {
		asked := false
		select {
		case <-s.asks:
			asked = true
		case <-out.ready:
		}
		for {
			c, ok, err := out.take()
			if errors.Is(err, io.EOF) {
				return list
			}
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			list = append(list, c)
		}
		if asked {
			s.may <- struct{}{}
		}
	}
}

// chunksOf is a request's output as its reader gets it.
func chunksOf(t *testing.T, e engine.Engine, q *engine.Request) (list []engine.Chunk) {
	t.Helper()
	s, err := e.Generate(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for {
		c, err := s.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
}

// joined is all that chunks say, for comparison: tokens stand apart, as the one that ends an output isn't told.
func joined(list []engine.Chunk) (said string, tokens []engine.Token, last engine.Chunk) {
	var text, reasoning string
	var calls []engine.ToolCall
	logprobs := 0
	for _, c := range list {
		text, reasoning = text+c.Text, reasoning+c.Reasoning
		for _, call := range c.ToolCalls {
			if call.ID != "" {
				calls = append(calls, call)
			} else {
				calls[call.Index].Arguments += call.Arguments
			}
		}
		tokens = append(tokens, c.Tokens...)
		logprobs += len(c.Logprobs)
		last = c
	}
	return fmt.Sprintf("%q thinks %q calls %+v with %d log probabilities", text, reasoning, calls, logprobs), tokens, last
}

// cut holds an output that is cut behind each of its chunks to the whole one.
func cut(t *testing.T, whole []engine.Chunk, second engine.Engine, q *engine.Request) {
	t.Helper()
	want, _, end := joined(whole)
	if len(whole) < 3 {
		t.Fatalf("there are only %d chunks: %s", len(whole), want)
	}
	for n := range len(whole) + 1 {
		resumed, has := *q, &engine.Resume{}
		for _, c := range whole[:n] {
			has.Text, has.Reasoning, has.Tokens = has.Text+c.Text, has.Reasoning+c.Reasoning, append(has.Tokens, c.Tokens...)
		}
		resumed.Resume = has
		rest := chunksOf(t, second, &resumed)
		got, _, last := joined(append(append([]engine.Chunk(nil), whole[:n]...), rest...))
		if got != want || last.Finish != end.Finish || last.Usage.Completion != end.Usage.Completion || last.Usage.Prompt != end.Usage.Prompt {
			t.Errorf("cut behind %d chunks, %d tokens: got %s (%s, %+v)\nwant %s (%s, %+v)",
				n, len(has.Tokens), got, last.Finish, last.Usage, want, end.Finish, end.Usage)
		}
		if last.Usage.Cached > last.Usage.Prompt {
			t.Errorf("%d of %d prompt tokens were cached", last.Usage.Cached, last.Usage.Prompt)
		}
	}
}

func TestAnOutputThatIsCutAnywhereGoesOnElsewhereToTheSameEnd(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*engine.Request)
		stops  bool
	}{
		"greedy":              {func(*engine.Request) {}, false},
		"by a seed":           {func(q *engine.Request) { q.Sampling = engine.Sampling{Temperature: 1, Seed: 3} }, false},
		"with min_tokens":     {func(q *engine.Request) { q.MinTokens = 50 }, false},
		"beyond its end":      {func(q *engine.Request) { q.IgnoreEOS = true }, false},
		"with logprobs":       {func(q *engine.Request) { q.MinTokens, q.Logprobs, q.TopLogprobs = 20, true, 2 }, false},
		"up to a stop string": {func(q *engine.Request) { q.IgnoreEOS = true }, true},
		"with penalties": {func(q *engine.Request) {
			q.MinTokens = 30
			q.Sampling = engine.Sampling{Temperature: 1, Seed: 4, PresencePenalty: 1, FrequencyPenalty: 1, RepetitionPenalty: 1.3}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			first, steps := newStepwise(t, random(), nil)
			second := newRig(t, &gate{}, random(), nil)
			q := ask("a chat that is longer than a block of tokens", 60)
			c.change(q)
			if c.stops {
				whole := all(t, second, q)[0].Text
				q.Stop = []string{whole[30:34], whole[31:33] + "~"}
			}
			cut(t, steps.chunks(t, first, q), second, q)
		})
	}
}

func TestTextThatIsHeldBackAtTheCutIsSaidOnce(t *testing.T) {
	for name, text := range map[string]string{
		"of a stop string that comes":    "one STO two SSTO three STOP four",
		"of a stop string until the end": "gr\u00fcn \U0001F642 \u4f60\u597d STO",
		"of characters":                  "\u4f60\U0001F642\u597d\u00fc",
	} {
		t.Run(name, func(t *testing.T) {
			first, steps := newStepwise(t, small(text), nil)
			second := newRig(t, &gate{}, small(text), nil)
			q := ask("a", 60)
			q.Stop = []string{"STOP", "STORY"}
			cut(t, steps.chunks(t, first, q), second, q)
		})
	}
}

func TestReasoningAndCallsGoOnInTheMiddle(t *testing.T) {
	device := small("(why) ok [{1}] and [{2}]")
	split := func() *engine.Loaded {
		loaded := sim.New(device)
		loaded.Splitter = func(*engine.Chat) engine.Splitter { return &marks{} }
		return loaded
	}
	first, steps := newStepwise(t, device, split())
	q := ask("req", 60)
	cut(t, steps.chunks(t, first, q), rigOf(t, &gate{}, device, split(), nil), q)
}

func TestAReaderThatHasLessThanItsTokensSayGetsTheRestFirst(t *testing.T) {
	r := newRig(t, &gate{}, small("hello you"), nil)
	q := ask("a", 60)
	q.Resume = &engine.Resume{Tokens: []engine.Token{'h', 'e', 'l', 'l'}, Text: "he"}
	if said, _, last := joined(chunksOf(t, r, q)); !strings.HasPrefix(said, `"llo you"`) || last.Usage.Completion != 10 {
		t.Errorf("got %s, %+v", said, last.Usage)
	}
}

func TestTokensThatAreAllOfAnOutputEndItAtOnce(t *testing.T) {
	g := &gate{}
	r := newRig(t, g, small("hello"), nil)
	tokens := func(s string) (out []engine.Token) {
		for _, b := range []byte(s) {
			out = append(out, engine.Token(b))
		}
		return out
	}
	for name, c := range map[string]struct {
		made []engine.Token
		max  int
		why  engine.FinishReason
		text string // all of it
		held string // the end of it, which is held back until it is known to be the end
	}{
		"the model's end":                {append(tokens("hell"), sim.End), 60, engine.FinishStop, "hell", ""},
		"a stop string":                  {tokens("hell END"), 60, engine.FinishStop, "hell ", ""},
		"max_tokens":                     {tokens("hell"), 4, engine.FinishLength, "hell", ""},
		"max_tokens, with text held":     {tokens("hell EN"), 7, engine.FinishLength, "hell EN", "EN"},
		"the model's end, and text held": {append(tokens("hell EN"), sim.End), 60, engine.FinishStop, "hell EN", "EN"},
	} {
		q := ask("a", c.max)
		for has, want := range map[string]string{"": c.held, c.text: ""} {
			q.Stop, q.Resume = []string{"END"}, &engine.Resume{Tokens: c.made, Text: has}
			list := chunksOf(t, r, q)
			if len(list) != 1 || list[0].Text != want || list[0].Finish != c.why || list[0].Usage != (engine.Usage{Prompt: 4, Completion: len(c.made)}) {
				t.Errorf("%s, read up to %q: got %+v", name, has, list)
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.batches) > 0 {
		t.Errorf("%d steps ran", len(g.batches))
	}
	if st := r.Stats(); st.Running+st.Waiting != 0 {
		t.Errorf("left inside: %+v", st)
	}
}

func TestWhatCanNotBeGoneOnWithIsRefused(t *testing.T) {
	r := newRig(t, &gate{}, small("hello"), objects)
	made := func(s string) *engine.Resume {
		has := &engine.Resume{}
		for _, b := range []byte(s) {
			has.Tokens = append(has.Tokens, engine.Token(b))
		}
		return has
	}
	for name, c := range map[string]struct {
		change func(*engine.Request)
		field  string // "": engine.ErrNoResume
		part   string
	}{
		"two choices":             {func(q *engine.Request) { q.Choices = 2 }, "resume_tokens", "n is 2"},
		"an object":               {func(q *engine.Request) { q.Format = engine.FormatJSONObject }, "resume_tokens", "json_object"},
		"more than max_tokens":    {func(q *engine.Request) { q.MaxTokens = 2 }, "resume_tokens", "max_tokens is 2"},
		"more than the context":   {func(q *engine.Request) { q.MaxTokens, q.Resume = 0, made(strings.Repeat("x", 256)) }, "resume_tokens", "the context holds 256"},
		"more than it leaves":     {func(q *engine.Request) { q.MaxTokens, q.Resume = 0, made(strings.Repeat("x", 254)) }, "resume_tokens", "254 tokens are made already; behind a prompt of 4 the context holds 252"},
		"a token that is none":    {func(q *engine.Request) { q.Resume.Tokens[0] = 258 }, "resume_tokens", "token 258 at index 0"},
		"tokens behind the end":   {func(q *engine.Request) { q.Resume.Tokens[0] = sim.End }, "resume_tokens", "token 1 of 3 ends the output"},
		"a text of other tokens":  {func(q *engine.Request) { q.Resume.Text = "hex" }, "resume_text", "its 3 bytes"},
		"a text without tokens":   {func(q *engine.Request) { q.Resume = &engine.Resume{Text: "hel"} }, "", ""},
		"an adapter that is none": {func(q *engine.Request) { q.Adapter, q.MaxTokens = "none", 3 }, "model", "is not loaded"},
	} {
		t.Run(name, func(t *testing.T) {
			q := ask("a", 60)
			q.Resume = made("hel")
			c.change(q)
			_, err := r.Generate(context.Background(), q)
			bad := (*engine.InvalidError)(nil)
			switch {
			case c.field == "" && !errors.Is(err, engine.ErrNoResume):
				t.Errorf("got %v", err)
			case c.field != "" && (!errors.As(err, &bad) || bad.Field != c.field || !strings.Contains(bad.Message, c.part)):
				t.Errorf("got %v, want %s: %s", err, c.field, c.part)
			}
		})
	}
}

func TestStatsCountWhatIsStillToBeComputedAndWhatWas(t *testing.T) {
	g := &gate{}
	r := newRig(t, g, small("hello"), func(o *Options) { o.MaxSequences, o.StepTokens = 1, 20 })
	g.close()
	long, other := ask(strings.Repeat("p", 47), 10), ask("abc", 10) // 50 and 6 tokens
	other.Resume = &engine.Resume{Tokens: []engine.Token{'h', 'e'}}
	var streams []engine.Stream
	for _, q := range []*engine.Request{long, other} {
		s, err := r.Generate(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		streams = append(streams, s)
		eventually(t, "the first runs", func() bool { return r.Stats().Running == 1 })
	}
	if st := r.Stats(); *st.Backlog != 50+8 || *st.Progress != 0 {
		t.Errorf("before the first step %d tokens are to be computed and %d were", *st.Backlog, *st.Progress)
	}
	g.open()
	for _, s := range streams {
		if _, _, err := read(s); err != nil {
			t.Fatal(err)
		}
	}
	if st := r.Stats(); *st.Backlog != 0 || *st.Progress != 50+5+8+3 {
		t.Errorf("at the end %d tokens are to be computed and %d were", *st.Backlog, *st.Progress)
	}
}
