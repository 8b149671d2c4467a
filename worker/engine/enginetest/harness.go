// Package enginetest holds every engine.Engine to one contract. It is a test suite that a driver runs against itself: what
// streams, counts, refuses, cancels, drains and closes how. It decides what the contract means where words leave room, and
// knows no driver: what an engine can't do it says by its Caps or by an *engine.InvalidError, and that is a "no" in the
// table; what it claims and does not do is a failing test.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// Harness says how an engine is opened and what it can be asked.
type Harness struct {
	// Name stands above the engine's column of the table.
	Name string
	// New returns an engine that serves and has nothing to do. The suite closes it.
	New func(t *testing.T) engine.Engine
	// Chat holds messages that the model answers in at least 8 tokens.
	Chat string
	// Text is continued by the model for at least 64 tokens.
	Text string
	// Long is a word, with a space before it, that is at least one token.
	Long string
	// ToolChat holds messages after which the model calls a tool of Tools by itself. It is needed where Caps.Tools is.
	ToolChat, Tools string
	// JSONChat holds messages that ask for JSON. It is needed where Caps.JSONObject is.
	JSONChat string
	// Adapter is one that changes what the model says after Text. It is needed where Caps.Adapters is.
	Adapter engine.Adapter
	// Lose takes the model away from an engine that serves, as its crash would; nil where a test can't.
	Lose func(t *testing.T, e engine.Engine)
	// Patience is how long one request may take before it counts as hanging; 0 means 60 s.
	Patience time.Duration
	// Wide is continued by the model with characters of several bytes. It is needed where Caps.Resumes is.
	Wide string
	// Exact: an engine goes on with the tokens of an output, not with its text. So what comes is what would have come, but for
	// what another batch shape may change. Such an engine has Caps.Logprobs.
	Exact bool
	// Sequences is how many long requests fill the engine, so that one more waits; 0 means Info().Caps.MaxSeqs.
	Sequences int
}

// capability is a row of the table and the test behind it. The test says nothing where all is well, and calls no where
// the engine does not offer it.
type capability struct {
	name string
	test func(r *rig)
}

func capabilities() []capability {
	return []capability{
		{"streams text and chats in order", (*rig).streams},
		{"counts tokens, ends at max_tokens", (*rig).counts},
		{"goes on to the context's end", (*rig).fills},
		{"names the tokens it makes", (*rig).names},
		{"several choices", (*rig).choices},
		{"stop strings across tokens", (*rig).stops},
		{"goes on with what another engine made", (*rig).resumes},
		{"cancel while decoding, by context and by Close", (*rig).cancelsDecode},
		{"cancel during the prompt", (*rig).cancelsPrompt},
		{"cancel while queued", (*rig).cancelsQueued},
		{"concurrent load without mix-ups", (*rig).load},
		{"drain", (*rig).drains},
		{"close", (*rig).closes},
		{"bad requests are refused by code", (*rig).refuses},
		{"tokenise round trip", (*rig).tokenises},
		{"equal requests, equal answers", (*rig).repeats},
		{"stats add up", (*rig).stats},
		{"prefix reuse", (*rig).reuses},
		{"cache salts", (*rig).salts},
		{"min_tokens", (*rig).minimum},
		{"ignore_eos", (*rig).ignoresEnd},
		{"logit_bias", (*rig).bias},
		{"log probabilities", (*rig).logprobs},
		{"JSON object", (*rig).object},
		{"JSON schema", (*rig).schema},
		{"tool calls", (*rig).tools},
		{"LoRA adapters", (*rig).adapters},
		{"embeddings", (*rig).embeddings},
		{"output that nobody reads", (*rig).unread},
		{"a model that is lost", (*rig).loses},
	}
}

// Run holds an engine to the contract and returns its column of the table.
func Run(t *testing.T, h Harness) Report {
	t.Helper()
	if h.Patience == 0 {
		h.Patience = time.Minute
	}
	report := Report{Engine: h.Name}
	for _, c := range capabilities() {
		row := Row{Capability: c.name, Result: NotRun}
		passed := t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			r := &rig{T: t, h: h}
			r.e = h.New(t)
			t.Cleanup(func() {
				if err := r.e.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			c.test(r)
			row.Why, row.Result = r.missing, Yes
		})
		switch {
		case !passed:
			row.Result, row.Why = Failed, ""
		case row.Why != "":
			row.Result = No
		}
		report.Rows = append(report.Rows, row)
	}
	return report
}

// rig is one test on one engine.
type rig struct {
	*testing.T
	h       Harness
	e       engine.Engine
	missing string
	n       int
}

// no says that the engine does not offer what is tested. The test should return.
func (r *rig) no(why string) { r.missing = why }

// offered tells an error by which an engine says that it does not offer something. The field is the parameter's name.
func (r *rig) offered(err error, field string) bool {
	var invalid *engine.InvalidError
	if !errors.As(err, &invalid) {
		return true
	}
	if invalid.Field != field {
		r.Errorf("what is not offered is refused by the field %q; expected %q", invalid.Field, field)
	}
	r.no("refused")
	return false
}

func (r *rig) chat() engine.Prompt {
	return engine.Prompt{Chat: &engine.Chat{Messages: []byte(r.h.Chat)}}
}

func (r *rig) text() engine.Prompt { return engine.Prompt{Text: r.h.Text} }

