package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/admission"
)

var (
	errNoRoom = errors.New("no worker has room")
	errBroken = errors.New("the request is broken")
	errPanics = errors.New("the request panics")
)

// rig is a gate with one model, whose workers have seats. Times are those of the bubble it runs in.
type rig struct {
	*Gate
	t testing.TB

	mu     sync.Mutex
	ring   int
	seats  int
	level  float64
	busy   int
	most   int // busy at once
	trying int
	placed []string
	woken  int
	look   func() // runs before the levels are looked at
}

const uid = "m-1"

// newRig has a worker at 50 %.
func newRig(t testing.TB, seats int, l Limits) *rig {
	r := &rig{t: t, ring: 1, seats: seats, level: 50}
	r.Gate = New(Options{
		Levels: func(string) admission.Levels {
			r.mu.Lock()
			look := r.look
			r.mu.Unlock()
			if look != nil {
				look()
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			return admission.Levels{KVPercent: r.level, InRing: r.ring, Candidates: r.ring}
		},
		Bands: admission.DefaultBands, Waits: func(err error) bool { return errors.Is(err, errNoRoom) },
		Limits: l, Clock: clock.RealClock{}, Rand: nilChance,
		Woken: func(string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.woken++
		},
	})
	return r
}

// set changes the workers, and says so.
func (r *rig) set(change func()) {
	r.mu.Lock()
	change()
	r.mu.Unlock()
	r.Wake(uid)
}

// seat takes a seat for a request.
func (r *rig) seat(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trying != 1 {
		r.t.Errorf("%d try at once", r.trying)
	}
	if r.ring == 0 || r.busy >= r.seats {
		return errNoRoom
	}
	r.busy++
	r.most = max(r.most, r.busy)
	r.placed = append(r.placed, name)
	return nil
}

// call is a request and what became of it.
type call struct {
	name   string
	cancel context.CancelFunc
	over   chan struct{}
	ended  bool // Enter has returned; guarded by the rig's mu
	pass   *Pass
	err    error
}

// enter sends a request. change may alter it.
func (r *rig) enter(name, tier string, change ...func(*Item)) *call {
	ctx, cancel := context.WithCancel(context.Background())
	c := &call{name: name, cancel: cancel, over: make(chan struct{})}
	it := &Item{RequestID: name, Model: uid, Tier: tiers[tier], Tokens: 10, Bytes: 1}
	for _, f := range change {
		f(it)
	}
	try := it.Try
	it.Try = func(now time.Time) error {
		r.mu.Lock()
		r.trying++
		if c.ended {
			r.t.Errorf("%s is tried after its end", name)
		}
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			r.trying--
			r.mu.Unlock()
		}()
		if try != nil {
			return try(now)
		}
		return r.seat(name)
	}
	go func() {
		defer close(c.over)
		defer cancel()
		defer func() {
			switch x := recover(); x {
			case nil:
			case errPanics:
				r.mu.Lock()
				defer r.mu.Unlock()
				c.err, c.ended = errPanics, true
			default:
				panic(x)
			}
		}()
		pass, err := r.Enter(ctx, it)
		r.mu.Lock()
		defer r.mu.Unlock()
		c.pass, c.err, c.ended = pass, err, true
		if (pass == nil) == (err == nil) {
			r.t.Errorf("%s: pass %v, error %v", name, pass, err)
		}
	}()
	return c
}

// many sends requests one after the other, so that they come in that order.
func (r *rig) many(stem, tier string, n int, change ...func(*Item)) []*call {
	var out []*call
	for i := range n {
		out = append(out, r.enter(fmt.Sprintf("%s%d", stem, i+1), tier, change...))
		synctest.Wait()
	}
	return out
}

// end ends a request that runs.
func (r *rig) end(c *call) {
	<-c.over
	if c.err != nil {
		r.t.Fatalf("%s: %v", c.name, c.err)
	}
	r.mu.Lock()
	r.busy--
	r.mu.Unlock()
	c.pass.Done(10)
}

// order is who has been placed, in that order.
func (r *rig) order() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.placed, " ")
}

// waits says whether c still does, once nothing moves any more.
func (c *call) waits() bool {
	synctest.Wait()
	select {
	case <-c.over:
		return false
	default:
		return true
	}
}

// failed is c's error as the given type.
func failed[E error](t *testing.T, c *call) (e E) {
	t.Helper()
	<-c.over
	if !errors.As(c.err, &e) {
		t.Fatalf("%s: %v", c.name, c.err)
	}
	return e
}

// tenant makes an item that tenant's.
func tenant(name string) func(*Item) { return func(it *Item) { it.Tenant = name } }

// pass lets time go by.
func pass(d time.Duration) { <-time.After(d) }

// settled checks that nothing is lost and nothing is left.
func (r *rig) settled() {
	r.t.Helper()
	synctest.Wait()
	s := r.Stats(uid)
	if s.Entered != s.Dispatched+s.Cancelled+s.Expired+s.Refused+s.Failed || s.Queued+s.Held != 0 || s.Tokens != 0 || s.Bytes != 0 {
		r.t.Errorf("left behind: %+v", s)
	}
	for _, c := range []*counter{&r.total.queued, &r.total.held} {
		if c.requests.Load() != 0 || c.bytes.Load() != 0 {
			r.t.Errorf("the router counts %d requests, %d bytes", c.requests.Load(), c.bytes.Load())
		}
	}
}
