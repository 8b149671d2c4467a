// Package scheduler makes an engine.Engine of an engine.Executor. It decides which tokens run in the next step: requests
// join and leave at every step, running streams come first, and prompts are computed in chunks of what the step's token
// budget leaves. It books KV cells in blocks of 16 before a request starts, so that no request can run out of them.
// Deciding is pure (this file, batch.go, policy.go, text.go); loop.go holds the one goroutine that talks to the Executor.
// The package never chooses a token (Options.Sampler does), knows no model or device, and judges no priority: first
// come, first served.
package scheduler

import (
	"slices"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// phase is where a request is in its life.
type phase int

const (
	queued phase = iota
	prefilling
	decoding
	ended
)

// request is a request inside the scheduler.
type request struct {
	id     string
	prompt []engine.Token
	grant  grant
	text   text

	phase     phase
	seq       engine.Seq
	blocks    int          // booked KV blocks
	computed  int          // tokens whose cells are written
	last      engine.Token // sampled and not computed yet; while decoding
	generated int

	sampler Sampler
	out     *output
}

// pieces is what the scheduler needs of a vocabulary.
type pieces interface {
	Piece(t engine.Token) []byte
	EndsGeneration(t engine.Token) bool
}

// state is all that the next batch depends on. It has no lock, no clock and no goroutine.
type state struct {
	limits limits
	vocab  pieces

	queue      []*request // first come first
	active     []*request // hold a sequence, in order of admission
	freeSeqs   []engine.Seq
	freeBlocks int
	drops      []engine.KVOp // sequences to be freed by the next step
}

// event is output of one request. Its chunk ends the request when it has a finish reason.
type event struct {
	request *request
	chunk   engine.Chunk
	full    bool // the request ended because no KV block was free
}

func newState(l limits, vocab pieces) *state {
	s := &state{limits: l, vocab: vocab, freeBlocks: l.blocks}
	for seq := l.sequences - 1; seq >= 0; seq-- {
		s.freeSeqs = append(s.freeSeqs, engine.Seq(seq))
	}
	return s
}

// arrive queues r, or returns engine.ErrBusy. Requests for which a sequence is free don't count as waiting.
func (s *state) arrive(r *request) error {
	if s.full() {
		return engine.ErrBusy
	}
	s.queue = append(s.queue, r)
	return nil
}

func (s *state) full() bool { return len(s.queue) >= s.limits.waiting+len(s.freeSeqs) }

// end takes r out at any stage. What it held is free for the next step.
func (s *state) end(r *request) {
	switch r.phase {
	case queued:
		if i := slices.Index(s.queue, r); i >= 0 {
			s.queue = slices.Delete(s.queue, i, i+1)
		}
	case prefilling, decoding:
		s.active = slices.Delete(s.active, slices.Index(s.active, r), slices.Index(s.active, r)+1)
		s.drops = append(s.drops, engine.KVOp{Kind: engine.KVDrop, Dst: r.seq})
		s.freeSeqs = append(s.freeSeqs, r.seq)
		s.freeBlocks += r.blocks
		r.blocks = 0
	}
	r.phase = ended
}

// apply books a finished step: tokens holds the sampled token of each item that asked for logits. Requests that ended
// while the step ran are passed over.
func (s *state) apply(p *plan, tokens []engine.Token) []event {
	var out []event
	for i, r := range p.requests {
		if r.phase == ended {
			continue
		}
		item := p.batch.Items[i]
		r.computed += len(item.Tokens)
		if item.Logits {
			if e, ok := s.sampled(r, tokens[i]); ok {
				out = append(out, e)
			}
		}
	}
	return out
}

// undo takes a step back that the executor refused without a change.
func (s *state) undo(p *plan) {
	s.drops = append(slices.Clone(p.batch.KV), s.drops...)
}

// sampled gives r its next token, and ends r where that was the last one. It returns false where there is nothing to
// send yet.
func (s *state) sampled(r *request, t engine.Token) (event, bool) {
	r.phase, r.last = decoding, t
	r.generated++
	e := event{request: r}
	if s.vocab.EndsGeneration(t) {
		e.chunk.Text, e.chunk.Tokens = r.text.flush()
		return s.finish(e, engine.FinishStop), true
	}
	var stopped bool
	e.chunk.Text, e.chunk.Tokens, stopped = r.text.push(t, s.vocab.Piece(t))
	switch {
	case stopped:
		return s.finish(e, engine.FinishStop), true
	case r.generated >= r.grant.limit:
	case s.reserve(r, r.computed+1):
		return e, e.chunk.Text != "" || len(e.chunk.Tokens) > 0
	default:
		e.full = true
	}
	text, rest := r.text.flush()
	e.chunk.Text += text
	e.chunk.Tokens = append(e.chunk.Tokens, rest...)
	return s.finish(e, engine.FinishLength), true
}

func (s *state) finish(e event, why engine.FinishReason) event {
	e.chunk.Finish = why
	e.chunk.Usage = engine.Usage{Prompt: len(e.request.prompt), Completion: e.request.generated}
	s.end(e.request)
	return e
}

// size returns how many requests are inside.
func (s *state) size() int { return len(s.queue) + len(s.active) }
