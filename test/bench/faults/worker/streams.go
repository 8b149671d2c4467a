package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
)

// flow is a stream on its way.
type flow struct {
	over chan struct{} // closed when result is there

	mu     sync.Mutex // guards the rest
	worker string
	texts  int
	result history.Client
}

// flows begins streams, and returns when each has so many texts.
func flows(ctx context.Context, c *client.Client, n, texts int, of client.Make) ([]*flow, error) {
	all := make([]*flow, n)
	for i := range all {
		f := &flow{over: make(chan struct{})}
		all[i] = f
		q := of(i)
		q.Stream = true
		q.Began = func(worker string) { f.note(worker, 0) }
		q.Each = func(e history.Event) bool {
			if e.Text != "" {
				f.note("", 1)
			}
			return true
		}
		go func() {
			defer close(f.over)
			result := c.Do(ctx, q)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.result = result
		}()
	}
	for _, f := range all {
		err := rig.Until(ctx, time.Millisecond, func(context.Context) error {
			if _, has := f.at(); has < texts {
				return fmt.Errorf("a stream has %d texts", has)
			}
			return nil
		})
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func (f *flow) note(worker string, texts int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if worker != "" {
		f.worker = worker
	}
	f.texts += texts
}

// at is the worker that began the stream, and how many texts have come.
func (f *flow) at() (worker string, texts int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.worker, f.texts
}

// ends waits until streams have ended, and returns what came of them, apart: those of one worker, and those of the others.
func ends(ctx context.Context, all []*flow, pod string) (on, beside []history.Client, err error) {
	for _, f := range all {
		select {
		case <-f.over:
		case <-ctx.Done():
			return on, beside, context.Cause(ctx)
		}
		f.mu.Lock()
		if f.worker == pod {
			on = append(on, f.result)
		} else {
			beside = append(beside, f.result)
		}
		f.mu.Unlock()
	}
	return on, beside, nil
}

// busiest is the worker that most streams began on.
func busiest(workers []*rig.Worker, all []*flow) *rig.Worker {
	n := map[string]int{}
	for _, f := range all {
		pod, _ := f.at()
		n[pod]++
	}
	var found *rig.Worker
	for _, w := range workers {
		if found == nil || n[w.Pod] > n[found.Pod] {
			found = w
		}
	}
	return found
}

// longest is the longest time between two texts of any of the answers.
func longest(all []history.Client) time.Duration {
	most := time.Duration(0)
	for i := range all {
		most = max(most, all[i].Pause())
	}
	return most
}

// leaves starts to look when a worker leaves the ring of a router, and returns how long that took since then.
func leaves(ctx context.Context, x *rig.Router, pod string) func() (time.Duration, error) {
	return awaits(ctx, x, pod, false)
}

// awaits starts to look when a worker is in the ring of a router, or is not.
func awaits(ctx context.Context, x *rig.Router, pod string, in bool) func() (time.Duration, error) {
	began := time.Now()
	type end struct {
		took time.Duration
		err  error
	}
	done := make(chan end, 1)
	go func() {
		err := x.Await(ctx, pod, in)
		done <- end{time.Since(began), err}
	}()
	return func() (time.Duration, error) {
		e := <-done
		return e.took, e.err
	}
}

// retried is what a router had to ask of other workers in a time.
type retried struct {
	looks, requests int
	last            time.Duration // when it was seen to, after the beginning; 0: never
}

// asks looks how often a router has to ask another worker, until the result is called.
func asks(ctx context.Context, x *rig.Router) func() retried {
	began, stop, over := time.Now(), make(chan struct{}), make(chan retried, 1)
	go func() {
		var seen retried
		before := 0.0
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			if f, err := x.Figures(ctx); err == nil {
				now := rig.Figure(f, "ringfleet_router_retries_total", nil)
				if now > before && seen.looks > 0 {
					seen.last = time.Since(began)
					seen.requests += int(now - before)
				}
				before = now
				seen.looks++
			}
			select {
			case <-tick.C:
			case <-stop:
				over <- seen
				return
			}
		}
	}()
	return func() retried {
		close(stop)
		return <-over
	}
}
