package peers

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/ringfleet/ringfleet/router/ring"
	"github.com/ringfleet/ringfleet/test/bench/placement/sim"
	"github.com/ringfleet/ringfleet/test/bench/placement/trace"
)

func random(f *fleet) rule {
	return func(*trace.Request, time.Duration) int { return f.chance.IntN(len(f.Workers)) }
}

func roundRobin(f *fleet) rule {
	next := -1
	return func(*trace.Request, time.Duration) int {
		next = (next + 1) % len(f.Workers)
		return next
	}
}

func leastInFlight(f *fleet) rule {
	return func(*trace.Request, time.Duration) int { return f.least(load) }
}

// onRing goes around a ring of 150 points a worker from the prompt's leading blocks. With a bound above 0 it passes over
// workers that would have more than bound times the mean of requests, rounded up (Mirrokni, Thorup, Zadimoghaddam:
// Consistent Hashing with Bounded Loads); the request counts in both.
func onRing(blocks int, bound float64) func(*fleet) rule {
	return func(f *fleet) rule {
		members := make([]ring.Member, len(f.Workers))
		for i, name := range names(len(f.Workers)) {
			members[i].Name = name
		}
		r := ring.New(members, ring.DefaultVirtualNodes)
		number := map[string]int{}
		for i, name := range names(len(f.Workers)) {
			number[name] = i
		}
		return func(q *trace.Request, _ time.Duration) int {
			_, _, sum := f.loads()
			room := math.Ceil(bound * (sum + 1) / float64(len(f.Workers)))
			owner := -1
			for m := range r.Walk(Key(q, blocks)) {
				i := number[r.Members()[m].Name]
				if bound == 0 || load(f.Workers[i])+1 <= room {
					return i
				}
				if owner < 0 {
					owner = i
				}
			}
			return owner
		}
	}
}

// Key is the ids of a prompt's leading blocks, as the key of a ring.
func Key(q *trace.Request, blocks int) []byte {
	var key []byte
	for _, id := range q.Blocks[:min(blocks, len(q.Blocks))] {
		key = binary.LittleEndian.AppendUint64(key, id)
	}
	return key
}

// oracle takes the worker on which the first token comes first. Computing a prompt takes time from whoever comes next, so
// a weight above 1 makes it count for more than the request itself waits for it.
func oracle(weight float64) func(*fleet) rule {
	return func(f *fleet) rule {
		return func(q *trace.Request, now time.Duration) int {
			return f.least(func(w *sim.Worker) float64 {
				return w.Wait(now).Seconds() + weight*w.Prefill(q).Seconds()
			})
		}
	}
}
