package scheduler

import "github.com/ringfleet/ringfleet/worker/engine"

// plan is one step: the batch, and whose item each is.
type plan struct {
	batch           engine.Batch
	requests        []*request
	prefill, decode int // tokens
}

// empty reports whether there is nothing to do.
func (p *plan) empty() bool { return len(p.batch.KV) == 0 && len(p.batch.Items) == 0 }

// next admits what fits and returns the next step. Each running stream has its one token; what the budget leaves goes to
// prompts in order of admission. Sequences of ended requests are freed first.
func (s *state) next() *plan {
	s.admit()
	p := &plan{batch: engine.Batch{KV: s.drops}}
	s.drops = nil
	for _, r := range s.active {
		if r.phase == decoding {
			p.add(r, engine.Item{Seq: r.seq, Pos: r.computed, Tokens: []engine.Token{r.last}, Logits: true})
			p.decode++
		}
	}
	budget := s.limits.stepTokens - p.decode
	for _, r := range s.active {
		if r.phase != prefilling || budget == 0 {
			continue
		}
		n := min(budget, len(r.prompt)-r.computed)
		p.add(r, engine.Item{
			Seq:    r.seq,
			Pos:    r.computed,
			Tokens: r.prompt[r.computed : r.computed+n],
			Logits: r.computed+n == len(r.prompt),
		})
		p.prefill += n
		budget -= n
	}
	return p
}

func (p *plan) add(r *request, item engine.Item) {
	p.requests = append(p.requests, r)
	p.batch.Items = append(p.batch.Items, item)
}
