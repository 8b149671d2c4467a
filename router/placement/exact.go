package placement

import (
	"github.com/ringfleet/ringfleet/router/prefix"
)

// Requests that have ended are kept until the worker says that none is inside any more for their prompts, so many and so many
// blocks of each worker at most. Beyond that what another prompt's loss takes of the oldest's does not come back.
const (
	mostOver       = 256
	mostOverBlocks = 1 << 16
)

// visit is a request at a worker, as far as the index is concerned: from its dispatch to when the worker says what is there of
// its prompt without it. Meanwhile the worker has all of the prompt, or will have.
type visit struct {
	chain  prefix.Chain
	number uint64 // of the worker's word that the request came; 0: it has not answered yet
	said   Prompt // what it has said last of the prompt, while it has not answered yet
	done   bool   // it isn't among the visits any more
}

// visits are those at one worker.
type visits struct {
	of   map[uint64][]*visit // by the last hash
	over []*visit            // of requests that have ended, and others that are done; oldest first
}

func (all *visits) add(v *visit) {
	if all.of == nil {
		all.of = map[uint64][]*visit{}
	}
	last := v.chain[len(v.chain)-1]
	all.of[last] = append(all.of[last], v)
}

func (all *visits) remove(v *visit) {
	if v.done {
		return
	}
	v.done = true
	last := v.chain[len(v.chain)-1]
	var left []*visit
	for _, o := range all.of[last] {
		if o != v {
			left = append(left, o)
		}
	}
	if len(left) == 0 {
		delete(all.of, last)
		return
	}
	all.of[last] = left
}

// outlast keeps the visit of a request that has ended.
func (all *visits) outlast(v *visit) {
	kept, blocks := all.over[:0], 0
	for _, o := range append(all.over, v) {
		if !o.done {
			kept = append(kept, o)
			blocks += len(o.chain)
		}
	}
	for ; len(kept) > mostOver || blocks > mostOverBlocks; kept = kept[1:] {
		blocks -= len(kept[0].chain)
		all.remove(kept[0])
	}
	all.over = kept
}

// left takes in what a worker says of a prompt for which no request is inside. It returns the chain if one was.
func (all *visits) left(p *Prompt) (chain prefix.Chain) {
	for _, v := range all.of[p.Hash] {
		switch {
		case v.number == 0:
			v.said = *p
		case v.number <= p.Number:
			chain = v.chain
			all.remove(v)
		}
	}
	return chain
}

// lose ends visits of which a worker may have spoken where it was not heard.
func (all *visits) lose(missed uint64) {
	for _, of := range all.of {
		for _, v := range of {
			if v.number != 0 && v.number <= missed {
				all.remove(v)
			}
		}
	}
}

// hear takes in what a worker says of prompts. blocks is how many the index would have room for.
func (b *Board) hear(s *state, m *member, l *Load, blocks int) {
	m.live.order.Lock()
	defer m.live.order.Unlock()
	prompts, anew := s.listen(m.live, l)
	if anew {
		s.computed.forget(m.live)
	}
	if l.Exact {
		blocks = 0
	}
	if len(prompts) > 0 {
		s.computed.add(m.live, blocks, prompts)
	}
	if b.index == nil || m.slot == 0 {
		return
	}
	if changed := b.index.SetExact(m.slot, l.Exact); anew && !changed {
		b.index.Clear(m.slot)
	}
	for i := range prompts {
		if p := &prompts[i]; p.Left {
			anew = true
			b.left(s, m, p)
		}
	}
	if anew {
		b.restore(s, m)
	}
}

// listen takes note of a report. It returns the prompts that it has news of, and whether nothing is known any more of what the
// worker has.
func (s *state) listen(l *live, r *Load) (prompts []Prompt, anew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	anew = l.exact != r.Exact
	l.exact = r.Exact
	prompts = r.Prompts
	if !r.Exact {
		return prompts, anew
	}
	if max(l.heard, l.missed) < r.Missed {
		anew = true
		l.missed = r.Missed
		l.visits.lose(r.Missed)
	}
	for len(prompts) > 0 && prompts[0].Number <= l.heard {
		prompts = prompts[1:] // told again by a new stream
	}
	if n := len(prompts); n > 0 {
		l.heard = prompts[n-1].Number
	}
	return prompts, anew
}

// left tells the index what is there of a prompt without a request inside.
func (b *Board) left(s *state, m *member, p *Prompt) {
	s.mu.Lock()
	chain := m.live.visits.left(p)
	s.mu.Unlock()
	b.say(m.slot, chain, p)
}

// say tells the index what is there of a prompt, whose chain is known where it may have too little.
func (b *Board) say(slot prefix.Slot, chain prefix.Chain, p *Prompt) {
	held := p.Blocks - p.Lost
	b.index.Hold(slot, chain, min(held, len(chain)), true)
	b.index.Hear(slot, prefix.News{Hash: p.Hash, Blocks: p.Blocks, Held: held, Heir: p.Heir})
}

// restore tells the index again what a worker has, or will have, for the requests that are inside or on their way.
func (b *Board) restore(s *state, m *member) {
	s.mu.Lock()
	var all []visit
	for _, of := range m.live.visits.of {
		for _, v := range of {
			all = append(all, *v)
		}
	}
	s.mu.Unlock()
	for i := range all {
		b.index.Hold(m.slot, all[i].chain, len(all[i].chain), all[i].number != 0)
	}
}

// exact reports whether an instance says what goes out of its cache.
func (s *state) exact(l *live) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.exact
}

// Numbered says with which number the worker's reports say that this request came; 0: they say nothing of it. It comes before
// Accepted.
func (t *Ticket) Numbered(number uint64) {
	t.live.order.Lock()
	defer t.live.order.Unlock()
	t.state.mu.Lock()
	v := t.visit
	if t.ended || !t.live.exact || v == nil || v.done || v.number != 0 {
		t.state.mu.Unlock()
		return
	}
	said := v.said
	spoken := said.Number > number // while the answer was on its way, and of a time when nobody was inside
	if v.number = number; spoken || number <= t.live.missed {
		t.live.visits.remove(v)
	}
	t.state.mu.Unlock()
	switch {
	case t.board.index == nil:
	case !v.done:
		t.board.index.Hold(t.member.slot, v.chain, len(v.chain), true)
	default:
		t.board.index.Withdraw(t.member.slot, v.chain)
		if number > t.live.missed {
			t.board.say(t.member.slot, v.chain, &said)
		}
		t.board.restore(t.state, t.member)
	}
}
