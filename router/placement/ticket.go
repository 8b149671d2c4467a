package placement

import (
	"time"

	"github.com/ringfleet/ringfleet/router/prefix"
)

// Ticket is a request's place on a worker, from its dispatch to its end. Its methods may be called at any time from
// anywhere; after Ended they change nothing.
type Ticket struct {
	board  *Board
	state  *state
	member *member
	live   *live
	claim  prefix.Claim
	// decision does not change. At is when the request was dispatched.
	decision Decision
	bytes    int     // of the prompt, as its chain is measured
	part     float64 // of the prompt that the index thought to be there
	rank     int     // of the worker in the walk
	ahead    float64 // tokens that were to be computed before it
	queued   bool    // had to wait for a seat
	usual    time.Duration
	resumed  bool
	choices  int

	// state.mu guards what follows.
	chain          prefix.Chain
	visit          *visit  // nil: it has no chain
	prompt         float64 // tokens
	uncached       int64   // tokens of it to compute
	need           int64   // tokens of the KV cache
	reported       bool    // a report holds it
	accepted       bool    // the worker has said that it has it
	ended          bool
	first          time.Time // token
	previous, next *Ticket   // of live.open
}

// ticket makes the ticket of a choice. The caller holds the lock.
func (a *asked) ticket(b *Board, v *View, q *Request, s *Snapshot, chosen int, now time.Time) *Ticket {
	c := &s.Candidates[chosen]
	m := v.members[c.Member]
	t := &Ticket{
		board: b, state: v.state, member: m, live: m.live, chain: q.Chain,
		bytes: max(q.PromptBytes, len(q.Chain)*prefix.BlockBytes), part: c.Cached / a.tokens, rank: c.Rank,
		ahead: c.Ahead, queued: m.live.seat(a.usual) > 0, resumed: q.Resume, choices: q.choices(),
		prompt: a.tokens, uncached: int64(c.Uncached), need: int64(c.Uncached + a.answer),
	}
	t.usual = seconds((c.Ahead+c.Uncached)*v.state.pace + m.live.seat(a.usual))
	t.decision = Decision{
		At: now, RequestID: q.RequestID, ModelUID: q.ModelUID, PromptTokens: int(a.tokens),
		Chosen: estimate(m, c), Eligible: len(s.Candidates), InRing: s.Members,
	}
	if i := runnerUp(s, chosen); i >= 0 {
		c := &s.Candidates[i]
		t.decision.RunnerUp = estimate(v.members[c.Member], c)
	}
	return t
}

// runnerUp is the one of the others from which the first token would come soonest; -1 when there is no other.
func runnerUp(s *Snapshot, chosen int) int {
	best := -1
	for i := range s.Candidates {
		c := &s.Candidates[i]
		if i != chosen && (best < 0 || c.Wait+c.Prefill < s.Candidates[best].Wait+s.Candidates[best].Prefill) {
			best = i
		}
	}
	return best
}

// Worker is the one that was chosen, as it was then.
func (t *Ticket) Worker() Worker { return t.member.Worker }

// Reason says in one line why that one: see Decision.Reason.
func (t *Ticket) Reason() string { return t.decision.Reason() }

// Usual is how long it would take to the first token if the worker computed prompts as fast as the mean of the model's workers.
// What was predicted of a worker that has become slow knows that it is.
func (t *Ticket) Usual() time.Duration { return t.usual }

// Decision is the same as data.
func (t *Ticket) Decision() Decision { return t.decision }

// Accepted says that the worker has the request, and how many tokens its prompt has; 0: it does not know.
func (t *Ticket) Accepted(promptTokens uint32, now time.Time) {
	t.state.mu.Lock()
	defer t.state.mu.Unlock()
	if t.ended {
		return
	}
	t.accepted = true
	if promptTokens == 0 {
		return
	}
	uncached := float64(t.uncached) * float64(promptTokens) / t.prompt
	t.prompt = float64(promptTokens)
	t.live.resize(t, max(1, int64(uncached)), now)
}

// FirstToken says that the first piece of the answer is there: the prompt has been computed. Only the first call counts.
func (t *Ticket) FirstToken(now time.Time) {
	t.state.mu.Lock()
	defer t.state.mu.Unlock()
	if t.ended || !t.first.IsZero() {
		return
	}
	t.live.compute(t, now)
	t.first = now
}

// Ended takes the request off its worker and learns from how it ended. Only the first call counts.
func (t *Ticket) Ended(r Result, now time.Time) {
	t.live.order.Lock()
	defer t.live.order.Unlock()
	chain, counts, never := t.end(r, now)
	if t.board.index == nil || len(chain) == 0 {
		return
	}
	if never {
		t.board.index.Withdraw(t.member.slot, chain)
		t.board.restore(t.state, t.member)
		return
	}
	if !r.Answered || r.PromptTokens == 0 {
		return
	}
	cached := t.claim.Known
	if counts {
		part := float64(r.CachedTokens) / float64(r.PromptTokens)
		cached = min(int(part*float64(t.bytes)/prefix.BlockBytes+0.5), len(chain))
	}
	t.board.index.Settle(t.member.slot, chain, t.claim, cached)
}

// end is Ended under the lock. It returns the chain that the index is told of, none the second time, and whether the
// worker counts what it had of prompts: one that has never had anything may be an engine that doesn't. never: the worker, which
// says what it has, has not taken the request in.
func (t *Ticket) end(r Result, now time.Time) (chain prefix.Chain, counts, never bool) {
	t.state.mu.Lock()
	defer t.state.mu.Unlock()
	if t.ended {
		return nil, false, false
	}
	t.ended = true
	t.live.end(t, int64(r.CompletionTokens), now)
	compare := t.state.age(now)
	if r.Answered {
		t.state.learn(t, r, now)
	}
	if compare {
		t.state.compare(now)
	}
	chain, t.chain = t.chain, nil
	switch v := t.visit; {
	case v == nil || v.done:
	case v.number == 0 || !t.live.exact:
		never = t.live.exact
		t.live.visits.remove(v)
	default:
		t.live.visits.outlast(v)
	}
	return chain, t.live.counts, never
}
