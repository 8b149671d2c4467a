package scheduler

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// run drives the executor until ctx ends or the executor breaks.
func (s *scheduler) run(ctx context.Context) {
	defer close(s.done)
	var seen StepRecord
	for ctx.Err() == nil {
		if err := s.once(ctx, &seen); err != nil && ctx.Err() == nil {
			s.breakDown(err)
			return // without closing an executor in an unknown state
		}
	}
	s.endAll(engine.ErrClosed)
	s.opts.Progress.begin(s.opts.Clock.Now(), 1)
	s.err = s.loaded.Executor.Close()
	s.opts.Progress.end()
}

// once does all that is to be done next: a change of adapters, a step, a part of an embedding; or it waits for work. It
// returns an error only where the executor can't go on.
func (s *scheduler) once(ctx context.Context, seen *StepRecord) error {
	changed, err := s.changeAdapter()
	if err != nil {
		return err
	}
	p, stepCtx, wait := s.next(ctx)
	if p != nil {
		if err := s.step(stepCtx, p, seen); err != nil {
			return err
		}
	}
	embedded, err := s.embed(ctx)
	s.tell()
	if err != nil || changed || embedded || p != nil {
		return err
	}
	s.sleep(ctx, wait)
	return nil
}

// next returns the next step and the context that it runs in. Without one it says how long to wait, 0 being until something
// comes.
func (s *scheduler) next(ctx context.Context) (*plan, context.Context, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.state.active) == 0 && len(s.state.queue) > 0 {
		if wait := s.gather.left(s.opts.Clock.Now(), s.state.plenty(), s.coming > 0); wait > 0 {
			return nil, nil, wait
		}
	}
	p := s.state.next()
	if p.empty() {
		return nil, nil, 0
	}
	if p.prefill > 0 && s.caps.AbortMidStep {
		ctx, s.abort = context.WithCancel(ctx)
		s.current = p
	}
	return p, ctx, 0
}

// sleep waits for a nudge, or for a time where it isn't 0.
func (s *scheduler) sleep(ctx context.Context, wait time.Duration) {
	var over <-chan time.Time
	if wait > 0 {
		timer := s.opts.Clock.NewTimer(wait)
		defer timer.Stop()
		over = timer.C()
	}
	select {
	case <-s.wake:
	case <-over:
	case <-ctx.Done():
	}
}

// step runs p and hands out what came of it.
func (s *scheduler) step(ctx context.Context, p *plan, seen *StepRecord) error {
	*seen = StepRecord{
		Prefill: p.prefill, Decode: p.decode, Sequences: len(p.runs), Preempted: p.preempted,
		FirstTokens: seen.FirstTokens[:0], TokenGaps: seen.TokenGaps[:0],
	}
	start := s.opts.Clock.Now()
	s.opts.Progress.begin(start, 1)
	runtime.Gosched() // streams send what the last step made; Go takes up to 10 ms to see that a thread has gone into C
	result, err := s.loaded.Executor.Step(ctx, &p.batch)
	s.opts.Progress.end()
	aborted := s.over()
	switch {
	case errors.Is(err, engine.ErrNoKV):
		return s.shed(p)
	case errors.Is(err, engine.ErrAborted) && aborted:
		s.mu.Lock()
		s.state.aborted(p)
		s.mu.Unlock()
		seen.Aborted, seen.Took = true, s.opts.Clock.Since(start)
	case err != nil:
		return err
	default:
		s.finish(p, result, start, seen)
	}
	if s.opts.Observer != nil && len(p.batch.Items) > 0 {
		s.opts.Observer.Stepped(seen)
	}
	return nil
}

// over books that no step is under way, and returns whether the last one was broken off.
func (s *scheduler) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return false
	}
	aborted := s.current.worthless()
	s.abort()
	s.current, s.abort = nil, nil
	return aborted
}

// finish chooses the tokens of a step and hands them out.
func (s *scheduler) finish(p *plan, result *engine.Result, start time.Time, seen *StepRecord) {
	ran := s.opts.Clock.Now()
	choose(p.draws, result.Logits)
	now := s.opts.Clock.Now()
	seen.Took, seen.Sampling = now.Sub(start), now.Sub(ran)

	s.mu.Lock()
	events := s.state.apply(p, now, seen)
	for i := range events {
		s.leave(events[i].request, events[i].err)
	}
	if p.prefill > 0 {
		s.prefill.add(seen.Took, p.prefill)
	}
	if p.decode > 0 {
		s.decode.add(seen.Took, p.decode)
	}
	s.mu.Unlock()
	for i := range events {
		switch e := &events[i]; {
		case e.err != nil:
			e.request.out.end(unchosen(e.err))
		case !e.request.out.push(&e.chunk):
			s.cancel(e.request, errSlowReader)
		}
	}
}

// unchosen is why a request ends for which there is no token: a model that is broken, or what the request itself rules out.
func unchosen(err error) error {
	if errors.Is(err, sampling.ErrNoneAllowed) {
		return &engine.InvalidError{Field: "logit_bias", Message: "logit_bias, response_format and min_tokens together rule out every token that could come next"}
	}
	return fmt.Errorf("scheduler: no token could be chosen: %w", err)
}

// shed gives way to a device that has fewer cells than it said, so that it doesn't stop the worker: what is cached goes
// first, then the last request in the order.
func (s *scheduler) shed(p *plan) error {
	s.mu.Lock()
	helped := s.state.refused(p)
	var victim *request
	if n := len(s.state.active); n > 0 && !helped {
		victim = s.state.active[n-1].request
	}
	s.mu.Unlock()
	switch {
	case helped:
		s.opts.Log.Info("The executor has fewer KV cells than it said; what was cached was dropped")
	case victim == nil && len(p.runs) == 0:
		return fmt.Errorf("scheduler: no request is active, yet %w", engine.ErrNoKV)
	case victim != nil:
		s.opts.Log.Info("The executor has fewer KV cells than it said; the last request was ended", "request", victim.id)
		s.cancel(victim, engine.ErrNoKV)
	}
	return nil
}

// tell passes on which requests have ended.
func (s *scheduler) tell() {
	s.mu.Lock()
	records := s.records
	s.records = nil
	s.mu.Unlock()
	for i := range records {
		s.opts.Observer.Ended(&records[i])
	}
}

// breakDown ends everything because the executor can't go on. That is said before the requests end, so that none of them is
// sent here again.
func (s *scheduler) breakDown(err error) {
	err = fmt.Errorf("scheduler: the model can't go on: %w", err)
	s.mu.Lock()
	s.broken = err
	s.closed = fmt.Errorf("%w: %w", engine.ErrNotLoaded, err)
	s.mu.Unlock()
	if s.opts.Broken != nil {
		s.opts.Broken(err)
	}
	s.endAll(err)
}

// endAll ends every request with why and takes no more.
func (s *scheduler) endAll(why error) {
	s.mu.Lock()
	if s.closed == nil {
		s.closed = why
	}
	var all []*request
	for _, list := range [][]*run{s.state.active, s.state.queue} {
		for _, r := range list {
			all = append(all, r.request)
		}
	}
	for _, r := range all {
		if !r.done() {
			s.state.end(r)
			s.leave(r, why)
		}
	}
	changes, embeds := s.controls.changes, s.controls.embeds
	s.controls.changes, s.controls.embeds = nil, nil
	s.announce()
	s.mu.Unlock()
	for _, r := range all {
		r.out.end(why)
	}
	for _, c := range changes {
		c.done <- why
	}
	for _, e := range embeds {
		e.done <- why
	}
	s.tell()
}
