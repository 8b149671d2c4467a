package scheduler

import (
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/kvcache"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// event is output of one request, or its end where err is set. A chunk may end its choice.
type event struct {
	request *request
	chunk   engine.Chunk
	err     error
}

// apply books a finished step whose draws have been made. now is for the Observer's figures only, which seen gets. The
// events are valid until the next call, the slices in their chunks too.
func (s *state) apply(p *plan, now time.Time, seen *StepRecord) []event {
	s.totals.computed += int64(p.prefill + p.decode)
	for i, r := range p.runs {
		s.cache.Append(r.table, s.raw(p.batch.Items[i].Tokens))
		r.busy = 0
		if r.phase == ended {
			s.close(r)
		} else if r.request.started.IsZero() {
			r.request.started = now.Add(-seen.Took)
		}
	}
	s.events = s.events[:0]
	for _, d := range p.draws {
		if d.run.phase == unborn {
			s.fork(d.run)
		}
	}
	for i := range p.draws {
		switch d := &p.draws[i]; {
		case d.run.phase == ended:
		case d.err != nil:
			s.end(d.run.request)
			s.events = append(s.events, event{request: d.run.request, err: d.err})
		default:
			d.run.timed(now, seen)
			s.chosen(d.run, d.choice)
		}
	}
	return s.events
}

// aborted books a step that was broken off: nothing was computed, and what the device has in the items' cells is cleared.
func (s *state) aborted(p *plan) {
	for _, r := range p.runs {
		s.cache.Truncate(r.table, r.table.Len())
		s.given++
		r.busy = 0
		if r.phase == ended {
			s.close(r)
		}
	}
}

// refused books a step that the device refused without a change, for want of cells that it said were there. From then on
// nothing is kept that nobody uses. It returns false where that alone can't help, so that a request must go.
func (s *state) refused(p *plan) bool {
	s.cache.Unrun()
	s.frugal = true
	for _, r := range p.runs {
		r.busy = 0
		if r.phase == ended {
			s.close(r)
		}
	}
	if s.cache.Stats().Cached == 0 {
		return false
	}
	if t, err := s.cache.Open(kvcache.Key{}, nil); err == nil {
		_ = s.cache.Grow(t, s.cache.Free()*kvcache.BlockTokens) // all that is cached gives way
		s.cache.Close(t, false)
	}
	return true
}

// fork lets a choice go its own way from where the first one has computed the prompt. Where no sequence is free it waits
// for one, and finds most of its prompt in the cache then.
func (s *state) fork(r *run) {
	first := r.request.runs[0]
	r.tokens = append(make([]engine.Token, 0, cap(first.tokens)), first.tokens...)
	if len(s.active) < s.limits.sequences {
		if t, err := s.cache.Fork(first.table); err == nil {
			r.phase, r.table = running, t
			s.active = insert(s.active, r)
			return
		}
	}
	s.wait(r)
}

// timed books a token's time.
func (r *run) timed(now time.Time, seen *StepRecord) {
	switch {
	case r.request.first.IsZero():
		r.request.first = now
		seen.FirstTokens = append(seen.FirstTokens, now.Sub(r.request.arrived))
	case !r.last.IsZero():
		seen.TokenGaps = append(seen.TokenGaps, now.Sub(r.last))
	}
	r.last = now
}

// chosen gives r its next token, and ends r where that was the last one.
func (s *state) chosen(r *run, c sampling.Choice) {
	if why := r.take(c, s.vocab); why != "" {
		s.finish(r, why)
	} else {
		s.emit(r, r.voice.said())
	}
}

// take gives r its next token, and returns why it is the last one; "" where it isn't.
func (r *run) take(c sampling.Choice, vocab pieces) engine.FinishReason {
	r.tokens = append(r.tokens, c.Token)
	r.generated++
	g := r.request.grant
	switch {
	case vocab.EndsGeneration(c.Token) && !r.request.ignoreEOS, // before the least only where nothing else may follow
		r.voice.say(c, vocab, r.generated >= g.least):
		return engine.FinishStop
	case r.generated >= g.most:
		return engine.FinishLength
	}
	return ""
}

// finish ends r with what it still holds back.
func (s *state) finish(r *run, why engine.FinishReason) {
	chunks := r.conclude(why)
	s.retire(r)
	s.emit(r, chunks)
}

// conclude returns what r still holds back, and its end. It is valid as long as what voice.said returns.
func (r *run) conclude(why engine.FinishReason) []engine.Chunk {
	if r.voice.end() && why == engine.FinishStop {
		why = engine.FinishToolCalls
	}
	chunks := r.voice.said()
	if len(chunks) == 0 {
		chunks = append(chunks, engine.Chunk{Choice: r.choice})
	}
	last := &chunks[len(chunks)-1]
	last.Finish = why
	last.Usage = engine.Usage{Prompt: len(r.tokens) - r.generated, Completion: r.generated, Cached: r.request.cached}
	r.request.finish = why
	return chunks
}

func (s *state) emit(r *run, chunks []engine.Chunk) {
	for _, c := range chunks {
		s.events = append(s.events, event{request: r.request, chunk: c})
	}
}
