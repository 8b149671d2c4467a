package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// Sampler chooses the next token of one request. An error ends the request. It may change the logits.
type Sampler interface {
	Next(logits []float32) (engine.Token, error)
}

// Options say how a scheduler works.
type Options struct {
	// MaxSequences is the most requests that run together; the executor may allow fewer.
	MaxSequences int
	// MaxWaiting is the most requests that wait besides; one more is refused with engine.ErrBusy.
	MaxWaiting int
	// StepTokens is the most tokens in one step. A stream waits for the next token as long as one step takes, so a small
	// number keeps streams smooth while prompts are computed, and a large one computes prompts faster.
	StepTokens int
	// Sampler makes a request's own sampler.
	Sampler func(engine.Sampling) Sampler
	// Clock measures steps.
	Clock clock.PassiveClock
	Log   logr.Logger
	// Broken is called once, from the scheduler's goroutine, when the executor can't go on and the process must end.
	Broken func(error)
}

// StepTokensCPU is a good StepTokens for a CPU: a step of it takes some tenths of a second.
const StepTokensCPU = 128

// desks is how many prompts are rendered and tokenised together. A long one takes a core for a good part of a second,
// which the steps need; more at once would only slow all streams.
const desks = 2

// scheduler is an engine.Engine.
type scheduler struct {
	loaded *engine.Loaded
	opts   Options
	limits limits
	wake   chan struct{}
	stop   context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended
	desks  chan struct{} // holds a token for each prompt that is being rendered or tokenised
	err    error         // of closing the executor; read after done

	mu       sync.Mutex // guards the rest; held for microseconds, never during a step
	state    *state
	prefill  rate
	decode   rate
	draining bool
	closed   error         // why no request is taken any more
	broken   error         // why the executor can't go on
	ended    chan struct{} // closed and replaced whenever a request ends
}

// New starts a scheduler for a loaded model. Close it to free the model.
func New(loaded *engine.Loaded, o Options) (engine.Engine, error) {
	l, err := newLimits(o, loaded.Info, loaded.Executor.Caps())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &scheduler{
		loaded: loaded, opts: o, limits: l,
		wake: make(chan struct{}, 1), stop: cancel, done: make(chan struct{}), desks: make(chan struct{}, desks),
		state: newState(l, loaded.Vocabulary), ended: make(chan struct{}),
	}
	go s.run(ctx)
	return s, nil
}

// Info describes the loaded model.
func (s *scheduler) Info() engine.Info { return s.loaded.Info }

// Tokenize returns the tokens of a prompt.
func (s *scheduler) Tokenize(ctx context.Context, p engine.Prompt) ([]engine.Token, error) {
	return s.tokens(ctx, p)
}

