// Package peers chooses workers as other routers do, by their published rules and parameters; no code of theirs runs.
// Each rule sees the fleet as it is at that moment, the cache and the work of every worker, which no router does: its
// estimates are never wrong and never late. That favours all of them alike.
package peers

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/placement/sim"
	"github.com/ringfleet/ringfleet/test/bench/placement/trace"
)

// Peer is a way to choose.
type Peer struct {
	// Name is for flags, Title for people.
	Name, Title string
	// Start makes its router, which knows nothing yet. Every start chooses alike.
	Start func(*sim.Fleet) sim.Router
}

// All are the peers, in the order of the tables.
func All() []Peer {
	return []Peer{
		{"random", "random", start(random)},
		{"round-robin", "round robin", start(roundRobin)},
		{"least-in-flight", "least in flight", start(leastInFlight)},
		{"ring-1", "ring, key = first block", start(onRing(1, 0))},
		{"ring-2", "ring, key = first two blocks", start(onRing(2, 0))},
		{"chwbl-1", "bounded ring 1.25, first block", start(onRing(1, 1.25))},
		{"chwbl-2", "bounded ring 1.25, first two blocks", start(onRing(2, 1.25))},
		{"sglang-cli", "SGLang cache_aware .3/64/1.5", start(cacheAware(0.3, 64, 1.5))},
		{"sglang-lib", "SGLang cache_aware .5/32/1.1", start(cacheAware(0.5, 32, 1.1))},
		{"aibrix", "AIBrix prefix-cache 8/1σ", start(prefixCache(8, 1))},
		{"llm-d", "llm-d prefix 3, queue 2, kv 2", start(weights(3, 2, 2))},
		{"dynamo", "Dynamo-like, overlap 1", start(overlap(1))},
		{"oracle", "oracle: least true TTFT", start(oracle(1))},
		{"oracle-2", "oracle: computing counts twice", start(oracle(2))},
	}
}

// fleet is what a rule chooses from.
type fleet struct {
	*sim.Fleet
	chance *rand.Rand
}

// A rule names a worker for a request.
type rule func(q *trace.Request, now time.Duration) int

// Place is for sim.Router.
func (r rule) Place(q *trace.Request, now time.Duration) int { return r(q, now) }

// FirstToken, Ended and Report tell nothing that a rule does not see.
func (rule) FirstToken(*sim.Job, time.Duration) {}

// Ended is as FirstToken.
func (rule) Ended(*sim.Job, time.Duration) {}

// Report is as FirstToken.
func (rule) Report(int, time.Duration) {}

// seed makes every run choose alike.
const seed = 1

func start(of func(*fleet) rule) func(*sim.Fleet) sim.Router {
	return func(f *sim.Fleet) sim.Router {
		return of(&fleet{Fleet: f, chance: rand.New(rand.NewPCG(seed, 0))})
	}
}

// least is the worker with the least cost; any of those that have it.
func (f *fleet) least(cost func(w *sim.Worker) float64) int {
	return f.leastOf(cost, func(*sim.Worker) bool { return true })
}

// leastOf is least among the workers that fit; -1 when none does.
func (f *fleet) leastOf(cost func(w *sim.Worker) float64, fit func(w *sim.Worker) bool) int {
	best, lowest, ties := -1, 0.0, 0
	for i, w := range f.Workers {
		if !fit(w) {
			continue
		}
		c := cost(w)
		switch {
		case best < 0 || c < lowest:
			best, lowest, ties = i, c, 1
		case c == lowest:
			ties++
			if f.chance.IntN(ties) == 0 {
				best = i
			}
		}
	}
	return best
}

// load is the number of requests that have not ended.
func load(w *sim.Worker) float64 { return float64(len(w.Jobs())) }

// loads are the least and the greatest load, and the sum of all.
func (f *fleet) loads() (least, most, sum float64) {
	least = load(f.Workers[0])
	for _, w := range f.Workers {
		n := load(w)
		least, most, sum = min(least, n), max(most, n), sum+n
	}
	return least, most, sum
}

// names are the members of a ring of n workers.
func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "worker-" + strconv.Itoa(i)
	}
	return out
}
