package ours

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/prefix"
	"github.com/ringfleet/ringfleet/test/bench/placement/sim"
	"github.com/ringfleet/ringfleet/test/bench/placement/trace"
)

func made(t *testing.T) *trace.Trace {
	t.Helper()
	tr, err := trace.Read("../cmd/testdata/conversation.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// small is a fleet that the trace in testdata keeps busy.
func small() sim.Options {
	o := sim.Defaults()
	o.Workers, o.Blocks, o.Rate = 3, 500, 4000
	return o
}

func replay(t *testing.T, policy string, routers int) *sim.Result {
	t.Helper()
	tr := made(t)
	start, err := Start(policy, routers, Chains(tr))
	if err != nil {
		t.Fatal(err)
	}
	got, err := sim.Run(context.Background(), small(), tr, start)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func workers(r *sim.Result) []int {
	var out []int
	for _, j := range r.Jobs {
		out = append(out, j.Worker)
	}
	return out
}

func TestEveryPolicyPlacesEveryRequestAndAlikeInEachRun(t *testing.T) {
	for _, policy := range placement.Names() {
		for _, routers := range []int{1, 3} {
			first, again := replay(t, policy, routers), replay(t, policy, routers)
			if !slices.Equal(workers(first), workers(again)) {
				t.Errorf("%s with %d routers: %v, then %v", policy, routers, workers(first), workers(again))
			}
			if s := first.Summary(); s.Held != 0 {
				t.Errorf("%s with %d routers: %d requests of few found no worker", policy, routers, s.Held)
			}
		}
	}
}

func TestTheDefaultPolicyFindsMorePrefixesThanRoundRobin(t *testing.T) {
	best, turns := replay(t, placement.DefaultPolicy, 1).Summary(), replay(t, "RoundRobin", 1).Summary()
	if best.Hit <= turns.Hit {
		t.Errorf("%g, and %g in turns", best.Hit, turns.Hit)
	}
}

func TestRequestsAreDealtToRoutersInTurns(t *testing.T) {
	tr := made(t)
	var r *routers
	_, err := sim.Run(context.Background(), small(), tr, func(f *sim.Fleet) sim.Router {
		r = begin(f, placement.DefaultPolicy, 3, Chains(tr))
		return r
	})
	if err != nil {
		t.Fatal(err)
	}
	for turn, b := range r.boards {
		made := b.Decisions("")
		if want := (len(tr.Requests) + 2 - turn) / 3; len(made) != want {
			t.Errorf("router %d has placed %d of %d requests, want %d", turn, len(made), len(tr.Requests), want)
		}
		for i := turn; i < len(tr.Requests); i += 3 {
			if len(b.Decisions(id(&tr.Requests[i]))) != 1 {
				t.Errorf("router %d has not placed request %d", turn, i)
			}
		}
	}
	for i, ticket := range r.tickets {
		if ticket != nil {
			t.Errorf("the router is not told that request %d has ended", i)
		}
	}
}

func TestAChainGoesAsFarAsThePromptAndSharesWhatTheTraceSays(t *testing.T) {
	tr := &trace.Trace{Requests: []trace.Request{
		{Index: 0, Input: 1024, Blocks: []uint64{0, 1}},
		{Index: 1, Input: 1100, Blocks: []uint64{0, 1, 2}},
		{Index: 2, Input: 1024, Blocks: []uint64{0, 3}},
		{Index: 3, Input: 17, Blocks: []uint64{0}},
	}}
	got := Chains(tr)
	for i, want := range []int{64, 68, 64, 1} { // blocks of 16 tokens
		if len(got[i]) != want {
			t.Errorf("prompt %d has %d blocks, want %d", i, len(got[i]), want)
		}
	}
	common := func(a, b prefix.Chain) int {
		n := 0
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		return n
	}
	for other, want := range map[int]int{1: 64, 2: 32, 3: 1} {
		if n := common(got[0], got[other]); n != want {
			t.Errorf("prompts 0 and %d share %d blocks, want %d", other, n, want)
		}
	}
	all := slices.Sorted(slices.Values(append(slices.Clone(got[0]), got[2][32:]...)))
	if len(slices.Compact(all)) != 96 {
		t.Error("two places of two prompts have one hash")
	}
}

func TestAPromptIsNamedByTheBlocksThatALaterTurnShares(t *testing.T) {
	tr := &trace.Trace{Requests: []trace.Request{
		{Index: 0, Input: 1024, Blocks: []uint64{0, 1}},
		{Index: 1, Input: 1100, Blocks: []uint64{0, 1, 2}},
		{Index: 2, Input: 511, Blocks: []uint64{3}},
	}}
	chains := Chains(tr)
	whole := placement.Prompt{Hash: chains[0][63], Blocks: 64}
	for i, want := range []placement.Prompt{whole, whole, {}} {
		if got := prompt(&tr.Requests[i], chains[i]); got != want {
			t.Errorf("prompt %d is named %v, want %v", i, got, want)
		}
	}
}

func TestARouterHearsInReportsWhatAnotherOneSent(t *testing.T) {
	tr := &trace.Trace{Name: "made up", Requests: []trace.Request{ // to each of two routers in turn
		{Index: 0, At: 100 * time.Millisecond, Input: 1024, Output: 1, Blocks: []uint64{0, 1}},
		{Index: 1, At: 500 * time.Millisecond, Input: 1100, Output: 1, Blocks: []uint64{0, 1, 2}},
		{Index: 2, At: 1200 * time.Millisecond, Input: 512, Output: 1, Blocks: []uint64{9}},
		{Index: 3, At: 1500 * time.Millisecond, Input: 600, Output: 1, Blocks: []uint64{9, 8}},
		{Index: 4, At: 1600 * time.Millisecond, Input: 512, Output: 1, Blocks: []uint64{7}},
		{Index: 5, At: 2500 * time.Millisecond, Input: 1024, Output: 1, Blocks: []uint64{9, 5}},
	}}
	o := small()
	o.Workers = 1 // it reports each second
	var r *routers
	_, err := sim.Run(context.Background(), o, tr, func(f *sim.Fleet) sim.Router {
		r = begin(f, placement.DefaultPolicy, 2, Chains(tr))
		return r
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]int{1: 0, 3: 0, 5: 512} {
		if got := r.boards[1].Decisions(id(&tr.Requests[i]))[0].Chosen.Cached; got != want {
			t.Errorf("of request %d %d tokens are thought to be there, want %d", i, got, want)
		}
	}
	if left := r.sent[0]; len(left) != 1 {
		t.Errorf("%d prompts are left for the next report, want the last one", len(left))
	}
}

func TestAReportIsTheWorkersTruth(t *testing.T) {
	tr := &trace.Trace{Name: "made up", Requests: []trace.Request{
		{Index: 0, Input: 1000, Output: 100, Blocks: []uint64{1, 2}},
		{Index: 1, Input: 500, Output: 100, Blocks: []uint64{3}},
		{Index: 2, At: 1200 * time.Millisecond, Input: 100, Output: 1, Blocks: []uint64{4}},
	}}
	o := small()
	o.Workers, o.Rate, o.Blocks = 1, 1000, 10
	start, err := Start("LeastLoaded", 1, Chains(tr))
	if err != nil {
		t.Fatal(err)
	}
	var at []placement.Load
	_, err = sim.Run(context.Background(), o, tr, func(f *sim.Fleet) sim.Router {
		return watched{start(f), func(now time.Duration) { at = append(at, load(f.Workers[0], now)) }}
	})
	if err != nil {
		t.Fatal(err)
	}
	whole, part, room, left, to := uint64(1500), uint64(1510), uint64(5120), uint64(500), uint64(300)
	rate := 1000.0
	want := placement.Load{Running: 2, Seats: seats, KVTotal: &room, KVUsed: &part, Backlog: &to, Prefill: &rate, RequestIDs: []string{"request-0", "request-1"}}
	if !reflect.DeepEqual(at[1], want) {
		t.Errorf("%+v", at[1])
	}
	want.KVUsed, want.Backlog = &whole, &left
	if !reflect.DeepEqual(at[0], want) {
		t.Errorf("%+v", at[0])
	}
}

// watched looks at a worker when it reports, and when a request comes after that.
type watched struct {
	sim.Router
	look func(now time.Duration)
}

func (w watched) Report(worker int, now time.Duration) {
	if now == time.Second {
		w.look(now)
	}
	w.Router.Report(worker, now)
}

func (w watched) Place(q *trace.Request, now time.Duration) int {
	if now > 0 {
		w.look(now)
	}
	return w.Router.Place(q, now)
}

func TestWhatIsNotThereIsRefused(t *testing.T) {
	if _, err := Start("MostLoaded", 1, nil); err == nil {
		t.Error("a policy that is not there")
	}
	if _, err := Start("RoundRobin", 0, nil); err == nil {
		t.Error("no router")
	}
}
