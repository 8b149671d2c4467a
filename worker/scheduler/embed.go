package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// passing is an engine.Embedder that computes a long input in several passes. begin is called, by the goroutine that is in
// Embed, before each of them, with the tokens that it has.
type passing interface {
	EachPass(begin func(tokens int))
}

// Embed returns one vector for each input. Inputs are computed between steps, no more tokens at once than one step has
// (but a whole input): streams wait for at most that between two of their tokens. Of several calls each has a part in turn.
func (s *scheduler) Embed(ctx context.Context, q *engine.EmbedRequest) (*engine.Embeddings, error) {
	e, tokens, err := s.embedding(ctx, q)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if err = s.embedRefusal(); err == nil {
		s.controls.embeds = append(s.controls.embeds, e)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.nudge()
	select {
	case err := <-e.done:
		if err != nil {
			return nil, err
		}
		return &engine.Embeddings{Vectors: e.vectors, PromptTokens: tokens}, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.gone = true
	if e.abort != nil {
		e.abort()
	} else {
		s.dismiss(e)
	}
	return nil, context.Cause(ctx)
}

// embedding checks and tokenises q, and returns how many tokens it has.
func (s *scheduler) embedding(ctx context.Context, q *engine.EmbedRequest) (*embedding, int, error) {
	if _, able := s.loaded.Executor.(engine.Embedder); !able || !s.caps.Embeddings {
		return nil, 0, &engine.InvalidError{Field: "model", Message: "this model makes no embeddings"}
	}
	s.mu.Lock()
	err := s.embedRefusal() // before the work of tokenising
	s.mu.Unlock()
	if err != nil {
		return nil, 0, err
	}
	e, total := &embedding{id: q.ID, done: make(chan error, 1)}, 0
	for i, in := range q.Inputs {
		if in.Chat != nil {
			return nil, 0, &engine.InvalidError{Field: "input", Message: fmt.Sprintf("input %d is a chat", i)}
		}
		tokens, err := s.tokens(ctx, in)
		if err != nil {
			return nil, 0, err
		}
		if n := len(tokens); n == 0 {
			return nil, 0, &engine.InvalidError{Field: "input", Message: fmt.Sprintf("input %d has no tokens", i)}
		} else if n > s.limits.context {
			return nil, 0, &engine.InvalidError{Field: "input", Code: engine.CodeContextLength,
				Message: fmt.Sprintf("input %d has %d tokens; the context holds %d", i, n, s.limits.context)}
		}
		e.inputs = append(e.inputs, tokens)
		total += len(tokens)
	}
	if len(e.inputs) == 0 {
		return nil, 0, &engine.InvalidError{Field: "input", Message: "there are no inputs"}
	}
	return e, total, nil
}

// embedRefusal says why no call is taken. s.mu is held.
func (s *scheduler) embedRefusal() error {
	switch {
	case s.closed != nil:
		return s.closed
	case s.draining:
		return engine.ErrDraining
	case len(s.controls.embeds) >= s.limits.waiting:
		return engine.ErrBusy
	}
	return nil
}

// dismiss takes e out. s.mu is held.
func (s *scheduler) dismiss(e *embedding) {
	s.controls.embeds = slices.DeleteFunc(s.controls.embeds, func(x *embedding) bool { return x == e })
	s.announce()
}

// embed computes the next part of the first call. It returns false where there is none, and an error only where the
// executor can't go on.
func (s *scheduler) embed(ctx context.Context) (bool, error) {
	s.mu.Lock()
	if len(s.controls.embeds) == 0 {
		s.mu.Unlock()
		return false, nil
	}
	partCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := s.controls.embeds[0]
	e.abort = cancel
	s.mu.Unlock()

	part, tokens := e.part(s.limits.stepTokens)
	s.begin(tokens)
	vectors, err := s.loaded.Executor.(engine.Embedder).Embed(partCtx, part)
	s.opts.Progress.end()

	s.mu.Lock()
	defer s.mu.Unlock()
	e.abort = nil
	e.vectors = append(e.vectors, vectors...)
	if err == nil {
		s.state.totals.computed += int64(tokens)
	}
	switch {
	case ctx.Err() != nil: // endAll answers
	case e.gone:
		s.dismiss(e)
	case err != nil:
		s.dismiss(e)
		e.done <- fmt.Errorf("scheduler: embed: %w", err)
	case len(e.vectors) >= len(e.inputs):
		s.dismiss(e)
		e.done <- nil
	default:
		s.controls.embeds = append(s.controls.embeds[1:], e)
	}
	if errors.Is(err, engine.ErrFatal) {
		return true, err
	}
	return true, nil
}

// begin books that the device is at so many tokens of inputs.
func (s *scheduler) begin(tokens int) {
	s.opts.Progress.begin(s.opts.Clock.Now(), (tokens+s.limits.stepTokens-1)/s.limits.stepTokens)
}

// part is the next inputs, of so many tokens together, but at least one, and how many tokens they have.
func (e *embedding) part(most int) (inputs [][]engine.Token, tokens int) {
	from := len(e.vectors)
	to, n := from+1, len(e.inputs[from])
	for to < len(e.inputs) && n+len(e.inputs[to]) <= most {
		n += len(e.inputs[to])
		to++
	}
	return e.inputs[from:to], n
}

// left is how many tokens of inputs have no vector yet.
func (e *embedding) left() int {
	n := 0
	for _, in := range e.inputs[len(e.vectors):] {
		n += len(in)
	}
	return n
}
