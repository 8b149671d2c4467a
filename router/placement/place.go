package placement

import (
	"math"
	"slices"
	"time"

	"github.com/ringfleet/ringfleet/router/prefix"
)

// startPercent is how many of its seats a worker may have taken while it is new.
const startPercent = 25

// scratch is the memory of one Place, used again by the next.
type scratch struct {
	found    []found
	members  []*member
	slots    []prefix.Slot
	blocks   []int
	snapshot Snapshot
	all      []Candidate
}

// found is a worker that the walk has met and that may be asked at all.
type found struct {
	member, rank int
}

// Place chooses the worker for a request, and counts it as that worker's until the ticket ends. The error is a
// *NoWorkerError.
func (b *Board) Place(q *Request, now time.Time) (*Ticket, error) {
	v := b.View(q.ModelUID)
	if v == nil {
		return nil, v.nobody(q, 0, 0)
	}
	s, _ := b.scratch.Get().(*scratch)
	if s == nil {
		s = &scratch{}
	}
	defer b.scratch.Put(s)
	unable := s.walk(v, q)
	s.match(b.index, q.Chain)
	v.state.computed.match(q.Chain, s.members, s.blocks)
	t, full := b.choose(v, q, s, now)
	if t == nil {
		return nil, v.nobody(q, unable, full)
	}
	if b.index != nil && len(q.Chain) > 0 {
		t.claim = b.index.Insert(t.member.slot, q.Chain)
	}
	b.log.add(&t.decision)
	return t, nil
}

// walk notes the workers that may be asked, in the ring's order from the request's key, and returns how many there are
// besides that can't go on with a begun answer.
func (s *scratch) walk(v *View, q *Request) (unable int) {
	s.found, s.members, s.slots = s.found[:0], s.members[:0], s.slots[:0]
	rank := -1
	for i := range v.ring.Walk(q.Key) {
		rank++
		m := v.members[i]
		if slices.ContainsFunc(q.Exclude, func(p Process) bool { return p.is(&m.Worker) }) {
			continue
		}
		if q.Resume && !m.Resumes {
			unable++
			continue
		}
		s.found = append(s.found, found{i, rank})
		s.members = append(s.members, m)
		s.slots = append(s.slots, m.slot)
	}
	return unable
}

// match asks the index how many blocks of the prompt each of them has.
func (s *scratch) match(index *prefix.Index, c prefix.Chain) {
	if index != nil && len(c) > 0 {
		s.blocks = index.Match(c, s.slots, s.blocks[:0])
		return
	}
	s.blocks = slices.Grow(s.blocks[:0], len(s.slots))[:len(s.slots)]
	clear(s.blocks)
}

// choose makes the snapshot, lets the policy choose, and counts the request as dispatched, all under the lock, so that
// of two requests at the same time the second sees the first. Without a worker it says how many have no room.
func (b *Board) choose(v *View, q *Request, s *scratch, now time.Time) (*Ticket, int) {
	rules, st := b.rules.Load(), v.state
	st.mu.Lock()
	defer st.mu.Unlock()
	a := st.ask(q)
	a.beside, a.turned = st.others.expected(v.members)
	s.all = s.all[:0]
	for i, f := range s.found {
		m := v.members[f.member]
		c := a.candidate(m, s.blocks[i], f.rank, now)
		c.Member = f.member
		c.Starting = c.Load >= b.most(m, now)
		s.all = append(s.all, c)
	}
	left, full := eligible(s.all, rules.maxLoadPercent, q.Resume)
	if len(left) == 0 {
		return nil, full
	}
	s.snapshot = Snapshot{PromptTokens: a.tokens, Members: len(v.members), Last: st.last, Candidates: left}
	chosen := rules.policy.Choose(&s.snapshot)
	if chosen < 0 || chosen >= len(left) {
		return nil, 0
	}
	st.last = left[chosen].Member
	st.others.sent++
	t := a.ticket(b, v, q, &s.snapshot, chosen, now)
	t.decision.Policy = rules.policy.Name()
	t.live.dispatch(t, now)
	return t, 0
}

// most is how many requests a worker may have while it is new; others may have any number.
func (b *Board) most(m *member, now time.Time) int {
	if m.Since.IsZero() || now.Sub(m.Since) >= b.slowStart {
		return math.MaxInt
	}
	return max(1, m.live.seats*startPercent/100)
}

// asked is a request in numbers.
type asked struct {
	adapter string
	tokens  float64 // of the prompt
	block   float64 // part of the prompt that a block of the chain is
	answer  float64 // tokens that the answer is expected to have, all its choices together
	usual   float64 // those of one choice without a limit
	beside  float64 // what others are expected to have sent: see others.expected
	turned  float64
	hints   [ranks]float64
}

// ask makes numbers of a request. The caller holds the lock.
func (s *state) ask(q *Request) asked {
	a := asked{adapter: q.Adapter, tokens: float64(q.PromptTokens)}
	bytes := float64(max(q.PromptBytes, len(q.Chain)*prefix.BlockBytes, 1))
	a.block = prefix.BlockBytes / bytes
	if q.PromptTokens == 0 {
		a.tokens = max(1, bytes/s.bytesPerToken())
	}
	a.usual = max(1, s.answer.or(defaultAnswer, answerBase))
	a.answer = a.usual
	if q.MaxTokens > 0 {
		a.answer = min(a.answer, float64(q.MaxTokens))
	}
	a.answer *= float64(q.choices())
	if len(q.Chain) > 0 {
		for i := range a.hints {
			a.hints[i] = s.hints[i].or(0, hintBase)
		}
	}
	return a
}

// candidate makes numbers of a worker. The caller holds the lock.
func (a *asked) candidate(m *member, blocks, rank int, now time.Time) Candidate {
	l := m.live
	c := Candidate{Rank: rank, Load: l.load(), Weight: m.share(), Free: l.free()}
	c.Cached = min(float64(blocks)*a.block*a.tokens, a.tokens-1)
	c.Uncached = a.tokens - c.Cached
	if rank < ranks {
		c.Uncached *= 1 - a.hints[rank]
	}
	c.Uncached = max(1, c.Uncached)
	c.Ahead = l.ahead(now) + max(a.beside*float64(l.freshWork), a.turned*l.turned.value)
	c.Wait = c.Ahead*l.pace + l.seat(a.usual)
	c.Prefill = c.Uncached * l.pace
	all := int64(a.tokens + a.answer)
	c.Small = l.small(all)
	c.Full = !l.room(int64(c.Uncached+a.answer), all)
	if m.Suspect {
		c.Handicap |= HandicapSuspect
	}
	if m.Ejected {
		c.Handicap |= HandicapEjected
	}
	if a.adapter != "" && l.lacks(a.adapter) {
		c.Handicap |= HandicapAdapter
	}
	return c
}