// long is a prompt of about so many tokens that no other request has as its beginning.
func (r *rig) long(tokens int) engine.Prompt {
	r.n++
	return engine.Prompt{Text: fmt.Sprintf("%d%d.", time.Now().UnixNano(), r.n) + strings.Repeat(r.h.Long, tokens)}
}

// request is a greedy one for tokens.
func (r *rig) request(p engine.Prompt, tokens int, change ...func(*engine.Request)) *engine.Request {
	r.n++
	q := &engine.Request{ID: fmt.Sprintf("%s-%d", r.Name(), r.n), Prompt: p, MaxTokens: tokens, Sampling: engine.Sampling{Seed: 7}}
	for _, c := range change {
		c(q)
	}
	return q
}

// within is the time of one request.
func (r *rig) within() context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), r.h.Patience, fmt.Errorf("nothing for %s: it hangs", r.h.Patience))
	r.Cleanup(cancel)
	return ctx
}

// answer runs a request to its end and fails where there is none.
func (r *rig) answer(q *engine.Request) output {
	r.Helper()
	out, err := r.try(q)
	if err != nil {
		r.Fatalf("the request failed: %v", err)
	}
	return out
}

// try runs a request to its end.
func (r *rig) try(q *engine.Request) (output, error) {
	s, err := r.e.Generate(r.within(), q)
	if err != nil {
		return output{}, err
	}
	defer s.Close() //nolint:errcheck // it has ended, or is cancelled
	return gather(s, max(q.Choices, 1))
}

// output is all that a request gave.
type output struct {
	prompt  int
	chunks  int
	choices []choice
}

// choice is all of one choice.
type choice struct {
	text, reasoning string
	tokens          []engine.Token
	logprobs        []engine.Logprob
	calls           []engine.ToolCall
	finish          engine.FinishReason
	usage           engine.Usage
}

// gather reads a stream to its end and holds it to the order of things.
func gather(s engine.Stream, choices int, seen ...func(engine.Chunk)) (output, error) {
	out := output{prompt: s.PromptTokens(), choices: make([]choice, choices)}
	for {
		chunk, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return out, err
		}
		out.chunks++
		for _, f := range seen {
			f(chunk)
		}
		if err := out.add(chunk); err != nil {
			return out, err
		}
	}
	for i, c := range out.choices {
		if c.finish == "" {
			return out, fmt.Errorf("the stream ended, and choice %d had no reason to", i)
		}
	}
	if _, err := s.Next(); !errors.Is(err, io.EOF) {
		return out, fmt.Errorf("after its end the stream gave another error than io.EOF: %w", err)
	}
	return out, nil
}

func (o *output) add(chunk engine.Chunk) error {
	if chunk.Choice < 0 || chunk.Choice >= len(o.choices) {
		return fmt.Errorf("a chunk is of choice %d; there are %d", chunk.Choice, len(o.choices))
	}
	c := &o.choices[chunk.Choice]
	if c.finish != "" {
		return fmt.Errorf("choice %d goes on after its end", chunk.Choice)
	}
	if !utf8.ValidString(chunk.Text) || !utf8.ValidString(chunk.Reasoning) {
		return errors.New("a chunk cuts a character in two")
	}
	c.text += chunk.Text
	c.reasoning += chunk.Reasoning
	c.tokens = append(c.tokens, chunk.Tokens...)
	c.logprobs = append(c.logprobs, chunk.Logprobs...)
	for _, call := range chunk.ToolCalls {
		if err := c.call(call); err != nil {
			return err
		}
	}
	c.finish, c.usage = chunk.Finish, chunk.Usage
	return nil
}

// call joins the pieces of calls.
func (c *choice) call(p engine.ToolCall) error {
	switch {
	case p.Index == len(c.calls) && p.ID != "" && p.Name != "":
		c.calls = append(c.calls, p)
	case p.Index < len(c.calls) && p.Index >= 0 && p.ID == "" && p.Name == "":
		c.calls[p.Index].Arguments += p.Arguments
	default:
		return fmt.Errorf("a piece of call %d comes after %d calls, with id %t and name %t", p.Index, len(c.calls), p.ID != "", p.Name != "")
	}
	return nil
}

// eventually waits for a condition as long as a request may take.
func (r *rig) eventually(what string, holds func() bool) {
	r.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	over := r.within()
	for !holds() {
		select {
		case <-tick.C:
		case <-over.Done():
			r.Fatalf("%s: not within %s; the engine's figures are %+v", what, r.h.Patience, figures(r.e.Stats()))
		}
	}
}

// quiet waits until the engine has nothing to do and holds no blocks for requests.
func (r *rig) quiet() {
	r.Helper()
	r.eventually("all requests have left", func() bool {
		s := r.e.Stats()
		return s.Running == 0 && s.Waiting == 0 && len(s.RequestIDs) == 0 && (s.KVBlocksUsed == nil || *s.KVBlocksUsed == 0)
	})
}

// figures are a Stats with its pointers followed.
func figures(s engine.Stats) string {
	used := "unknown"
	if s.KVBlocksUsed != nil {
		used = fmt.Sprint(*s.KVBlocksUsed)
	}
	return fmt.Sprintf("running %d, waiting %d, blocks used %s, requests %q", s.Running, s.Waiting, used, s.RequestIDs)
}
