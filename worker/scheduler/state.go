package scheduler

import (
	"slices"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/kvcache"
)

// pieces is what the scheduler needs of a vocabulary.
type pieces interface {
	Piece(t engine.Token) []byte
	EndsGeneration(t engine.Token) bool
}

// state is all that the next batch depends on. It has no lock, no clock and no goroutine.
type state struct {
	limits limits
	vocab  pieces
	cache  *kvcache.Cache
	ledger *ledger

	now      int64 // steps so far: the time in which requests age
	arrivals uint64
	queue    []*run // in order
	active   []*run // in order; each has a table
	turn     turn
	adapters map[string]*adapter

	// blocked is the first in the queue for which there was no room when room had been given back so many times.
	blocked   *run
	blockedAt int
	given     int
	frugal    bool // no blocks are kept for reuse

	plan    plan
	events  []event
	scratch []kvcache.Token
	totals  totals
}

// totals count since the start.
type totals struct {
	queries, hits, preemptions int64
	computed                   int64 // tokens, those of embeddings included
}

func newState(l limits, vocab pieces) *state {
	base := &adapter{}
	l.cache.Length = func(t kvcache.Token) int { return len(vocab.Piece(engine.Token(t))) }
	cache := kvcache.New(l.cache)
	return &state{
		limits: l, vocab: vocab, cache: cache, ledger: newLedger(cache),
		adapters: map[string]*adapter{"": base}, turn: turn{now: base, left: turnSteps},
	}
}

// arrive queues r, or returns engine.ErrBusy. Requests for which a sequence is free don't count as waiting.
func (s *state) arrive(r *request) error {
	if s.full() {
		return engine.ErrBusy
	}
	s.arrivals++
	r.number = s.arrivals
	r.rank = s.now - int64(max(-maxPriority, min(r.priority, maxPriority)))*int64(s.limits.age)
	r.left = len(r.runs)
	r.adapter.inside++
	s.wait(r.runs[0])
	if r.name.Blocks == 0 {
		return nil
	}
	if r.prompt = s.ledger.accept(r.name, r.out.prompt, r.text, r.adapter.key); r.prompt != nil {
		r.out.number = r.prompt.news.Number
	}
	return nil
}

func (s *state) full() bool {
	return len(s.queue) >= s.limits.waiting+max(0, s.limits.sequences-len(s.active))
}

// wait queues a run.
func (s *state) wait(r *run) {
	r.phase = queued
	s.queue = insert(s.queue, r)
}

// end takes all runs of r out at any stage. What they hold is free for the next step.
func (s *state) end(r *request) {
	for _, run := range r.runs {
		s.retire(run)
	}
}

// retire takes r out at any stage. Its blocks stay in the cache until others need them. Where r is in the step under way,
// they are given back when that has ended, as it still writes them.
func (s *state) retire(r *run) {
	switch r.phase {
	case ended:
		return
	case queued:
		s.queue = remove(s.queue, r)
	case running:
		s.active = remove(s.active, r)
		if r.busy > 0 {
			if !r.decodes() {
				s.plan.lost += r.busy
			}
		} else {
			s.close(r)
		}
	}
	r.phase = ended
	if r.request.left--; r.request.left == 0 {
		r.request.adapter.inside--
	}
	s.left(r.request)
}

// close gives back what r holds.
func (s *state) close(r *run) {
	if p := r.request.prompt; p != nil {
		s.ledger.follow(p, r.table, r.request.out.prompt)
	}
	s.cache.Close(r.table, !s.frugal)
	r.table = nil
	s.given++
	s.left(r.request)
}

// left takes r out of the ledger when all of its runs have ended and given back what they held. Of one that never began
// something may be there all the same.
func (s *state) left(r *request) {
	p := r.prompt
	if p == nil || r.left > 0 || slices.ContainsFunc(r.runs, func(run *run) bool { return run.table != nil }) {
		return
	}
	r.prompt = nil
	s.ledger.listen()
	if !p.mark.Set() {
		s.cache.FollowFound(&p.mark, r.key(), s.raw(r.runs[0].tokens[:r.out.prompt]))
	}
	s.ledger.leave(p)
}

// preempt sends r back to the queue. It starts again with all tokens that it has, so nothing is lost but the work of
// computing those that the cache has to give away meanwhile.
func (s *state) preempt(r *run) {
	s.active = remove(s.active, r)
	s.close(r)
	s.wait(r)
	r.request.preemptions++
	s.totals.preemptions++
	s.plan.preempted++
}

func remove(list []*run, r *run) []*run {
	i := slices.Index(list, r)
	return slices.Delete(list, i, i+1)
}

// raw is tokens as package kvcache has them. It is valid until the next call.
func (s *state) raw(tokens []engine.Token) []kvcache.Token {
	s.scratch = s.scratch[:0]
	for _, t := range tokens {
		s.scratch = append(s.scratch, kvcache.Token(t))
	}
	return s.scratch
}

// backlog is how many tokens are to be computed before each run inside can choose its next one, beyond the one that a stream
// has in each step. What of those that wait will be found in the cache is counted, too: it may be gone by then.
func (s *state) backlog() int64 {
	n := 0
	for _, r := range s.active {
		if !r.decodes() {
			n += r.pending()
		}
	}
	for _, r := range s.queue {
		n += len(r.tokens)
	}
	return int64(n)
}

// size returns how many runs are inside.
func (s *state) size() int { return len(s.queue) + len(s.active) }

// plenty reports whether the next step needs no more requests: they could not join it.
func (s *state) plenty() bool {
	tokens := 0
	for _, r := range s.queue {
		tokens += len(r.tokens)
	}
	return len(s.queue) >= s.limits.sequences || tokens >= s.limits.stepTokens
}
