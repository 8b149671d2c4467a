package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

const (
	// burstOf is how many clients ask at one moment: more than a worker keeps connections to its engine, and one for each
	// while an answer lasts.
	burstOf  = 80
	restless = 200 * time.Millisecond
	// jitter is by how much a connection rests longer or shorter than it is told, so that some are closed at the very moment
	// that a request comes.
	jitter = 10 * time.Millisecond
)

// staleConnections is F13. A worker leaves a connection after 4 s, before an engine does that closes it after 5 s; one that
// closes it after 3 s is the first to do so.
func staleConnections() []trial.Trial {
	second := func(s ...float64) (gaps []time.Duration) {
		for _, x := range s {
			gaps = append(gaps, time.Duration(x*float64(time.Second)))
		}
		return gaps
	}
	return []trial.Trial{
		stale(5*time.Second, 13*time.Second, second(5, 5)),
		stale(3*time.Second, 13*time.Second, second(3, 3, 3)),
	}
}

// stale is a trial with engines that close a connection after a time, and clients that ask again after those times.
func stale(closes, takes time.Duration, gaps []time.Duration) trial.Trial {
	kind := fmt.Sprintf("%.0f s", closes.Seconds())
	name := func(what string) string { return "F13 " + what + ", closed after " + kind }
	return trial.Trial{ID: "F13", Kind: kind, Times: 1, Takes: takes,
		Says: fmt.Sprintf("engines that close connections after %s without a request, and bursts of requests after rests of about that", kind),
		Spec: rig.Spec{Workers: 2, KeepAlive: closes},
		Run: func(ctx context.Context, r *rig.Rig, _ int) ([]bench.Figure, error) {
			before, err := opened(ctx, r)
			if err != nil {
				return nil, err
			}
			for _, w := range r.Workers {
				plan := r.Spec.Plan
				plan.First = restless
				if err := w.Engine.Set(ctx, plan); err != nil {
					return nil, err
				}
			}
			all := bursts(ctx, r, gaps)
			after, err := opened(ctx, r)
			if err != nil {
				return nil, err
			}
			return []bench.Figure{
				bench.AtMost(name("requests that failed"), float64(failures(all)), "", 0),
				bench.AtLeast(name("requests"), float64(len(all)), "", float64(burstOf*(len(gaps)+1))),
				bench.AtLeast(name("connections that the engines saw"), float64(after-before), "", 2*burstOf),
			}, nil
		}}
}

// opened is how many connections the engines have seen.
func opened(ctx context.Context, r *rig.Rig) (n int, err error) {
	for _, w := range r.Workers {
		s, err := w.Engine.State(ctx)
		if err != nil {
			return 0, err
		}
		n += s.Opened
	}
	return n, nil
}

// bursts is clients that ask together, and again each time that their answers were there for so long.
func bursts(ctx context.Context, r *rig.Rig, gaps []time.Duration) []history.Client {
	var mu sync.Mutex // guards all
	var all []history.Client
	var group sync.WaitGroup
	for i := range burstOf {
		group.Go(func() {
			source := rand.New(rand.NewPCG(uint64(i), 13))
			for n := range len(gaps) + 1 {
				if n > 0 && command.Pause(ctx, gaps[n-1]+time.Duration(source.Int64N(int64(2*jitter)))-jitter) != nil {
					return
				}
				c := r.Routers[0].Client.Do(ctx, words(2, n%2 == 0))
				mu.Lock()
				all = append(all, c)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return all
}
