// Package prefix keeps a router's guess of which worker has which prompt in its cache. It makes a prompt a chain of hashes
// and remembers the chains of the requests that this router has sent, for each worker the ones used last that its cache
// has room for, in bounded memory. It is a guess: workers evict on their own, other routers send them requests too, and
// a restarted worker has nothing. So it learns from what workers say about requests that have ended. Of a worker that says
// what goes out of its cache it forgets that and nothing else. It never sees a tokeniser, never talks to a worker and never
// chooses one: that is package placement.
package prefix

import (
	"slices"
	"sync"
)

const (
	// DefaultMaxBytes is the bound on the memory of an index when nothing else is asked for: room for 4.8 million
	// blocks, which is 310 MB of different prompts.
	DefaultMaxBytes = 64 << 20
	// LeastMaxBytes is the least bound that there is.
	LeastMaxBytes = 1 << 20

	workerSize = 256 // bytes of a worker with its instance's name, generously
	maxWorkers = 1<<16 - 1
)

// Options says how large an index may become.
type Options struct {
	// MaxBytes bounds its memory, all workers together. 0 means DefaultMaxBytes, less than LeastMaxBytes means that.
	MaxBytes int64
}

// Slot is a worker's instance in an index. It is of no use after the instance was forgotten: the index knows it for an
// old one. 0 is none.
type Slot uint32

// Claim is what the index thought of a request's worker when the request was sent.
type Claim struct {
	// Known is how many leading blocks of the chain the worker had by requests that have settled, or by its own word.
	Known   int
	shrinks uint32
}

// Index is who has which prefix. It is safe for concurrent use.
type Index struct {
	maxBytes int64
	most     int // workers

	mu     sync.Mutex // guards what follows; held for microseconds, never while calling another package
	tree   tree
	slots  []Slot // by the worker's number; 0 where there is none
	names  map[string]Slot
	vacant []Slot // the last slots of numbers that are free
}

// New returns an empty index. It takes its memory as it needs it and keeps it.
func New(o Options) *Index {
	most := o.MaxBytes
	if most == 0 {
		most = DefaultMaxBytes
	}
	most = max(most, LeastMaxBytes)
	// A quarter is for holds, the rest for runs and their places in the table, of which each has two to four.
	workers := most / 64
	runs := (most*3/4 - workers) / (runSize + linkSize + 4*8 + 1 + endSize + 4*8)
	holds := most / 4 / (holdSize + linkSize + 1)
	x := newIndex(int(runs-runs%linkPage), int(holds-holds%linkPage), int(workers/workerSize))
	x.maxBytes = most
	return x
}

func newIndex(runs, holds, workers int) *Index {
	return &Index{most: min(workers, maxWorkers), tree: newTree(runs, holds), names: map[string]Slot{}}
}

// number is the worker's place in the arrays; a slot is that and how often the place was taken.
func (s Slot) number() uint16 { return uint16(s) }

// Slot returns the slot of an instance, and makes one when it has none. It returns 0, of which nothing is ever known,
// when there is one worker for each 16 KiB of the bound already.
func (x *Index) Slot(instance string) Slot {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s, ok := x.names[instance]; ok {
		return s
	}
	var s Slot
	switch {
	case len(x.vacant) > 0:
		s = x.vacant[0] + 1<<16
		x.vacant = slices.Delete(x.vacant, 0, 1)
		if s>>16 == 0 {
			s += 1 << 16
		}
	case len(x.slots) < x.most:
		s = 1<<16 | Slot(len(x.slots))
		x.slots = append(x.slots, 0)
		x.tree.workers = append(x.tree.workers, worker{})
		x.tree.marks = append(x.tree.marks, mark{})
	default:
		return 0
	}
	x.slots[s.number()] = s
	x.names[instance] = s
	return s
}

// is reports whether s is the slot of an instance that is not forgotten.
func (x *Index) is(s Slot) bool {
	n := int(s.number())
	return s != 0 && n < len(x.slots) && x.slots[n] == s
}

// Forget drops all that is known of an instance.
func (x *Index) Forget(instance string) {
	x.mu.Lock()
	s, ok := x.names[instance]
	if ok {
		delete(x.names, instance)
		x.slots[s.number()] = 0
	}
	x.mu.Unlock()
	for more := ok; more; {
		x.mu.Lock()
		if more = x.tree.clear(s.number()); !more {
			x.tree.workers[s.number()] = worker{}
			x.vacant = append(x.vacant, s)
		}
		x.mu.Unlock()
	}
}

// Resize says how many blocks the worker's own cache has room for; what it used longest ago and has no room for is
// forgotten. 0 is unknown: then only the index's own bound and what Settle learns count. What Settle has learnt so far
// is kept in proportion.
func (x *Index) Resize(s Slot, blocks int) {
	blocks = max(blocks, 0)
	x.mu.Lock()
	more := false
	if x.is(s) && x.tree.workers[s.number()].room != blocks {
		x.tree.workers[s.number()].resize(blocks)
		more = x.tree.trim(s.number())
	}
	x.mu.Unlock()
	x.trim(s, more)
}

// trim goes on to take from s what is beyond its limit, and lets others in between.
func (x *Index) trim(s Slot, more bool) {
	for more {
		x.mu.Lock()
		more = x.is(s) && x.tree.trim(s.number())
		x.mu.Unlock()
	}
}

// Match returns for each of slots how many leading blocks of c that worker is thought to have, in the memory of dst. It
// counts requests that are on their way: they will have been computed when the next one's turn comes. To look does not
// count as use.
func (x *Index) Match(c Chain, slots []Slot, dst []int) []int {
	dst = slices.Grow(dst[:0], len(slots))[:len(slots)]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tree.match(c)
	for i, s := range slots {
		dst[i] = 0
		if x.is(s) {
			dst[i] = x.tree.depth(s.number())
		}
	}
	return dst
}

// Insert notes that a request with chain c is sent to s, which will then have all of c. The claim is for Settle.
func (x *Index) Insert(s Slot, c Chain) Claim {
	x.mu.Lock()
	if !x.is(s) {
		x.mu.Unlock()
		return Claim{}
	}
	w := s.number()
	claim := Claim{shrinks: x.tree.workers[w].shrinks}
	if len(c) > 0 {
		x.tree.vacate(w, c[len(c)-1])
	}
	claim.Known = x.tree.put(w, c, false)
	x.tree.noteEnd(w, c, len(c), true)
	more := x.tree.trim(w)
	x.mu.Unlock()
	x.trim(s, more)
	return claim
}

// Settle notes that a request sent with Insert was answered and that s, when it began, had only the first cached blocks of
// c. It has all of c now, used last. Where that is clearly less than the claim, the worker evicts earlier than believed:
// its limit drops by an eighth of what it is thought to have, and what it used longest ago is forgotten. Other answers let
// the limit grow back slowly, never beyond the room. One that is exact has what it has: some of c may have gone again.
func (x *Index) Settle(s Slot, c Chain, claim Claim, cached int) {
	x.mu.Lock()
	more := false
	if x.is(s) {
		w := s.number()
		if x.tree.workers[w].exact {
			x.tree.put(w, c[:x.tree.leading(w, c)], false)
		} else {
			x.tree.put(w, c, true)
			x.tree.workers[w].learn(claim, cached)
		}
		more = x.tree.trim(w)
	}
	x.mu.Unlock()
	x.trim(s, more)
}
