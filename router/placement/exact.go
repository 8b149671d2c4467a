package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/ringfleet/ringfleet/router/prefix"
)

// Requests that have ended are kept until a report has told of their prompts, so many and so many blocks of each worker at
// most. Beyond that a report may take back what the oldest of them has computed.
const (
	mostUnheard       = 256
	mostUnheardBlocks = 1 << 16
)

// hear takes in what a worker says of prompts. blocks is how many the index would have room for.
func (b *Board) hear(s *state, m *member, l *Load, blocks int) {
	if l.Exact {
		blocks = 0
	}
	if len(l.Prompts) > 0 {
		s.computed.add(m.live, blocks, l.Prompts)
	}
	s.mu.Lock()
	m.live.exact = l.Exact
	s.mu.Unlock()
	if b.index == nil || m.slot == 0 {
		return
	}
	b.index.SetExact(m.slot, l.Exact)
	if len(l.Prompts) == 0 {
		return
	}
	last := l.Prompts[len(l.Prompts)-1].Number
	if lost := news(l.Prompts); len(lost) > 0 {
		b.index.Hear(m.slot, lost, s.sent(m.live, lost[0].Number))
		b.index.Hear(m.slot, nil, s.sent(m.live, last)) // what was placed meanwhile
	}
	s.mu.Lock()
	m.live.caughtUp(last)
	s.mu.Unlock()
}

// exact reports whether an instance says what goes out of its cache.
func (s *state) exact(l *live) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.exact
}

// news are the prompts of which something is lost, in the words of the index.
func news(prompts []Prompt) (out []prefix.News) {
	for _, p := range prompts {
		if p.Lost > 0 {
			out = append(out, prefix.News{Hash: p.Hash, Blocks: p.Blocks, Held: p.Blocks - p.Lost, Number: p.Number})
		}
	}
	return out
}

// unsaid are this router's requests to a worker of which it has not spoken yet.
func (s *state) unsaid(l *live) []prefix.Sent {
	s.mu.Lock()
	heard := l.heard
	s.mu.Unlock()
	return s.sent(l, heard)
}

// sent are this router's requests to a worker of which it speaks from a greater number than this on, in their order. Of those
// that it has not answered yet nothing that it has said can speak.
func (s *state) sent(l *live, from uint64) (out []prefix.Sent) {
	s.mu.Lock()
	for t := l.open; t != nil; t = t.next {
		switch {
		case len(t.chain) == 0:
		case !t.accepted && t.number == 0:
			out = append(out, prefix.Sent{Chain: t.chain, Number: math.MaxUint64})
		case t.number > from:
			out = append(out, prefix.Sent{Chain: t.chain, Number: t.number})
		}
	}
	for _, q := range l.unheard {
		if q.Number > from {
			out = append(out, q)
		}
	}
	s.mu.Unlock()
	slices.SortStableFunc(out, func(a, b prefix.Sent) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

// outlast keeps the chain of a request that has ended if no report has told of it.
func (l *live) outlast(chain prefix.Chain, number uint64) {
	if number <= l.heard || len(chain) == 0 {
		return
	}
	l.unheard = append(l.unheard, prefix.Sent{Chain: chain, Number: number})
	blocks := 0
	for _, q := range l.unheard {
		blocks += len(q.Chain)
	}
	for len(l.unheard) > mostUnheard || blocks > mostUnheardBlocks {
		blocks -= len(l.unheard[0].Chain)
		l.unheard = slices.Delete(l.unheard, 0, 1)
	}
}

// caughtUp takes note that reports have told of all prompts up to a number.
func (l *live) caughtUp(number uint64) {
	l.heard = max(l.heard, number)
	l.unheard = slices.DeleteFunc(l.unheard, func(q prefix.Sent) bool { return q.Number <= l.heard })
}
