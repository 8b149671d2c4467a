package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// desks is how many prompts are rendered and tokenised together. A long one takes a core for a good part of a second,
// which the steps need; more at once would only slow all streams.
const desks = 2

// Tokenize returns the tokens of a prompt.
func (s *scheduler) Tokenize(ctx context.Context, p engine.Prompt) ([]engine.Token, error) {
	return s.tokens(ctx, p)
}

// Generate queues a request.
func (s *scheduler) Generate(ctx context.Context, q *engine.Request) (engine.Stream, error) {
	if err := s.enter(ctx, q.Adapter); err != nil {
		return nil, err // before the work of rendering
	}
	r, err := s.prepare(ctx, q)
	s.mu.Lock()
	s.coming--
	for err == nil && s.closed == nil && s.controls.begun(q.Adapter) {
		err = s.await(ctx, &s.controls.held) // it passed enter before the change came
	}
	if err == nil {
		err = s.arrive(r, q.Adapter)
	}
	s.mu.Unlock()
	s.nudge()
	if err != nil {
		return nil, err
	}
	for i := range r.over {
		r.out.push(&r.over[i])
	}
	unhook := context.AfterFunc(ctx, func() { s.cancel(r, context.Cause(ctx)) })
	return &hooked{output: r.out, unhook: unhook}, nil
}

// hooked forgets about the caller's context when the stream is closed.
type hooked struct {
	*output
	unhook func() bool
}

// Close cancels the request if it still runs.
func (h *hooked) Close() error {
	h.unhook()
	return h.output.Close()
}

// enter counts a call as coming, or says why no request is taken. It waits while the adapter is being changed.
func (s *scheduler) enter(ctx context.Context, adapter string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if err := s.refusal(); err != nil {
			return err
		}
		if !s.controls.changing(adapter) {
			s.coming++
			return nil
		}
		if err := s.await(ctx, &s.controls.held); err != nil {
			return err
		}
	}
}

