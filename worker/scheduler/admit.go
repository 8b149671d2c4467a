package scheduler

import (
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/kvcache"
)

// admit starts queued runs in order, as long as sequences and blocks are there. A run that waits for another's prefix is
// passed over; none else is overtaken, so none waits for ever.
func (s *state) admit() {
	for i := 0; i < len(s.queue) && len(s.active) < s.limits.sequences; {
		r := s.queue[i]
		switch {
		case s.held(r):
			i++
		case s.start(r):
			s.queue = remove(s.queue, r)
		default:
			return
		}
	}
}

// held reports whether r should wait because a running one is computing tokens that r needs too: then r finds them in the
// cache. When that one ends or gives way before it has come so far, r waits no longer.
func (s *state) held(r *run) bool {
	if b := r.behind; b != nil && b.phase == running && b.table.Len() < r.until {
		return true
	}
	r.behind = nil
	cached := -1
	for _, a := range s.active {
		if !before(a, r) {
			break // what comes later in the order may compute its prompt later, too
		}
		if a.decodes() || a.request.adapter != r.request.adapter || a.request.salt != r.request.salt {
			continue
		}
		shared := common(a.tokens, r.tokens[:len(r.tokens)-1]) / kvcache.BlockTokens * kvcache.BlockTokens
		if shared <= a.table.Len() {
			continue
		}
		if cached < 0 {
			cached = s.cache.Lookup(r.request.key(), s.raw(r.tokens))
		}
		if shared > cached {
			r.behind, r.until = a, shared
			return true
		}
	}
	return false
}

// common is how many first tokens a and b share.
func common(a, b []engine.Token) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// start gives r a sequence and blocks for all its tokens, or returns false. One block for each run is left over, so that
// nobody has to give way to the newcomer's company at once.
func (s *state) start(r *run) bool {
	if s.blocked == r && s.blockedAt == s.given {
		return false // it had no room, and nobody has given any back
	}
	s.blocked, s.blockedAt = r, s.given
	key, tokens, left := r.request.key(), s.raw(r.tokens), len(s.active)
	if s.cache.Free() < blocksFor(len(tokens)-s.cache.Lookup(key, tokens))+left {
		return false
	}
	t, err := s.cache.Open(key, tokens)
	if err != nil {
		return false
	}
	// What was found may have been counted as free, too.
	if s.cache.Free() < blocksFor(len(tokens))-t.Blocks()+left || s.cache.Grow(t, len(tokens)) != nil {
		s.cache.Close(t, false)
		return false
	}
	s.blocked = nil
	r.phase, r.table, r.behind = running, t, nil
	s.active = insert(s.active, r)
	if r.generated == r.request.made {
		r.request.cached = min(t.Cached(), len(r.tokens)-r.generated)
		s.totals.queries += int64(len(r.tokens))
		s.totals.hits += int64(t.Cached())
	}
	return true
}

// grow makes sure that every run has blocks for its tokens. Where they run out the last in the order gives way, until it is
// the one that needs them. So the first never gives way.
func (s *state) grow() {
	for i := 0; i < len(s.active); i++ {
		r := s.active[i]
		for r.phase == running && s.cache.Grow(r.table, len(r.tokens)) != nil {
			s.preempt(s.active[len(s.active)-1])
		}
	}
}
