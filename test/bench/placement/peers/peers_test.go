package peers

import (
	"context"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/placement/sim"
	"github.com/ringfleet/ringfleet/test/bench/placement/trace"
)

const ms = time.Millisecond

// on is a request that is put on a worker.
type on struct {
	worker int
	trace.Request
}

func blocks(ids ...uint64) trace.Request {
	return trace.Request{Input: len(ids) * trace.BlockTokens, Output: 1000, Blocks: ids}
}

// many are n requests of one token that share nothing; they run for long.
func many(worker, n int) []on {
	var out []on
	for i := range n {
		out = append(out, on{worker, trace.Request{Input: 1, Output: 1000, Blocks: []uint64{uint64(1000*worker + i + 5000)}}})
	}
	return out
}

func named(t *testing.T, name string) Peer {
	t.Helper()
	for _, p := range All() {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no peer is called %s", name)
	return Peer{}
}

// ask puts requests on three workers that compute 1000 tokens in a second, all at once, and asks a peer for the next
// ones, which come at a time.
func ask(t *testing.T, name string, before []on, at time.Duration, next ...trace.Request) []int {
	t.Helper()
	tr := &trace.Trace{Name: "made up"}
	for _, b := range before {
		tr.Requests = append(tr.Requests, b.Request)
	}
	for _, q := range next {
		q.At = at
		tr.Requests = append(tr.Requests, q)
	}
	for i := range tr.Requests {
		tr.Requests[i].Index = i
	}
	o := sim.Defaults()
	o.Workers, o.Blocks, o.Rate = 3, 100, 1000
	got, err := sim.Run(context.Background(), o, tr, func(f *sim.Fleet) sim.Router {
		p := named(t, name).Start(f)
		return rule(func(q *trace.Request, now time.Duration) int {
			if q.Index < len(before) {
				return before[q.Index].worker
			}
			return p.Place(q, now)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, j := range got.Jobs[len(before):] {
		out = append(out, j.Worker)
	}
	return out
}

func TestRulesOnFleetsThatOneCanCheckByHand(t *testing.T) {
	hit := blocks(1, 2, 3, 4, 5)
	const later = 9 * time.Second // every prompt is computed, no answer is complete
	for name, c := range map[string]struct {
		peer   string
		before []on
		at     time.Duration
		want   int
	}{
		"least in flight": {"least-in-flight", []on{{0, blocks(1)}, {2, blocks(2)}}, 0, 1},

		"SGLang goes where the prefix is":                     {"sglang-cli", []on{{1, blocks(1, 2)}, {1, blocks(7)}}, later, 1},
		"SGLang's library finds two of five blocks too few":   {"sglang-lib", []on{{1, blocks(1, 2)}, {1, blocks(7)}, {0, blocks(8)}}, later, 2},
		"SGLang leaves a prefix behind where loads lie apart": {"sglang-lib", append(many(1, 40), on{1, hit}, on{0, blocks(8)}), later, 2},
		"SGLang's other numbers bear forty more":              {"sglang-cli", append(many(1, 40), on{1, hit}, on{0, blocks(8)}), later, 1},

		"AIBrix goes where the longest prefix is":      {"aibrix", []on{{1, blocks(1, 2, 3)}, {2, blocks(1, 2)}, {0, blocks(8)}}, later, 1},
		"AIBrix passes over one with more than others": {"aibrix", append(many(1, 5), on{1, blocks(1, 2, 3)}, on{2, blocks(1, 2)}, on{0, blocks(8)}), later, 2},
		"AIBrix bears a difference of eight":           {"aibrix", append(many(1, 7), on{1, hit}, on{2, hit}), later, 2},
		"AIBrix bears no difference of nine":           {"aibrix", append(many(1, 8), on{1, hit}, on{2, hit}), later, 0},
		"AIBrix knows no prefix":                       {"aibrix", []on{{0, blocks(8)}, {1, blocks(9)}}, later, 2},

		"llm-d's prefix outweighs the longest queue":    {"llm-d", []on{{1, hit}, {1, blocks(7)}}, 0, 1},
		"llm-d's queue outweighs a part of the prefix":  {"llm-d", []on{{1, blocks(1, 2, 3)}, {1, blocks(7)}, {0, blocks(8)}}, 0, 2},
		"llm-d's prefix alone, where none waits":        {"llm-d", []on{{1, blocks(1, 2, 3)}, {0, blocks(8)}}, later, 1},
		"llm-d's memory decides where all else is even": {"llm-d", []on{{0, blocks(7, 8)}, {1, blocks(9)}, {2, blocks(11, 12)}}, later, 1},

		"Dynamo counts what is to be computed":      {"dynamo", []on{{0, blocks(1, 2, 3)}, {1, blocks(7)}, {2, blocks(8, 9)}}, 0, 1},
		"Dynamo counts what requests hold, too":     {"dynamo", []on{{0, blocks(6)}, {1, blocks(7, 8, 9, 10, 11)}, {2, blocks(12, 13, 14)}}, later, 0},
		"Dynamo leaves a prefix where much is held": {"dynamo", []on{{0, hit}, {0, blocks(31, 32, 33)}, {1, blocks(7)}, {2, blocks(8, 9)}}, later, 1},

		"the oracle weighs waiting": {"oracle", []on{{0, blocks(1, 2, 3)}, {1, blocks(7, 8)}, {2, blocks(9, 10, 11, 12)}}, 500 * ms, 0},
		// Worker 0 waits 2060 ms and computes 1; worker 1 waits none and computes 2560.
		"the oracle waits for a prefix":              {"oracle", []on{{0, hit}, {1, blocks(7)}, {2, blocks(8)}}, 500 * ms, 0},
		"the oracle waits no longer than it gains":   {"oracle", []on{{0, hit}, {0, blocks(21, 22)}, {1, blocks(7)}, {2, blocks(8, 9)}}, 512 * ms, 1},
		"the second oracle spares those that follow": {"oracle-2", []on{{0, hit}, {0, blocks(21, 22)}, {1, blocks(7)}, {2, blocks(8, 9)}}, 512 * ms, 0},
	} {
		if got := ask(t, c.peer, c.before, c.at, hit)[0]; got != c.want {
			t.Errorf("%s: worker %d, want %d", name, got, c.want)
		}
	}
}

func TestRoundRobinGoesAround(t *testing.T) {
	q := blocks(1)
	got := ask(t, "round-robin", nil, 0, q, q, q, q)
	for i, w := range got {
		if w != i%3 {
			t.Fatalf("%v", got)
		}
	}
}

func TestTheRingKeepsWhatBeginsAlikeTogether(t *testing.T) {
	var next []trace.Request
	for i := range uint64(60) {
		next = append(next, blocks(0, 1+i%30, 100+i))
	}
	one, two := ask(t, "ring-1", nil, 0, next...), ask(t, "ring-2", nil, 0, next...)
	workers := map[int]bool{}
	for i := range next {
		if one[i] != one[0] {
			t.Errorf("request %d has left the first block's worker", i)
		}
		if two[i] != two[i%30] {
			t.Errorf("request %d has left its conversation", i)
		}
		workers[two[i]] = true
	}
	if len(workers) != 3 {
		t.Errorf("30 conversations are on %d workers", len(workers))
	}
}

func TestTheBoundedRingPassesOverTheFull(t *testing.T) {
	var next []trace.Request
	for i := range uint64(60) {
		next = append(next, blocks(0, 1+i))
	}
	count := map[int]int{}
	for _, w := range ask(t, "chwbl-1", nil, 0, next...) {
		count[w]++
	}
	// 60 requests of which none has ended: no worker has more than 1.25 times the mean of 20, and two are as full as that.
	if len(count) != 3 || max(count[0], count[1], count[2]) != 25 || min(count[0], count[1], count[2]) != 10 {
		t.Errorf("%v", count)
	}
}

func TestEqualWorkersAreTakenInTurnsAndAlikeInEachRun(t *testing.T) {
	var next []trace.Request
	for i := range uint64(30) {
		next = append(next, blocks(100+i))
	}
	for _, name := range []string{"random", "oracle"} {
		first, again := ask(t, name, nil, 0, next...), ask(t, name, nil, 0, next...)
		workers := map[int]bool{}
		for i := range first {
			if first[i] != again[i] {
				t.Fatalf("%s: %v, then %v", name, first, again)
			}
			workers[first[i]] = true
		}
		if len(workers) != 3 {
			t.Errorf("%s uses %d workers", name, len(workers))
		}
	}
}
