// Package sim replays a trace of requests on a fleet of simulated workers, on a virtual clock. A worker keeps the prefixes
// of prompts in an LRU cache of blocks, computes prompts one after the other, and makes the tokens of its answers at a
// fixed pace, however many there are. The package says what became of each request; where a request goes is for the Router
// that it is given.
package sim

import (
	"container/heap"
	"context"
	"fmt"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/placement/trace"
)

// Options describe the fleet.
type Options struct {
	Workers int
	// Blocks is the room of each worker's cache, in blocks of 512 tokens.
	Blocks int
	// Speed is how many times faster than in the trace requests come.
	Speed float64
	// Rate is how many tokens of prompts a worker computes in a second.
	Rate float64
	// Token is how long a worker takes for each token of an answer.
	Token time.Duration
	// Report is the time from a worker's report to its next.
	Report time.Duration
}

// Defaults are 8 workers with a cache of 2 million tokens, which compute 8,000 tokens a second.
func Defaults() Options {
	return Options{Workers: 8, Blocks: 4000, Speed: 1, Rate: 8000, Token: 20 * time.Millisecond, Report: time.Second}
}

func (o Options) validate() error {
	if o.Workers < 1 || o.Blocks < 1 || o.Speed <= 0 || o.Rate <= 0 || o.Token <= 0 || o.Report <= 0 {
		return fmt.Errorf("simulate %+v: want values above 0", o)
	}
	return nil
}

// Router places requests. Its methods are called by one goroutine, in the order of the virtual time.
type Router interface {
	// Place returns the number of a worker, or -1 when none can take the request now: it is asked again when one has
	// ended a request or reported.
	Place(q *trace.Request, now time.Duration) int
	// FirstToken and Ended tell what becomes of a request that was placed.
	FirstToken(j *Job, now time.Duration)
	Ended(j *Job, now time.Duration)
	// Report comes from each worker at fixed intervals.
	Report(worker int, now time.Duration)
}

// Fleet is the workers as they are.
type Fleet struct {
	Workers []*Worker
}

// Result is what became of the requests.
type Result struct {
	// Jobs are the requests in the order of the trace.
	Jobs []*Job
	// Arrived is when each of them came.
	Arrived []time.Duration
	// Prefilled and Placed are the tokens of prompts that each worker computed, and the requests that it took.
	Prefilled, Placed []int
	// Held is how many requests found no worker at once.
	Held int
}

// patience is the virtual time for which requests may wait for a worker while no worker has any work.
const patience = time.Minute

// Run replays a trace. The router is made for the fleet that it places requests on. An error says that the options are
// wrong, that the router chose a worker that is not there or left requests without one, or that ctx has ended.
func Run(ctx context.Context, o Options, t *trace.Trace, start func(*Fleet) Router) (*Result, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := newRun(o, t, start)
	for step := 0; r.left > 0; step++ {
		if step%1024 == 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("replay %s: %d of %d requests had not ended: %w", t.Name, r.left, len(t.Requests), context.Cause(ctx))
		}
		if err := r.step(); err != nil {
			return nil, fmt.Errorf("replay %s: %w", t.Name, err)
		}
	}
	return r.result(), nil
}

// run is a replay under way.
type run struct {
	Options
	trace   *trace.Trace
	fleet   *Fleet
	router  Router
	events  events
	order   int // of the next event
	next    int // the next request to arrive
	held    []int
	since   time.Duration // when the last job ended or came
	running int
	left    int
	out     *Result
}

func newRun(o Options, t *trace.Trace, start func(*Fleet) Router) *run {
	r := &run{Options: o, trace: t, fleet: &Fleet{}, left: len(t.Requests), out: &Result{
		Jobs: make([]*Job, len(t.Requests)), Arrived: make([]time.Duration, len(t.Requests)),
	}}
	for i := range o.Workers {
		r.fleet.Workers = append(r.fleet.Workers, &Worker{cache: NewCache(o.Blocks), rate: o.Rate, token: o.Token})
		// Workers don't report at the same moment.
		r.push(event{at: o.Report * time.Duration(i) / time.Duration(o.Workers), kind: report, worker: i})
	}
	r.router = start(r.fleet)
	return r
}

func (r *run) push(e event) {
	e.order = r.order
	r.order++
	heap.Push(&r.events, e)
}

// arrival is when the next request comes; false after the last one.
func (r *run) arrival() (time.Duration, bool) {
	if r.next == len(r.trace.Requests) {
		return 0, false
	}
	return time.Duration(float64(r.trace.Requests[r.next].At) / r.Speed), true
}

// step does what comes next. What workers tell at a moment comes before the requests that arrive in it.
func (r *run) step() error {
	at, more := r.arrival()
	if more && at < r.events[0].at {
		r.out.Arrived[r.next] = at
		r.next++
		if len(r.held) > 0 { // first come, first served
			r.hold(r.next - 1)
			return nil
		}
		placed, err := r.place(r.next-1, at)
		if err == nil && !placed {
			r.hold(r.next - 1)
		}
		return err
	}
	e := heap.Pop(&r.events).(event)
	switch e.kind {
	case first:
		r.router.FirstToken(e.job, e.at)
		return nil
	case end:
		r.fleet.Workers[e.job.Worker].end(e.job)
		r.running--
		r.left--
		r.since = e.at
		r.router.Ended(e.job, e.at)
	case report:
		r.router.Report(e.worker, e.at)
		r.push(event{at: e.at + r.Report, kind: report, worker: e.worker})
		if len(r.held) > 0 && r.running == 0 && e.at-r.since > patience {
			return fmt.Errorf("%d requests found no worker for %s, though no worker had work", len(r.held), patience)
		}
	}
	return r.release(e.at)
}

func (r *run) hold(i int) {
	r.held = append(r.held, i)
	r.out.Held++
}

// release places requests that wait, until one finds no worker.
func (r *run) release(now time.Duration) error {
	for len(r.held) > 0 {
		placed, err := r.place(r.held[0], now)
		if err != nil || !placed {
			return err
		}
		r.held = r.held[1:]
	}
	return nil
}

// place asks the router for a worker.
func (r *run) place(i int, now time.Duration) (bool, error) {
	q := &r.trace.Requests[i]
	w := r.router.Place(q, now)
	if w < 0 {
		return false, nil
	}
	if w >= len(r.fleet.Workers) {
		return false, fmt.Errorf("request %d was placed on worker %d of %d", i, w, len(r.fleet.Workers))
	}
	j := r.fleet.Workers[w].take(q, w, now)
	r.out.Jobs[i] = j
	r.running++
	r.since = now
	r.push(event{at: j.First, kind: first, job: j})
	r.push(event{at: j.End, kind: end, job: j})
	return true, nil
}

func (r *run) result() *Result {
	for _, w := range r.fleet.Workers {
		r.out.Prefilled = append(r.out.Prefilled, w.prefilled)
		r.out.Placed = append(r.out.Placed, w.placed)
	}
	return r.out
}
