package scheduler

import (
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/kvcache"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// plan is one step: the batch, whose item each is, and which tokens are to be chosen from its logits.
type plan struct {
	batch           engine.Batch
	runs            []*run
	draws           []draw
	prefill, decode int // tokens
	lost            int // prefill tokens of runs that have ended since
	preempted       int
}

// draw is a token to be chosen from the logits of an item. The first token of all choices comes from the same ones.
type draw struct {
	run    *run
	item   int
	choice sampling.Choice
	err    error
}

// empty reports whether there is nothing to do.
func (p *plan) empty() bool { return len(p.batch.KV) == 0 && len(p.batch.Items) == 0 }

// worthless reports whether it is better to break the step off than to wait for it: most of it computes prompts that
// nobody wants any more, so the rest is done again in less time than it takes to the end, on average.
func (p *plan) worthless() bool { return 2*p.lost > p.prefill+p.decode }

// next returns the next step. Each running stream has its one token; what the budget leaves goes to prompts, in order. The
// plan is valid until the next call; before that, apply, aborted or refused must say what became of it.
func (s *state) next() *plan {
	p := &s.plan
	*p = plan{batch: engine.Batch{KV: p.batch.KV[:0], Items: p.batch.Items[:0]}, runs: p.runs[:0], draws: p.draws[:0]}
	s.grow()
	s.admit()
	if len(s.active) > 0 {
		group := s.turn.next(s.active, s.now)
		p.batch.Adapter = group.name
		for _, r := range s.active {
			if r.request.adapter == group && r.decodes() {
				p.add(r, 1)
				p.decode++
			}
		}
		for _, r := range s.active {
			if left := s.limits.stepTokens - p.prefill - p.decode; left > 0 && r.request.adapter == group && !r.decodes() {
				n := min(left, r.pending())
				p.add(r, n)
				p.prefill += n
			}
		}
		s.now++
	}
	for _, op := range s.cache.Ops() {
		p.batch.KV = append(p.batch.KV, operation(op))
	}
	return p
}

// add lets n more tokens of r be computed, and the next one be chosen where those are all.
func (p *plan) add(r *run, n int) {
	at := r.table.Len()
	item := engine.Item{Seq: engine.Seq(r.table.Seq()), Pos: at, Tokens: r.tokens[at : at+n], Logits: n == r.pending()}
	if item.Logits {
		p.draws = append(p.draws, draw{run: r, item: len(p.runs)})
		for _, sibling := range r.request.runs {
			if sibling.phase == unborn {
				p.draws = append(p.draws, draw{run: sibling, item: len(p.runs)})
			}
		}
	}
	r.busy = n
	p.runs = append(p.runs, r)
	p.batch.Items = append(p.batch.Items, item)
}

// operation is op in the terms of the Executor.
func operation(op kvcache.Op) engine.KVOp {
	kind := engine.KVDrop
	switch op.Kind {
	case kvcache.OpFork:
		kind = engine.KVFork
	case kvcache.OpTruncate:
		kind = engine.KVTruncate
	}
	return engine.KVOp{Kind: kind, Src: engine.Seq(op.Src), Dst: engine.Seq(op.Dst), N: op.N}
}