// await waits for something to end. waiting counts those who do; one more than may wait gets engine.ErrBusy. s.mu is held
// before and after.
func (s *scheduler) await(ctx context.Context, waiting *int) error {
	if *waiting >= s.limits.waiting {
		return engine.ErrBusy
	}
	*waiting++
	defer func() { *waiting-- }()
	changed := s.changed
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refusal says why no request is taken. s.mu is held.
func (s *scheduler) refusal() error {
	switch {
	case s.closed != nil:
		return s.closed
	case s.draining:
		return engine.ErrDraining
	case s.state.full():
		return engine.ErrBusy
	}
	return nil
}

// arrive queues r, unless nothing is left to be made of it. s.mu is held.
func (s *scheduler) arrive(r *request, adapter string) error {
	if err := s.refusal(); err != nil {
		return err
	}
	if r.adapter = s.state.adapters[adapter]; r.adapter == nil {
		return unknown(adapter)
	}
	if len(r.over) > 0 {
		return nil
	}
	r.arrived = s.opts.Clock.Now()
	s.gather.arrive(r.arrived, s.state.size() == 0)
	return s.state.arrive(r)
}

// prepare renders, tokenises and checks q, in the caller's goroutine.
func (s *scheduler) prepare(ctx context.Context, q *engine.Request) (*request, error) {
	if err := q.ResumeError(s.limits.vocab, s.limits.context); err != nil {
		return nil, err
	}
	switch {
	case q.Format == engine.FormatText:
	case q.Format != engine.FormatJSONObject:
		return nil, &engine.InvalidError{Field: "response_format", Message: fmt.Sprintf("this engine has no format %q", q.Format)}
	case s.opts.JSONObject == nil:
		return nil, &engine.InvalidError{Field: "response_format", Message: "this engine can't hold the output to JSON"}
	}
	tokens, err := s.tokens(ctx, q.Prompt)
	if err != nil {
		return nil, err
	}
	g, err := s.limits.judge(len(tokens), field(q.Prompt), q)
	if err != nil {
		return nil, err
	}
	for t := range q.Sampling.LogitBias {
		if t < 0 || int(t) >= s.limits.vocab {
			return nil, &engine.InvalidError{Field: "logit_bias", Message: fmt.Sprintf("token %d is outside the vocabulary of %d", t, s.limits.vocab)}
		}
	}
	choices := max(1, q.Choices)
	text := int64(0)
	if q.Name.Blocks > 0 {
		for _, t := range tokens {
			text += int64(len(s.loaded.Vocabulary.Piece(t)))
		}
	}
	r := &request{id: q.ID, priority: q.Priority, salt: q.CacheSalt, grant: g, ignoreEOS: q.IgnoreEOS, name: q.Name, text: text, out: newOutput(len(tokens), choices)}
	r.out.cancel = func(err error) { s.cancel(r, err) }
	// Room for the first of the output; the caller's slice stays as it is.
	own := append(make([]engine.Token, 0, len(tokens)+q.Made()+min(g.most, 256)), tokens...)
	for i := range choices {
		r.runs = append(r.runs, s.choice(r, q, i, own))
	}
	r.runs[0].tokens = own
	return r, s.resume(r, q)
}

// choice makes the i-th choice of a request.
func (s *scheduler) choice(r *request, q *engine.Request, i int, prompt []engine.Token) *run {
	c := &run{request: r, choice: i, voice: voice{text: text{stops: q.Stop}, request: q.ID, choice: i, logprobs: q.Logprobs}}
	if q.Prompt.Chat != nil && s.loaded.Splitter != nil && !onlyJSON(q) {
		c.voice.splitter = s.loaded.Splitter(q.Prompt.Chat)
	}
	o := sampling.Options{Prompt: prompt, Logprobs: q.Logprobs, TopLogprobs: q.TopLogprobs}
	if least := r.grant.least; least > 0 {
		o.Forbid = func(t engine.Token) bool { return c.generated < least && s.loaded.Vocabulary.EndsGeneration(t) }
	}
	if q.Format == engine.FormatJSONObject {
		o.Constraint = s.opts.JSONObject()
	}
	how := q.Sampling
	how.Seed += uint64(i)
	c.sampler = s.opts.Sampler(how, o)
	return c
}

// onlyJSON reports whether the output is an object and nothing to tell apart: where the template lets the answer begin within
// reasoning, the object would be taken for that. A call of a tool may be an object.
func onlyJSON(q *engine.Request) bool {
	return q.Format == engine.FormatJSONObject && len(q.Prompt.Chat.Tools) == 0
}

// field is where a prompt stands in a request.
func field(p engine.Prompt) string {
	if p.Chat != nil {
		return "messages"
	}
	return "prompt"
}

// tokens renders and tokenises a prompt, in the caller's goroutine, when there is a desk for it. It returns ctx's cause
// when ctx ends before that.
func (s *scheduler) tokens(ctx context.Context, p engine.Prompt) ([]engine.Token, error) {
	v := s.loaded.Vocabulary
	if p.Tokens != nil {
		for i, t := range p.Tokens {
			if t < 0 || int(t) >= s.limits.vocab {
				return nil, &engine.InvalidError{Field: "prompt",
					Message: fmt.Sprintf("token %d at index %d is outside the vocabulary of %d", t, i, s.limits.vocab)}
			}
		}
		return p.Tokens, nil
	}
	if err := s.sit(ctx); err != nil {
		return nil, err
	}
	defer func() { <-s.desks }()
	content := p.Text
	if p.Chat != nil {
		rendered, err := v.Render(*p.Chat)
		if err != nil {
			return nil, invalid("messages", err)
		}
		content = rendered
	}
	tokens, err := v.Tokenize(content, true)
	if err != nil {
		return nil, invalid(field(p), err)
	}
	return tokens, nil
}

// sit takes a desk.
func (s *scheduler) sit(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case s.desks <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// invalid makes err one that names a field, unless it does so already.
func invalid(field string, err error) error {
	if known := (*engine.InvalidError)(nil); errors.As(err, &known) {
		if known.Field != "" {
			return err
		}
		named := *known
		named.Field = field
		return &named
	}
	return &engine.InvalidError{Field: field, Message: err.Error()}
}
