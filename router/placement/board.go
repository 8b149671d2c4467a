package placement

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringfleet/ringfleet/router/prefix"
)

// What a board does when nothing else is asked for.
const (
	DefaultMaxLoadPercent = 125
	DefaultSlowStart      = 10 * time.Second
	DefaultDecisions      = 1024
)

// Options say how a board places.
type Options struct {
	// Policy chooses; nil is the one named DefaultPolicy.
	Policy Policy
	// MaxLoadPercent bounds the requests of a worker: to this part of its share of all, rounded up. 0 means 125; less than
	// 100 means 100.
	MaxLoadPercent int
	// SlowStart is how long a worker that has come into the ring gets no more than a quarter of its seats; 0 means 10 s.
	SlowStart time.Duration
	// Index knows which worker has which prefix. Nil: nobody knows.
	Index *prefix.Index
	// Decisions is how many of the last decisions are kept; 0 means 1024.
	Decisions int
}

// Board holds the view of every model and what is known of its work. Views are read without a lock. Every method may be
// called at any time from anywhere.
type Board struct {
	slowStart time.Duration
	index     *prefix.Index
	rules     atomic.Pointer[rules]
	views     atomic.Pointer[map[string]*View] // by the model's UID; the map never changes
	scratch   sync.Pool                        // of *scratch
	log       decisions
	writing   sync.Mutex // one Set at a time: rings are made and the index is told under it, which never call back
}

// rules are what Configure changes.
type rules struct {
	policy         Policy
	maxLoadPercent int
}

// NewBoard returns a board without models.
func NewBoard(o Options) *Board {
	if o.Policy == nil {
		o.Policy = LeastPredictedTTFT{}
	}
	if o.MaxLoadPercent == 0 {
		o.MaxLoadPercent = DefaultMaxLoadPercent
	}
	if o.SlowStart <= 0 {
		o.SlowStart = DefaultSlowStart
	}
	if o.Decisions <= 0 {
		o.Decisions = DefaultDecisions
	}
	b := &Board{slowStart: o.SlowStart, index: o.Index, log: decisions{ring: make([]Decision, o.Decisions)}}
	b.rules.Store(&rules{o.Policy, max(100, o.MaxLoadPercent)})
	return b
}

// Configure makes requests be placed by the policy of that name from now on, and bounds workers to maxLoadPercent of
// their share, 100 or more. An error names what is wrong, and changes nothing.
func (b *Board) Configure(policy string, maxLoadPercent int) error {
	p, ok := ByName(policy)
	if !ok {
		return fmt.Errorf("configure placement: there is no policy %q: want one of %s", policy, strings.Join(Names(), ", "))
	}
	if maxLoadPercent < 100 {
		return fmt.Errorf("configure placement: a worker's load is bounded to %d %% of its share: want 100 or more, as with less nobody could take the last request", maxLoadPercent)
	}
	b.rules.Store(&rules{p, maxLoadPercent})
	return nil
}

// View is the current view of a model; nil when there is none, which is as good as one without workers.
func (b *Board) View(modelUID string) *View {
	if views := b.views.Load(); views != nil {
		return (*views)[modelUID]
	}
	return nil
}

// Set replaces all views: workers by the model's UID, each with virtualNodes points on its ring. Of a pod that comes more
// than once the first counts. What is known of an instance's work stays while it is among them; another instance of the
// same pod begins with nothing.
func (b *Board) Set(models map[string][]Worker, virtualNodes int, now time.Time) {
	b.writing.Lock()
	defer b.writing.Unlock()
	next := make(map[string]*View, len(models))
	for uid, workers := range models {
		next[uid] = b.view(b.View(uid), uid, workers, virtualNodes, now)
	}
	before := b.views.Swap(&next)
	if before != nil && b.index != nil {
		b.forget(*before, next)
	}
}

// view makes the next view of a model.
func (b *Board) view(before *View, uid string, workers []Worker, virtualNodes int, now time.Time) *View {
	v := &View{ModelUID: uid, nodes: virtualNodes, pods: make(map[string]*member, len(workers))}
	if before == nil {
		v.state = newState()
	} else {
		v.state = before.state
	}
	for _, w := range workers {
		if v.pods[w.Pod] != nil {
			continue
		}
		if before != nil && before.pods[w.Pod] != nil && before.pods[w.Pod].Worker == w {
			v.pods[w.Pod] = before.pods[w.Pod] // tickets keep members, and so no view longer than it is the current one
			continue
		}
		m := &member{Worker: w}
		if b.index != nil && w.InRing {
			m.slot = b.index.Slot(slotName(&w))
		} else if before != nil && before.pods[w.Pod] != nil && before.pods[w.Pod].Instance == w.Instance {
			m.slot = before.pods[w.Pod].slot // it may come back, and says meanwhile what it loses
		}
		v.pods[w.Pod] = m
	}
	v.state.adopt(v.pods, now)
	for _, m := range v.pods {
		if m.slot != 0 && v.state.exact(m.live) {
			b.index.SetExact(m.slot, true) // it has said so before it had a slot
		}
	}
	v.arrange(before)
	return v
}

// adopt gives members what is known of their instances, and forgets that of all others.
func (s *state) adopt(pods map[string]*member, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lives := make(map[Process]*live, len(pods))
	for _, m := range pods {
		if m.live == nil {
			m.live = s.live(m.process(), now)
		}
		lives[m.process()] = m.live
	}
	s.lives = lives
}

// slotName is what the index knows an instance by. An instance id is the worker's own word, so the pod is part of it.
func slotName(w *Worker) string { return w.Pod + "/" + w.Instance }

// forget tells the index which instances are gone.
func (b *Board) forget(before, after map[string]*View) {
	kept := map[string]bool{}
	for _, v := range after {
		for _, m := range v.pods {
			kept[slotName(&m.Worker)] = true
		}
	}
	for _, v := range before {
		for _, m := range v.pods {
			if name := slotName(&m.Worker); !kept[name] {
				b.index.Forget(name)
			}
		}
	}
}

// Observe takes in a worker's report. Of a model that the board does not have, it is dropped.
func (b *Board) Observe(modelUID, pod, instance string, l Load, now time.Time) {
	v := b.View(modelUID)
	if v == nil {
		return
	}
	named := make(map[string]int, len(l.RequestIDs))
	for _, id := range l.RequestIDs {
		named[id]++
	}
	m := v.pods[pod]
	known := m != nil && m.Instance == instance
	tell := known && m.InRing && b.index != nil // before it is in the ring it has no slot in the index
	blocks, changed := v.state.observe(Process{pod, instance}, &l, named, tell, now)
	if changed {
		b.index.Resize(m.slot, blocks)
	}
	if known {
		b.hear(v.state, m, &l, blocks)
	}
}

// observe is Observe under the lock. It returns how many blocks of the index the worker's cache has room for, and whether
// the index is to be told, as far as it can be: tell says that.
func (s *state) observe(of Process, r *Load, named map[string]int, tell bool, now time.Time) (blocks int, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, compare := s.live(of, now), s.age(now)
	mine, all, whole := l.report(r, named, now)
	s.others.observe(l, mine, all, whole)
	s.believe(l, now)
	if compare {
		s.compare(now)
	}
	blocks = s.blocks(l.total)
	if !tell {
		return blocks, false
	}
	if least, most := l.told-l.told/resizePart, l.told+l.told/resizePart; blocks >= least && blocks <= most {
		return blocks, false
	}
	l.told = blocks
	return blocks, true
}

// resizePart: the index is told how much room a worker has when that has changed by more than a tenth, as it does while
// the length of tokens is being learnt.
const resizePart = 10