// Generate queues a request.
func (s *scheduler) Generate(ctx context.Context, q *engine.Request) (engine.Stream, error) {
	if err := s.refusal(); err != nil {
		return nil, err // before the work of rendering
	}
	tokens, err := s.tokens(ctx, q.Prompt)
	if err != nil {
		return nil, err
	}
	granted, err := s.limits.judge(len(tokens), q.MaxTokens)
	if err != nil {
		return nil, err
	}
	r := &request{
		id: q.ID, prompt: tokens, grant: granted, text: text{stops: q.Stop},
		sampler: s.opts.Sampler(q.Sampling), out: newOutput(len(tokens)),
	}
	r.out.cancel = func(err error) { s.cancel(r, err) }

	s.mu.Lock()
	err = s.refusalLocked()
	if err == nil {
		err = s.state.arrive(r)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.nudge()
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

// refusal says why no request is taken.
func (s *scheduler) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusalLocked()
}

func (s *scheduler) refusalLocked() error {
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
	field, content := "prompt", p.Text
	if p.Chat != nil {
		rendered, err := v.Render(*p.Chat)
		if err != nil {
			return nil, invalid("messages", err)
		}
		field, content = "messages", rendered
	}
	tokens, err := v.Tokenize(content, true)
	if err != nil {
		return nil, invalid(field, err)
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
	if named := (*engine.InvalidError)(nil); errors.As(err, &named) {
		return err
	}
	return &engine.InvalidError{Field: field, Message: err.Error()}
}

// cancel ends r at any stage; a request that has ended stays as it is.
func (s *scheduler) cancel(r *request, why error) {
	s.mu.Lock()
	if r.phase != ended {
		s.state.end(r)
		s.announce()
	}
	s.mu.Unlock()
	r.out.end(why)
	s.nudge()
}

// announce tells Drain that a request has ended. s.mu is held.
func (s *scheduler) announce() {
	close(s.ended)
	s.ended = make(chan struct{})
}

func (s *scheduler) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run drives the executor until ctx ends or the executor breaks.
func (s *scheduler) run(ctx context.Context) {
	defer close(s.done)
	for ctx.Err() == nil {
		s.mu.Lock()
		p := s.state.next()
		s.mu.Unlock()
		if p.empty() {
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
			continue
		}
		if err := s.step(ctx, p); err != nil && ctx.Err() == nil {
			s.breakDown(err)
			return // without closing an executor in an unknown state
		}
	}
	s.endAll(engine.ErrClosed)
	s.err = s.loaded.Executor.Close()
}

// step runs p and hands out what came of it. It returns an error only where the executor can't go on.
func (s *scheduler) step(ctx context.Context, p *plan) error {
	start := s.opts.Clock.Now()
	result, err := s.loaded.Executor.Step(ctx, &p.batch)
	if errors.Is(err, engine.ErrNoKV) {
		return s.shed(p)
	}
	if err != nil {
		return err
	}
	tokens := s.sample(p, result)
	took := s.opts.Clock.Since(start)

	s.mu.Lock()
	events := s.state.apply(p, tokens)
	s.count(p, took)
	for _, e := range events {
		if e.chunk.Finish != "" {
			s.announce()
		}
	}
	s.mu.Unlock()
	s.send(events)
	return nil
}

// sample chooses the next token of each item that has logits.
func (s *scheduler) sample(p *plan, result *engine.Result) []engine.Token {
	tokens := make([]engine.Token, len(p.requests))
	for i, r := range p.requests {
		if !p.batch.Items[i].Logits {
			continue
		}
		var err error
		if tokens[i], err = r.sampler.Next(result.Logits[i]); err != nil {
			s.cancel(r, fmt.Errorf("scheduler: no token could be chosen: %w", err))
		}
	}
	return tokens
}

// count books the step's rates, each over the steps that had such work. s.mu is held.
func (s *scheduler) count(p *plan, took time.Duration) {
	if p.prefill > 0 {
		s.prefill.add(took, p.prefill)
	}
	if p.decode > 0 {
		s.decode.add(took, p.decode)
	}
}

func (s *scheduler) send(events []event) {
	for _, e := range events {
		if e.full {
			s.opts.Log.Info("A request without max_tokens ended because the KV cache is full",
				"request", e.request.id, "completionTokens", e.request.generated)
		}
		if !e.request.out.push(e.chunk) {
			s.cancel(e.request, ErrSlowReader)
		}
	}
}

// shed ends the youngest request of a step for which the executor had no cells, so that the others go on. The books say
// that this can't happen; a device whose cells are fewer than it said must not stop the worker.
func (s *scheduler) shed(p *plan) error {
	s.mu.Lock()
	s.state.undo(p)
	var victim *request
	if n := len(s.state.active); n > 0 {
		victim = s.state.active[n-1]
	}
	s.mu.Unlock()
	if victim == nil {
		return fmt.Errorf("scheduler: no request is active, yet %w", engine.ErrNoKV)
	}
	s.opts.Log.Info("The executor has fewer KV cells than it said; the youngest request was ended", "request", victim.id)
	s.cancel(victim, engine.ErrNoKV)
	return nil
}

// breakDown ends everything because the executor can't go on.
func (s *scheduler) breakDown(err error) {
	err = fmt.Errorf("scheduler: a step of the model ended with an error: %w", err)
	s.mu.Lock()
	s.broken = err
	s.mu.Unlock()
	s.endAll(err)
	if s.opts.Broken != nil {
		s.opts.Broken(err)
	}
}

// endAll ends every request with why and takes no more.
func (s *scheduler) endAll(why error) {
	s.mu.Lock()
	s.closed = why
	all := append(append([]*request(nil), s.state.active...), s.state.queue...)
	for _, r := range all {
		s.state.end(r)
	}
	s.announce()
	s.mu.Unlock()
	for _, r := range all {
		r.out.end(why)
	}
}
