package scheduler

import (
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/kvcache"
)

// request is a request inside the scheduler. Its choices become runs.
type request struct {
	id        string
	priority  int
	salt      string
	adapter   *adapter
	grant     grant
	ignoreEOS bool
	runs      []*run // one for each choice
	out       *output
	name      engine.PromptName
	text      int64          // bytes of the prompt, where it has a name
	prompt    *prompt        // in the ledger, until all that the request holds is given back; nil: it isn't there
	made      int            // tokens that the first choice came with: see resume
	over      []engine.Chunk // what is said of a choice that came with all of its tokens

	rank   int64  // see before
	number uint64 // of its arrival
	left   int    // runs that have not ended
	told   bool   // that it has ended
	cached int    // prompt tokens that the cache had when the request started

	times
}

// times are when things happened to a request, for the Observer.
type times struct {
	arrived, started, first time.Time
	preemptions             int
	finish                  engine.FinishReason
}

// done reports whether every choice has ended.
func (r *request) done() bool { return r.left == 0 }

// key is what r may share blocks with.
func (r *request) key() kvcache.Key { return kvcache.Key{Salt: r.salt, Adapter: r.adapter.key} }

// phase is where a run is in its life.
type phase int

const (
	// unborn runs wait until the first choice of their request has computed the prompt.
	unborn phase = iota
	queued
	running
	ended
)

// run is one choice of a request: what a sequence of KV cells is held for.
type run struct {
	request *request
	choice  int
	sampler Sampler
	voice   voice

	phase     phase
	table     *kvcache.Table // while running, and until the end of a step under way
	tokens    []engine.Token // prompt and output; those from table.Len() on are to be computed
	generated int
	busy      int       // tokens in the step under way
	last      time.Time // when the last token came

	// While queued: the run that is computing tokens that this one needs too, and how many.
	behind *run
	until  int
}

// pending is how many tokens are to be computed before the next one can be chosen.
func (r *run) pending() int { return len(r.tokens) - r.table.Len() }

// decodes reports whether r needs only its last token computed.
func (r *run) decodes() bool { return r.generated > 0 && r.pending() == 1 }

// before is the one order: by rank, which is the step of arrival less what the priority is worth in steps. It never
// changes, so a request that waits rises above all of greater priority that come late enough, and FIFO holds within a
// priority.
func before(a, b *run) bool {
	switch x, y := a.request, b.request; {
	case x.rank != y.rank:
		return x.rank < y.rank
	case x.number != y.number:
		return x.number < y.number
	}
	return a.choice < b.choice
}

// insert puts r into a list that is in order. A list of the few thousand requests that may wait is moved in less time than
// a heap would need to pass over those that are held.
func insert(list []*run, r *run) []*run {
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := (lo + hi) / 2; before(list[mid], r) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	list = append(list, nil)
	copy(list[lo+1:], list[lo:])
	list[lo] = r
	return list
}
