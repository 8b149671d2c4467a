package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/scheduler"
)

// served is the demo model with a scheduler before it.
func served(t *testing.T) engine.Engine {
	t.Helper()
	l, err := Open(options(t))
	if err != nil {
		t.Fatal(err)
	}
	e, err := scheduler.New(l, scheduler.Options{MaxSequences: 4, MaxWaiting: 16, StepTokens: scheduler.StepTokensCPU,
		Clock: clock.RealClock{}, Log: logr.Discard(), Broken: func(err error) { t.Errorf("the model is broken: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// outcome is how many tokens a request has made, and its error.
func outcome(e engine.Engine, q *engine.Request) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := e.Generate(ctx, q)
	if err != nil {
		return 0, err
	}
	defer s.Close() //nolint:errcheck // only cancels
	return rest(s)
}

// rest reads a stream to its end, and returns how many tokens its one choice has.
func rest(s engine.Stream) (n int, err error) {
	for {
		c, err := s.Next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n = max(n, c.Usage.Completion)
	}
}

// bad are requests that the model can't run, with the field that their refusal names; "" where it may as well run them.
func bad(e engine.Engine) map[string]struct {
	prompt engine.Prompt
	field  string
} {
	type row = struct {
		prompt engine.Prompt
		field  string
	}
	vocab, context := e.Info().Vocab, e.Info().ContextTokens
	messages := func(s string) engine.Prompt { return engine.Prompt{Chat: &engine.Chat{Messages: []byte(s)}} }
	rows := map[string]row{
		"no text":                                 {engine.Prompt{}, "prompt"},
		"no tokens":                               {engine.Prompt{Tokens: []engine.Token{}}, "prompt"},
		"a token below the vocabulary":            {engine.Prompt{Tokens: []engine.Token{1, -1}}, "prompt"},
		"a token above the vocabulary":            {engine.Prompt{Tokens: []engine.Token{1, engine.Token(vocab)}}, "prompt"},
		"the least token there is":                {engine.Prompt{Tokens: []engine.Token{-1 << 31}}, "prompt"},
		"as many tokens as the context":           {engine.Prompt{Tokens: make([]engine.Token, context)}, "prompt"},
		"a text beyond the context":               {engine.Prompt{Text: strings.Repeat("one two ", context)}, "prompt"},
		"10 MB of one character":                  {engine.Prompt{Text: strings.Repeat("a", 10<<20)}, "prompt"},
		"a chat of 10 MB of one character":        {messages(`[{"role":"user","content":"` + strings.Repeat("a", 10<<20) + `"}]`), "messages"},
		"a chat of many messages":                 {messages(`[` + strings.Repeat(`{"role":"user","content":"x"},`, 20_000) + `{"role":"user"}]`), "messages"},
		"bytes that are no text":                  {engine.Prompt{Text: "\xff\xfe\x80 and \xf0\x9f"}, ""},
		"a text of NUL":                           {engine.Prompt{Text: "\x00\x00"}, ""},
		"special tokens of the model's":           {engine.Prompt{Text: "<|im_start|><|im_end|><|endoftext|>"}, ""},
		"a chat of bytes that are no text":        {messages("[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]"), ""},
		"half a surrogate":                        {messages(`[{"role":"user","content":"\ud800 \udc00\ud800"}]`), ""},
		"a chat of NUL":                           {messages(`[{"role":"user","content":"\u0000"}]`), ""},
		"a message without a role":                {messages(`[{"content":"x"}]`), ""},
		"a role that nobody has":                  {messages(`[{"role":"user2","content":"x"}]`), ""},
		"a role that is a number":                 {messages(`[{"role":1,"content":"x"}]`), ""},
		"content null":                            {messages(`[{"role":"user","content":null}]`), ""},
		"content that is a number":                {messages(`[{"role":"user","content":1e999}]`), ""},
		"content of no parts":                     {messages(`[{"role":"user","content":[]}]`), ""},
		"a call of a tool with null for content":  {messages(`[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"y"}]`), ""},
		"a call of a tool without content":        {messages(`[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{]"}}]},{"role":"tool","tool_call_id":"1","content":""}]`), ""},
		"a call of a tool of no parts":            {messages(`[{"role":"assistant","content":[],"tool_calls":"x"}]`), ""},
		"no messages":                             {messages(`[]`), "messages"},
		"messages that are null":                  {messages(`null`), "messages"},
		"messages that are a text":                {messages(`"hi"`), "messages"},
		"messages that are cut off":               {messages(`[{"role":"user","content":"x"`), "messages"},
		"a message that is null":                  {messages(`[null]`), "messages"},
		"a message that nests without an end":     {messages(strings.Repeat("[", 1<<20)), "messages"},
		"a member that nests without an end":      {messages(`[{"role":` + strings.Repeat(`{"a":`, 1<<18)), "messages"},
		"nothing at all where messages should be": {messages(""), "messages"},
	}
	return rows
}

func TestBadRequestsLeaveANeighboursStreamAndEveryBlockAlone(t *testing.T) {
	e := served(t)
	long := &engine.Request{ID: "neighbour", MaxTokens: 600, IgnoreEOS: true,
		Prompt: engine.Prompt{Chat: &engine.Chat{Messages: []byte(paris)}}}
	s, err := e.Generate(context.Background(), long)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // only cancels
	for name, c := range bad(e) {
		_, err := outcome(e, &engine.Request{ID: name, Prompt: c.prompt, MaxTokens: 2})
		var invalid *engine.InvalidError
		switch {
		case err == nil && c.field == "":
		case !errors.As(err, &invalid) || c.field != "" && invalid.Field != c.field || invalid.Message == "" || len(invalid.Message) > 1024:
			t.Errorf("%s: the error is %.300v, want one that names %q", name, err, c.field)
		}
		if err := e.Health(context.Background()); err != nil {
			t.Fatalf("%s: the model is unhealthy: %v", name, err)
		}
	}
	if n, err := rest(s); n != 600 || err != nil {
		t.Errorf("the neighbour made %d of 600 tokens and ended with %v", n, err)
	}
	if err := e.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if f := e.Stats(); f.Running+f.Waiting+len(f.RequestIDs) != 0 || f.KVBlocksUsed == nil || *f.KVBlocksUsed != 0 {
		t.Errorf("left is %s", figures(f))
	}
}

func figures(s engine.Stats) string {
	used := int64(-1)
	if s.KVBlocksUsed != nil {
		used = *s.KVBlocksUsed
	}
	return fmt.Sprintf("running %d, waiting %d, %q, %d blocks in use", s.Running, s.Waiting, s.RequestIDs, used)
}
