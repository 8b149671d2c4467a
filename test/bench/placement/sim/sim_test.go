package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/placement/trace"
)

// told is a router that places by a function and writes down what it is told.
type told struct {
	place   func(q *trace.Request, now time.Duration) int
	first   map[int]int
	ended   map[int]int
	reports []time.Duration
}

func (r *told) Place(q *trace.Request, now time.Duration) int { return r.place(q, now) }
func (r *told) FirstToken(j *Job, _ time.Duration)            { r.first[j.Request.Index]++ }
func (r *told) Ended(j *Job, _ time.Duration)                 { r.ended[j.Request.Index]++ }
func (r *told) Report(_ int, now time.Duration)               { r.reports = append(r.reports, now) }

func router(place func(q *trace.Request, now time.Duration) int) *told {
	return &told{place: place, first: map[int]int{}, ended: map[int]int{}}
}

func replay(t *testing.T, o Options, tr *trace.Trace, r *told) *Result {
	t.Helper()
	got, err := Run(context.Background(), o, tr, func(*Fleet) Router { return r })
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func requests(q ...trace.Request) *trace.Trace {
	for i := range q {
		q[i].Index = i
	}
	return &trace.Trace{Name: "made up", Requests: q}
}

// small has workers that compute a block in 0.512 s.
func small(workers, blocks int) Options {
	o := Defaults()
	o.Workers, o.Blocks, o.Rate = workers, blocks, 1000
	return o
}

const ms = time.Millisecond

func TestAWorkerComputesOnePromptAfterTheOther(t *testing.T) {
	tr := requests(
		trace.Request{At: 0, Input: 1000, Output: 10, Blocks: []uint64{1, 2}},
		trace.Request{At: 100 * ms, Input: 1000, Output: 5, Blocks: []uint64{1, 2}}, // all cached but a token
		trace.Request{At: 100 * ms, Input: 600, Output: 1, Blocks: []uint64{1, 3}},  // 88 tokens of it are not
		trace.Request{At: 5000 * ms, Input: 512, Output: 1, Blocks: []uint64{4}},
	)
	got := replay(t, small(1, 10), tr, router(func(*trace.Request, time.Duration) int { return 0 }))
	want := []Job{
		{Request: &tr.Requests[0], Matched: 0, Cached: 0, Prefill: 1000, Placed: 0, Begin: 0, First: 1000 * ms, End: 1200 * ms},
		{Request: &tr.Requests[1], Matched: 2, Cached: 999, Prefill: 1, Placed: 100 * ms, Begin: 1000 * ms, First: 1001 * ms, End: 1101 * ms},
		{Request: &tr.Requests[2], Matched: 1, Cached: 512, Prefill: 88, Placed: 100 * ms, Begin: 1001 * ms, First: 1089 * ms, End: 1109 * ms},
		{Request: &tr.Requests[3], Matched: 0, Cached: 0, Prefill: 512, Placed: 5000 * ms, Begin: 5000 * ms, First: 5512 * ms, End: 5532 * ms},
	}
	for i, j := range got.Jobs {
		if *j != want[i] {
			t.Errorf("request %d: %+v, want %+v", i, *j, want[i])
		}
	}
	s := got.Summary()
	if s.Hit != 3.0/7 || s.Mean != (1000+901+989+512)*ms/4 || s.P90 != 1000*ms || s.P99 != 1000*ms || s.PrefillPeak != 1 || s.RequestPeak != 1 {
		t.Errorf("%+v", s)
	}
}

func TestAFasterTraceComesEarlier(t *testing.T) {
	tr := requests(trace.Request{Input: 1, Output: 1, Blocks: []uint64{1}}, trace.Request{At: 3000 * ms, Input: 1, Output: 1, Blocks: []uint64{1}})
	o := small(1, 1)
	o.Speed = 1.5
	if got := replay(t, o, tr, router(func(*trace.Request, time.Duration) int { return 0 })); got.Arrived[1] != 2000*ms {
		t.Errorf("at %s", got.Arrived[1])
	}
}

func TestPeaksAreOverTheMeanOfAllWorkers(t *testing.T) {
	tr := requests(
		trace.Request{Input: 300, Output: 1, Blocks: []uint64{1}}, trace.Request{Input: 100, Output: 1, Blocks: []uint64{2}},
		trace.Request{Input: 100, Output: 1, Blocks: []uint64{3}}, trace.Request{Input: 300, Output: 1, Blocks: []uint64{4}},
	)
	s := replay(t, small(4, 10), tr, router(func(q *trace.Request, _ time.Duration) int { return min(q.Index, 1) })).Summary()
	if s.PrefillPeak != 2.5 || s.RequestPeak != 3 {
		t.Errorf("%+v", s)
	}
}

func TestAWorkerSaysWhatItHasToDo(t *testing.T) {
	tr := requests(
		trace.Request{At: 0, Input: 1000, Output: 100, Blocks: []uint64{1, 2}},
		trace.Request{At: 0, Input: 500, Output: 100, Blocks: []uint64{3}},
		trace.Request{At: 1200 * ms, Input: 100, Output: 1, Blocks: []uint64{4}},
	)
	seen := false
	_, err := Run(context.Background(), small(1, 10), tr, func(f *Fleet) Router {
		return router(func(q *trace.Request, now time.Duration) int {
			w := f.Workers[0]
			switch q.Index {
			case 1:
				if w.Waiting(now) != 0 || w.Rate(now) != 0 || w.Backlog(now) != 1000 {
					t.Errorf("at once: %d wait, %g a second, %d to do", w.Waiting(now), w.Rate(now), w.Backlog(now))
				}
			case 2:
				seen = true
				// The first answer has 10 tokens of 20 ms; of the second prompt 200 tokens are computed.
				if w.Waiting(now) != 0 || w.Rate(now) != 1000 || w.Backlog(now) != 300 || w.Held(now) != 1510 || w.Room() != 5120 {
					t.Errorf("%d wait, %g a second, %d to do, holds %d of %d", w.Waiting(now), w.Rate(now), w.Backlog(now), w.Held(now), w.Room())
				}
				if p := w.Prefill(q); w.Wait(now) != 300*ms || p != 100*ms {
					t.Errorf("waits %s and computes %s", w.Wait(now), p)
				}
			}
			return 0
		})
	})
	if err != nil || !seen {
		t.Error(err)
	}
}

// busy is a trace of many requests, of which some find their prefix and some a full cache.
func busy() *trace.Trace {
	chance := rand.New(rand.NewPCG(5, 0))
	var q []trace.Request
	at := time.Duration(0)
	for range 2000 {
		at += time.Duration(chance.IntN(3)) * 400 * ms
		blocks := []uint64{0}
		talk := 1000 * chance.Uint64N(30)
		for i := range 1 + chance.Uint64N(12) {
			blocks = append(blocks, 1+talk+i)
		}
		q = append(q, trace.Request{At: at, Input: len(blocks)*512 - chance.IntN(500), Output: 1 + chance.IntN(40), Blocks: blocks})
	}
	return requests(q...)
}

func TestEachRequestEndsOnceAndEachWorkerIsFirstComeFirstServed(t *testing.T) {
	tr, chance := busy(), rand.New(rand.NewPCG(6, 0))
	o := small(3, 40)
	r := router(func(*trace.Request, time.Duration) int { return chance.IntN(3) })
	got := replay(t, o, tr, r)
	free, tokens, taken := make([]time.Duration, 3), make([]int, 3), make([]int, 3)
	for i, j := range got.Jobs {
		if j == nil || j.Request.Index != i || r.first[i] != 1 || r.ended[i] != 1 {
			t.Fatalf("request %d: %+v, %d first tokens, %d ends", i, j, r.first[i], r.ended[i])
		}
		if j.Placed != got.Arrived[i] || j.Begin != max(free[j.Worker], j.Placed) || j.End != j.First+time.Duration(j.Request.Output)*o.Token {
			t.Fatalf("request %d: %+v, its worker was free at %s", i, *j, free[j.Worker])
		}
		if j.Cached+j.Prefill != j.Request.Input || j.Prefill < 1 {
			t.Fatalf("request %d has %d tokens, %d cached and %d computed", i, j.Request.Input, j.Cached, j.Prefill)
		}
		free[j.Worker] = j.First
		tokens[j.Worker] += j.Prefill
		taken[j.Worker]++
	}
	if !reflect.DeepEqual(tokens, got.Prefilled) || !reflect.DeepEqual(taken, got.Placed) {
		t.Errorf("%v and %v, want %v and %v", got.Prefilled, got.Placed, tokens, taken)
	}
	if s := got.Summary(); s.Hit < 0.1 || s.Hit > 0.9 {
		t.Errorf("a hit rate of %g shows little", s.Hit)
	}
}

func TestWorkersReportAtTheirInterval(t *testing.T) {
	tr := requests(trace.Request{Input: 2500, Output: 1, Blocks: []uint64{1, 2, 3, 4, 5}})
	r := router(func(*trace.Request, time.Duration) int { return 0 })
	replay(t, small(2, 10), tr, r)
	if want := []time.Duration{0, 500 * ms, 1000 * ms, 1500 * ms, 2000 * ms, 2500 * ms}; !reflect.DeepEqual(r.reports, want) {
		t.Errorf("%v", r.reports)
	}
}

func TestRequestsWithoutAWorkerWaitInOrder(t *testing.T) {
	one := trace.Request{Input: 100, Output: 5, Blocks: []uint64{1}}
	tr := requests(one, one, one)
	tr.Requests[2].At = 50 * ms
	running := 0
	got, err := Run(context.Background(), small(1, 1), tr, func(f *Fleet) Router {
		return router(func(*trace.Request, time.Duration) int {
			if running = len(f.Workers[0].Jobs()); running > 0 {
				return -1
			}
			return 0
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	// Each computes its prompt, then takes 100 ms; the later two find all but one token in the cache.
	for i, want := range []time.Duration{0, 200 * ms, 301 * ms} {
		if got.Jobs[i].Placed != want {
			t.Errorf("request %d was placed at %s, want %s", i, got.Jobs[i].Placed, want)
		}
	}
	if s := got.Summary(); s.Held != 2 || s.P99 != 252*ms {
		t.Errorf("%+v", s)
	}
}

func TestWhatNeverEndsIsAnError(t *testing.T) {
	tr := requests(trace.Request{Input: 1, Output: 1, Blocks: []uint64{1}})
	nobody := router(func(*trace.Request, time.Duration) int { return -1 })
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	for name, c := range map[string]struct {
		ctx    context.Context
		o      Options
		router *told
		want   string
	}{
		"no worker for any":  {context.Background(), small(1, 1), nobody, "1 requests found no worker for 1m0s"},
		"no such worker":     {context.Background(), small(2, 1), router(func(*trace.Request, time.Duration) int { return 2 }), "request 0 was placed on worker 2 of 2"},
		"no room for blocks": {context.Background(), small(1, 0), nobody, "want values above 0"},
		"the caller's end":   {ended, small(1, 1), nobody, "1 of 1 requests had not ended: enough"},
	} {
		_, err := Run(c.ctx, c.o, tr, func(*Fleet) Router { return c.router })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestQuantilesAreValuesThatWereSeen(t *testing.T) {
	var v []time.Duration
	for i := range 200 {
		v = append(v, time.Duration(i+1))
	}
	for percent, want := range map[int]time.Duration{90: 180, 99: 198} {
		if got := quantile(v, percent); got != want {
			t.Errorf("%d per cent: %d, want %d", percent, got, want)
		}
	}
	if got := quantile(v[:1], 90); got != 1 {
		t.Errorf("of one value: %d", got)
	}
}
