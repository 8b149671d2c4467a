package placement

import (
	"slices"
	"sync"
	"time"
)

// mostIDs and mostAdapters are how many a report names at most; a list of that length may not be whole.
const (
	mostIDs      = 1024
	mostAdapters = 256
)

// mostTokens bounds what a worker is believed to say of itself.
const mostTokens = 1 << 40

// live is what is known of one instance's work. The state that it belongs to has the lock that guards it.
//
// A request of this router is in own from its dispatch to its end. Until a report names it, it is also fresh: the figures
// of that report don't hold it yet. So everything counts once, and at once.
type live struct {
	open        *Ticket // requests of this router, a list
	own         int     // its length
	outstanding int64   // of those without a first token: tokens to compute
	freshWork   int64   // of outstanding: what no report holds yet
	freshNeed   int64   // tokens of the KV cache that fresh ones will take
	freed       int64   // tokens of the KV cache that ended ones gave back since the latest report
	ended       recent

	// A queue of prompts that is worked off at the learnt pace: tokens that were in it at a time.
	work float64
	at   time.Time

	pace   float64 // seconds for each token of a prompt, as it is believed now
	learnt average // the same, as measured; weights are tokens
	step   average // seconds from one token of an answer to the next
	counts bool    // it has once said that it had a part of a prompt

	// From the latest report.
	others   int   // requests that are not this router's
	foreign  int64 // tokens to compute that may be other routers'
	seats    int
	total    int64 // tokens of the KV cache; 0: unknown
	used     int64 // tokens of it that are held, or will be for the prompts that wait
	adapters []string
	told     int // blocks that the index was told it has room for

	exact  bool   // it says what goes out of its cache
	heard  uint64 // the number up to which reports have told of prompts
	missed uint64 // the number up to which some may not have been heard
	visits visits

	// order is held while the index is told what the worker says of prompts and of requests, so that it hears of that in one
	// order. The state's and the index's locks are taken under it.
	order *sync.Mutex

	// computed.mu guards these.
	named int // blocks of prompts that reports have named
	era   int // how often what they have named was forgotten

	// Of others, as reports have shown it.
	turned average // tokens to compute that were in a report and that this router did not know of
	latest float64 // the same, of the latest report
	fresh  float64 // freshWork as it was before that one
	rated  bool    // it reports how fast it computes prompts
	slow   bool    // it makes tokens of answers less than half as fast as the others
}

// free is how many requests it may have whatever its share is.
func (l *live) free() int {
	if l.slow {
		return 0
	}
	return min(l.seats*freePercent/100, mostFree)
}

// load is how many requests it has, as far as this router knows.
func (l *live) load() int { return l.own + l.others }

// ahead is the tokens of prompts that it has still to compute.
func (l *live) ahead(now time.Time) float64 {
	if l.work == 0 {
		return 0
	}
	return max(0, l.work-max(0, now.Sub(l.at).Seconds())/l.pace)
}

// drain works the queue off up to now.
func (l *live) drain(now time.Time) {
	l.work = l.ahead(now)
	if now.After(l.at) {
		l.at = now
	}
}

// cap takes out of the queue what can't be in it: more than there is to compute.
func (l *live) cap() { l.work = max(0, min(l.work, float64(l.outstanding+l.foreign))) }

// held is how many tokens of the KV cache are taken.
func (l *live) held() int64 { return max(0, l.used-l.freed) + l.freshNeed }

// small reports whether its KV cache is known to have no room for so many tokens, not even when it is empty.
func (l *live) small(tokens int64) bool { return l.total > 0 && tokens > l.total }

// room reports whether its KV cache has room for a request that takes all tokens, of which need are not there yet. One
// without work takes anything, and one that is too small takes what will never fit: it refuses that itself. To wait
// would be in vain, and those behind it would wait too.
func (l *live) room(need, all int64) bool {
	return l.total == 0 || l.load() == 0 || l.small(all) || l.held()+need <= l.total
}

// lacks reports whether it is known not to have the adapter.
func (l *live) lacks(adapter string) bool {
	if l.adapters == nil || len(l.adapters) >= mostAdapters {
		return false
	}
	_, has := slices.BinarySearch(l.adapters, adapter)
	return !has
}

// seat is how long a request waits for a seat, in seconds, when answers have so many tokens.
func (l *live) seat(answer float64) float64 {
	beyond := l.load() - l.seats + 1
	if l.seats == 0 || beyond <= 0 {
		return 0
	}
	return float64(beyond) * answer * l.step.or(defaultStep, stepBase) / float64(l.seats)
}

// dispatch counts a request that is on its way.
func (l *live) dispatch(t *Ticket, now time.Time) {
	l.drain(now)
	if len(t.chain) > 0 {
		t.visit = &visit{chain: t.chain}
		l.visits.add(t.visit)
	}
	if t.next = l.open; t.next != nil {
		t.next.previous = t
	}
	l.open = t
	l.own++
	l.outstanding += t.uncached
	l.freshWork += t.uncached
	l.freshNeed += t.need
	l.work += float64(t.uncached)
}

// resize takes a better estimate of a request's tokens to compute.
func (l *live) resize(t *Ticket, uncached int64, now time.Time) {
	more := uncached - t.uncached
	t.uncached += more
	t.need += more
	if !t.reported {
		l.freshNeed += more
	}
	if !t.first.IsZero() {
		return
	}
	l.drain(now)
	l.outstanding += more
	if !t.reported {
		l.freshWork += more
	}
	l.work += float64(more)
	l.cap()
}

// compute takes note that a request's prompt is computed: its first token is there.
func (l *live) compute(t *Ticket, now time.Time) {
	l.drain(now)
	l.outstanding -= t.uncached
	if !t.reported {
		l.freshWork -= t.uncached
	}
	l.cap()
}

// end takes a request off. Without a first token, its part of the queue goes with it.
func (l *live) end(t *Ticket, answer int64, now time.Time) {
	l.drain(now)
	if t.first.IsZero() {
		if all := float64(l.outstanding + l.foreign); all > 0 {
			l.work *= 1 - float64(t.uncached)/all
		}
		l.outstanding -= t.uncached
		if !t.reported {
			l.freshWork -= t.uncached
		}
		l.cap()
	}
	if t.reported {
		l.freed += t.uncached + answer
	} else {
		l.freshNeed -= t.need
	}
	l.own--
	if t.previous == nil {
		l.open = t.next
	} else {
		t.previous.next = t.next
	}
	if t.next != nil {
		t.next.previous = t.previous
	}
	t.previous, t.next = nil, nil
	l.ended.add(t.decision.RequestID)
}

// recent are the ids of the requests that ended last. A report that was made just before may still name them.
type recent struct {
	ids  [16]string
	next int
}

func (r *recent) add(id string) {
	r.ids[r.next] = id
	r.next = (r.next + 1) % len(r.ids)
}
