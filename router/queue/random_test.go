package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/admission"
)

// A wake is lost when nothing moves any more although whoever is first could be placed. These histories do everything at
// once: requests come, their clients go, answers end, workers come and go, levels rise and fall.
func TestNoWakeIsLostWhateverHappensAtOnce(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			h := &history{rig: newRig(t, 3, Limits{
				Model: Bound{Requests: 12}, Hold: Bound{Requests: 8}, MaxQueue: 9 * time.Second, MaxHold: 15 * time.Second,
			}), rng: rand.New(rand.NewPCG(seed, 7))}
			for i := range 60 {
				for range 1 + h.rng.IntN(12) {
					h.act(i)
				}
				if why := h.stuck(); why != "" {
					t.Fatalf("seed %d, step %d: %s", seed, i, why)
				}
				if h.rng.IntN(3) == 0 {
					pass(time.Duration(h.rng.IntN(4000)) * time.Millisecond)
					if why := h.stuck(); why != "" {
						t.Fatalf("seed %d, step %d, later: %s", seed, i, why)
					}
				}
			}
			h.finish()
		})
	}
}

type history struct {
	*rig
	rng   *rand.Rand
	calls []*call
	n     int
}

// act begins something; much of it runs at the same time.
func (h *history) act(step int) {
	switch h.rng.IntN(10) {
	case 0, 1, 2, 3:
		h.n++
		tier := []string{"gold", "paid", "bulk", "free"}[h.rng.IntN(4)]
		who, own := fmt.Sprint(h.rng.IntN(3)), time.Duration(1+h.rng.IntN(12))*time.Second
		c := h.enter(fmt.Sprintf("%d-%d", step, h.n), tier, tenant(who), func(it *Item) {
			if own%2 == 0 {
				it.Deadline = time.Now().Add(own)
			}
		})
		h.calls = append(h.calls, c)
	case 4, 5, 6:
		h.endOne()
	case 7:
		if len(h.calls) > 0 {
			go h.calls[h.rng.IntN(len(h.calls))].cancel()
		}
	case 8:
		level := []float64{50, 89, 91, 94, 96}[h.rng.IntN(5)]
		go h.set(func() { h.level = level })
	case 9:
		ring, seats := min(h.rng.IntN(4), 1), 1+h.rng.IntN(4)
		go h.set(func() { h.ring, h.seats = ring, seats })
	}
}

// endOne ends one that runs.
func (h *history) endOne() {
	for i, c := range h.calls {
		select {
		case <-c.over:
			h.calls = append(h.calls[:i], h.calls[i+1:]...)
			if c.err == nil {
				go h.end(c)
				return
			}
		default:
			continue
		}
		return
	}
}

// stuck waits until nothing moves, and then says what should have.
func (h *history) stuck() string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	m := (*h.models.Load())[uid]
	if m == nil {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sum
	e := m.q.Head(time.Now())
	switch {
	case s.Entered != s.Dispatched+s.Cancelled+s.Expired+s.Refused+s.Failed+uint64(m.q.Len()):
		return fmt.Sprintf("%d wait: %+v", m.q.Len(), s)
	case s.Wakes != uint64(h.woken):
		return fmt.Sprintf("%d wakes are counted and %d were told", s.Wakes, h.woken)
	case m.caller != nil:
		return fmt.Sprintf("%s has been called and does nothing", m.caller.RequestID)
	case e == nil:
		return ""
	case m.q.Holding() != (h.ring == 0):
		return fmt.Sprintf("%d workers, and holding is %v", h.ring, m.q.Holding())
	}
	l := admission.Levels{KVPercent: h.level, InRing: h.ring}
	if h.busy < h.seats && admission.Decide(admission.DefaultBands(), l, e.Tier) == admission.Enter {
		return fmt.Sprintf("%s of tier %s waits at %.0f%% with %d of %d seats taken", e.RequestID, e.Tier.Name, h.level, h.busy, h.seats)
	}
	return ""
}

// finish lets all end.
func (h *history) finish() {
	synctest.Wait()
	h.set(func() { h.ring, h.seats, h.level = 1, 1000, 10 })
	synctest.Wait()
	for _, c := range h.calls {
		<-c.over
		if c.err == nil {
			h.end(c)
		}
	}
	h.settled()
	if h.busy != 0 {
		h.t.Errorf("%d seats are taken", h.busy)
	}
}

func TestManyAtOnceShareFewSeatsAndAllEnd(t *testing.T) {
	const clients, each, seats = 16, 400, 3
	var busy, trying, served atomic.Int64
	g := New(Options{
		Levels: func(string) admission.Levels { return admission.Levels{KVPercent: 10, InRing: 1} },
		Bands:  admission.DefaultBands, Waits: func(err error) bool { return errors.Is(err, errNoRoom) },
		Clock: clock.RealClock{}, Rand: nilChance,
	})
	defer g.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for range each {
				pass, err := g.Enter(ctx, &Item{Model: uid, Tenant: fmt.Sprint(i), Tier: tiers["paid"], Tokens: 5, Try: func(time.Time) error {
					if n := trying.Add(1); n != 1 {
						t.Errorf("%d try at once", n)
					}
					defer trying.Add(-1)
					if busy.Load() >= seats {
						return errNoRoom
					}
					busy.Add(1)
					return nil
				}})
				if err != nil {
					t.Error(err)
					return
				}
				served.Add(1)
				busy.Add(-1)
				pass.Done(5)
			}
		})
	}
	all.Wait()
	if s := g.Stats(uid); served.Load() != clients*each || s.Queued != 0 || s.Dispatched != clients*each {
		t.Errorf("%d served, %+v", served.Load(), s)
	}
}
