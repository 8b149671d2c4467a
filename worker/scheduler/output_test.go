package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/grammar"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// random is a device whose answers depend on what its cells hold.
func random() sim.Options {
	o := small("")
	o.Random = true
	return o
}

// all returns the chunks of a stream joined for each choice, its text in order.
func all(t *testing.T, e engine.Engine, q *engine.Request) []engine.Chunk {
	t.Helper()
	s, err := e.Generate(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out := make([]engine.Chunk, max(1, q.Choices))
	for i := range out {
		out[i].Choice = i
	}
	for {
		c, err := s.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		sum := &out[c.Choice]
		sum.Text += c.Text
		sum.Reasoning += c.Reasoning
		sum.ToolCalls = append(sum.ToolCalls, c.ToolCalls...)
		sum.Tokens = append(sum.Tokens, c.Tokens...)
		sum.Logprobs = append(sum.Logprobs, c.Logprobs...)
		if sum.Finish != "" {
			t.Fatalf("choice %d goes on after its end", c.Choice)
		}
		sum.Finish, sum.Usage = c.Finish, c.Usage
	}
}

func TestEachChoiceHasItsOwnSeedItsOwnEndAndTheUsageOfOnePrompt(t *testing.T) {
	r := newRig(t, &gate{}, random(), nil)
	q := ask("a", 60)
	q.Choices, q.Sampling = 3, engine.Sampling{Temperature: 1, Seed: 7}
	got := all(t, r, q)
	for i, c := range got {
		alone := ask("a", 60)
		alone.Sampling = engine.Sampling{Temperature: 1, Seed: 7 + uint64(i)}
		want := all(t, r, alone)[0]
		if c.Text != want.Text || c.Finish != want.Finish || c.Usage.Completion != want.Usage.Completion || c.Usage.Prompt != want.Usage.Prompt {
			t.Errorf("choice %d is %+v, alone with seed %d it is %+v", i, c, 7+i, want)
		}
	}
	if got[0].Text == got[1].Text || got[1].Text == got[2].Text {
		t.Errorf("the choices are alike: %q", got[0].Text)
	}
}

func TestACrowdOnTooFewBlocksSaysWhatEachSaysAlone(t *testing.T) {
	crowded := random()
	crowded.KVTokens = 256
	crowd, alone := newRig(t, &gate{}, crowded, nil), newRig(t, &gate{}, random(), nil)
	request := func(i int) *engine.Request { // one of three beginnings, of which each is long enough to be shared
		q := ask(strings.Repeat(string(rune('a'+i%3)), 40)+fmt.Sprint(i), 60)
		q.Choices, q.Priority, q.MinTokens = 1+i%2, i%4, 20
		q.Sampling = engine.Sampling{Temperature: float64(i % 2), Seed: uint64(i)}
		return q
	}
	var group sync.WaitGroup
	said := make([][]engine.Chunk, 60)
	for i := range said {
		group.Go(func() { said[i] = all(t, crowd, request(i)) })
	}
	group.Wait()
	for i, got := range said {
		for c, want := range all(t, alone, request(i)) {
			if got[c].Text != want.Text || got[c].Finish != want.Finish || got[c].Usage.Completion != want.Usage.Completion {
				t.Errorf("request %d, choice %d: %+v, alone %+v", i, c, got[c], want)
			}
		}
	}
	st := crowd.Stats()
	t.Logf("%d preemptions, %d evictions, %d of %d prompt tokens found in the cache", *st.Preemptions, *st.Evictions, *st.CacheHits, *st.CacheQueries)
}

func TestLogprobsComeWithTheirTokens(t *testing.T) {
	r := newRig(t, &gate{}, small("grün STOP"), nil)
	q := ask("a", 60)
	q.Logprobs, q.TopLogprobs, q.Stop = true, 3, []string{"STOP"}
	s, err := r.Generate(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	text := ""
	for {
		c, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || len(c.Logprobs) != len(c.Tokens) {
			t.Fatalf("chunk %+v, %v", c, err)
		}
		for i, l := range c.Logprobs {
			if l.Token != c.Tokens[i] || l.Logprob > 0 || len(l.Top) != 3 || l.Top[0].Token != l.Token || l.Top[0].Logprob != l.Logprob {
				t.Fatalf("token %d has %+v", c.Tokens[i], l)
			}
			text += string(l.Bytes)
		}
	}
	if text != "grün " {
		t.Fatalf("the tokens spell %q", text)
	}
	q.Logprobs = false
	if c := all(t, r, q)[0]; len(c.Logprobs) != 0 || len(c.Tokens) == 0 {
		t.Fatalf("nobody asked for log probabilities, yet there is %+v", c)
	}
}

// marks is a splitter for tests: ( ) is reasoning, [ ] a call of the tool f with what is between.
type marks struct{ in, calls byte }

func (m *marks) Push(text string) (out []engine.Part) {
	for _, r := range text {
		switch c := string(r); {
		case c == "(" || c == "[":
			m.in = c[0]
			if m.in == '[' {
				out = append(out, engine.Part{Call: &engine.ToolCall{Index: int(m.calls), Name: "f"}})
				m.calls++
			}
		case c == ")" || c == "]":
			m.in = 0
		case m.in == '(':
			out = append(out, engine.Part{Reasoning: c})
		case m.in == '[':
			out = append(out, engine.Part{Call: &engine.ToolCall{Index: int(m.calls) - 1, Arguments: c}})
		default:
			out = append(out, engine.Part{Text: c})
		}
	}
	return out
}

func (m *marks) Flush() ([]engine.Part, bool) {
	return []engine.Part{{Text: "."}}, m.calls > 0
}

func TestWhatASplitterTellsApartComesOutInOrder(t *testing.T) {
	device := small("(why) ok [{1}] and [{2}]")
	loaded := sim.New(device)
	loaded.Splitter = func(*engine.Chat) engine.Splitter { return &marks{} }
	loaded.Info.Caps.Tools = true
	r := rigOf(t, &gate{}, device, loaded, nil)
	c := all(t, r, ask("req", 60))[0]
	if c.Reasoning != "why" || c.Text != " ok  and ." || c.Finish != engine.FinishToolCalls || !r.Info().Caps.Tools {
		t.Fatalf("got %+v", c)
	}
	calls := map[int]*engine.ToolCall{}
	for _, call := range c.ToolCalls {
		if calls[call.Index] == nil {
			calls[call.Index] = &call
			if call.Name != "f" || call.ID == "" {
				t.Fatalf("the first piece of a call is %+v", call)
			}
			continue
		}
		if call.ID != "" || call.Name != "" {
			t.Fatalf("a further piece is %+v", call)
		}
		calls[call.Index].Arguments += call.Arguments
	}
	want := map[int]engine.ToolCall{
		0: {Index: 0, ID: callID("req", 0, 0), Name: "f", Arguments: "{1}"},
		1: {Index: 1, ID: callID("req", 0, 1), Name: "f", Arguments: "{2}"},
	}
	if len(calls) != 2 || *calls[0] != want[0] || *calls[1] != want[1] || want[0].ID == want[1].ID || len(want[0].ID) != len("call_")+24 {
		t.Fatalf("calls are %+v %+v, want %+v", calls[0], calls[1], want)
	}

	plain := ask("req", 60)
	plain.Prompt = engine.Prompt{Text: "x" + answerMark}
	if c := all(t, r, plain)[0]; c.Text != device.Text || c.Finish != engine.FinishStop {
		t.Fatalf("text that is no chat was split: %+v", c)
	}
	short := ask("req", 12)
	if c := all(t, r, short)[0]; c.Finish != engine.FinishLength {
		t.Fatalf("a call that was cut short ends with %q", c.Finish)
	}
}

const answerMark = "<|answer|>"

func TestJSONOutputIsAnObjectAndOtherFormatsAreRefused(t *testing.T) {
	v := grammar.New(258, sim.Vocabulary{}.Piece, sim.Vocabulary{}.EndsGeneration)
	with := newRig(t, &gate{}, random(), func(o *Options) {
		o.JSONObject = func() sampling.Constraint { return v.JSONObject() }
	})
	without := newRig(t, &gate{}, random(), nil)
	if !with.Info().Caps.JSONObject || without.Info().Caps.JSONObject {
		t.Error("the capabilities don't say who can write JSON")
	}
	q := ask("a", 200)
	q.Format = engine.FormatJSONObject
	// Closing what is open is made likely, as a model that knows JSON would.
	q.Sampling.LogitBias = map[engine.Token]float32{'"': 8, '}': 20, ':': 20, sim.End: 20}
	var object map[string]any
	if c := all(t, with, q)[0]; json.Unmarshal([]byte(c.Text), &object) != nil || c.Finish != engine.FinishStop {
		t.Errorf("got %q, %s", c.Text, c.Finish)
	}
	bad := (*engine.InvalidError)(nil)
	if _, err := without.Generate(context.Background(), q); !errors.As(err, &bad) || bad.Field != "response_format" {
		t.Errorf("without a constraint: %v", err)
	}
	q.Format = engine.FormatJSONSchema
	if _, err := with.Generate(context.Background(), q); !errors.As(err, &bad) || bad.Field != "response_format" {
		t.Errorf("a schema: %v", err)
	}
}

// object is a constraint for tests: the output is {} and nothing else.
type object struct{ text string }

func (o *object) Allows(t engine.Token) bool {
	if n := len(o.text); n < 2 {
		return t == engine.Token("{}"[n])
	}
	return t == sim.End
}

func (o *object) Accept(t engine.Token) {
	if t != sim.End {
		o.text += string(rune(t))
	}
}

func objects(o *Options) { o.JSONObject = func() sampling.Constraint { return &object{} } }

func TestACompleteObjectEndsBeforeMinTokens(t *testing.T) {
	r := newRig(t, &gate{}, random(), objects)
	q := ask("a", 50)
	q.Format, q.MinTokens = engine.FormatJSONObject, 40
	if c := all(t, r, q)[0]; c.Text != "{}" || c.Finish != engine.FinishStop || c.Usage.Completion != 3 {
		t.Errorf("got %+v", c)
	}
}

func TestARequestThatRulesOutEveryTokenIsInvalid(t *testing.T) {
	r := newRig(t, &gate{}, random(), objects)
	q := ask("a", 50)
	q.Format, q.Sampling.LogitBias = engine.FormatJSONObject, map[engine.Token]float32{'}': -100}
	s, err := r.Generate(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	bad := (*engine.InvalidError)(nil)
	if text, _, err := read(s); text != "{" || !errors.As(err, &bad) || bad.Field != "logit_bias" {
		t.Fatalf("got %q, %v", text, err)
	}
}

// thinker takes all for reasoning, as a splitter does where the prompt ends within it.
type thinker struct{}

func (thinker) Push(text string) []engine.Part { return []engine.Part{{Reasoning: text}} }
func (thinker) Flush() ([]engine.Part, bool)   { return nil, false }

func TestAnObjectIsNoReasoning(t *testing.T) {
	device := random()
	loaded := sim.New(device)
	loaded.Splitter = func(*engine.Chat) engine.Splitter { return thinker{} }
	r := rigOf(t, &gate{}, device, loaded, objects)
	q := ask("a", 50)
	q.Format = engine.FormatJSONObject
	if c := all(t, r, q)[0]; c.Text != "{}" || c.Reasoning != "" {
		t.Errorf("got %+v", c)
	}
}

func TestMinTokensHoldsTheModelsEndBack(t *testing.T) {
	r := newRig(t, &gate{}, small("ab"), nil)
	q := ask("a", 10)
	q.MinTokens = 6
	if c := all(t, r, q)[0]; c.Usage.Completion < 7 || !strings.HasPrefix(c.Text, "ab") {
		t.Errorf("got %+v", c)
	}
	q = ask("a", 10)
	q.IgnoreEOS = true
	if c := all(t, r, q)[0]; c.Usage.Completion != 10 || c.Finish != engine.FinishLength || c.Text != "ab" {
		t.Errorf("with ignore_eos got %+v", c)
	}
}

func TestChunksThatWereNotReadBecomeOneWithoutChangingTheOrder(t *testing.T) {
	o := newOutput(1, 2)
	call := func(id, args string) []engine.ToolCall { return []engine.ToolCall{{ID: id, Arguments: args}} }
	for _, c := range []engine.Chunk{
		{Reasoning: "a"}, {Reasoning: "b", Tokens: []engine.Token{1}}, {Text: "c"}, {Choice: 1, Text: "x"}, {ToolCalls: call("id", "d")},
		{ToolCalls: call("", "e"), Tokens: []engine.Token{2}}, {Text: "f"}, {Choice: 1, Finish: engine.FinishStop}, {Text: "g", Finish: engine.FinishStop},
	} {
		o.push(&c)
	}
	var got []string
	for {
		c, err := o.Next()
		if err != nil {
			break
		}
		got = append(got, fmt.Sprintf("%d %s %s %v %v %s", c.Choice, c.Reasoning, c.Text, c.ToolCalls, c.Tokens, c.Finish))
	}
	want := []string{"0 ab c [{0 id  de}] [1 2] ", "1  x [] [] stop", "0  fg [] [] stop"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if o.bytes != 0 {
		t.Fatalf("%d bytes are said to lie unread", o.bytes)
	}
}
