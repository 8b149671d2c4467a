package queue

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/admission"
)

var flows = []int{1, 10, 5000}

// benchGate is a gate at a level, with room for all.
func benchGate(level float64) *Gate {
	return New(Options{
		Levels: func(string) admission.Levels { return admission.Levels{KVPercent: level, InRing: 4} },
		Bands:  admission.DefaultBands, Waits: func(error) bool { return false },
		Limits: Limits{Model: Bound{Requests: 1 << 20}, All: Bound{Requests: 1 << 20}, MaxQueue: time.Hour},
		Clock:  clock.RealClock{}, Rand: nilChance,
	})
}

// items are one of each of n tenants.
func items(n int, tier string) []*Item {
	out := make([]*Item, n)
	for i := range out {
		out[i] = &Item{Model: uid, Tenant: strconv.Itoa(i), Tier: tiers[tier], Tokens: 700, Bytes: 1,
			Try: func(time.Time) error { return nil }}
	}
	return out
}

func enterAll(b *testing.B, g *Gate, its []*Item) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		pass, err := g.Enter(b.Context(), its[i%len(its)])
		if err != nil {
			b.Fatal(err)
		}
		pass.Done(700)
		i++
	}
}

// BenchmarkEnter is a request that nobody is in the way of, from its entry to its end.
func BenchmarkEnter(b *testing.B) {
	for _, n := range flows {
		b.Run("flows="+strconv.Itoa(n), func(b *testing.B) {
			g := benchGate(50)
			defer g.Close()
			enterAll(b, g, items(n, "paid"))
		})
	}
}

// BenchmarkEnterWhileOthersWait is a request of the best tier while one of each of many tenants waits below it.
func BenchmarkEnterWhileOthersWait(b *testing.B) {
	for _, n := range flows {
		b.Run("flows="+strconv.Itoa(n), func(b *testing.B) {
			g := benchGate(92)
			over := make(chan error)
			for _, it := range items(n, "paid") {
				go func() {
					_, err := g.Enter(context.Background(), it)
					over <- err
				}()
			}
			for g.Stats(uid).Queued < n {
				runtime.Gosched()
			}
			its := items(n, "gold")
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := g.Enter(b.Context(), its[i%n]); err != nil {
					b.Fatal(err)
				}
				i++
			}
			g.Close()
			for range n {
				<-over
			}
		})
	}
}

// BenchmarkRefuse is a request of a tier that does not wait, at a level where it is refused.
func BenchmarkRefuse(b *testing.B) {
	for _, n := range flows {
		b.Run("flows="+strconv.Itoa(n), func(b *testing.B) {
			g := benchGate(92)
			defer g.Close()
			its := items(n, "free")
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := g.Enter(b.Context(), its[i%n]); err == nil {
					b.Fatal("it was let in")
				}
				i++
			}
		})
	}
}

// BenchmarkQueue is one request that comes to wait and one that goes, while one of each of many tenants waits.
func BenchmarkQueue(b *testing.B) {
	for _, n := range flows {
		b.Run("flows="+strconv.Itoa(n), func(b *testing.B) {
			var total Total
			q, now := NewQueue(&total, nilChance), epoch
			l := (&Limits{Model: Bound{Requests: 1 << 20}, All: Bound{Requests: 1 << 20}}).orDefaults()
			its := items(n, "paid")
			for _, it := range its {
				if _, err := q.Push(newEntry(it, false, l, now), l, now); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				now = now.Add(time.Millisecond)
				if _, err := q.Push(newEntry(its[i%n], false, l, now), l, now); err != nil {
					b.Fatal(err)
				}
				q.Take(q.Head(now), now)
				i++
			}
		})
	}
}

// BenchmarkQueueCancel is one request that comes to wait and leaves again.
func BenchmarkQueueCancel(b *testing.B) {
	for _, n := range flows {
		b.Run("flows="+strconv.Itoa(n), func(b *testing.B) {
			var total Total
			q, now := NewQueue(&total, nilChance), epoch
			l := (&Limits{Model: Bound{Requests: 1 << 20}, All: Bound{Requests: 1 << 20}}).orDefaults()
			its := items(n, "paid")
			for _, it := range its {
				if _, err := q.Push(newEntry(it, false, l, now), l, now); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				e := newEntry(its[i%n], false, l, now)
				if _, err := q.Push(e, l, now); err != nil {
					b.Fatal(err)
				}
				q.Remove(e, now)
				i++
			}
		})
	}
}

// BenchmarkEnterInParallel is many requests to one model at once.
func BenchmarkEnterInParallel(b *testing.B) {
	g := benchGate(50)
	defer g.Close()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		it := items(1, "paid")[0]
		for pb.Next() {
			pass, err := g.Enter(context.Background(), it)
			if err != nil {
				b.Error(err)
				return
			}
			pass.Done(700)
		}
	})
}

func TestLettingARequestInAllocatesItsPassOnly(t *testing.T) {
	g := benchGate(50)
	defer g.Close()
	it := items(1, "paid")[0]
	if n := testing.AllocsPerRun(100, func() {
		pass, err := g.Enter(t.Context(), it)
		if err != nil {
			t.Fatal(err)
		}
		pass.Done(1)
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
