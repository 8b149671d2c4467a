package worker

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// staleConnections is F13.
func staleConnections() []trial.Trial {
	return []trial.Trial{{ID: "F13", Says: "engines that close connections after 5 s without a request, and clients that ask each 3.5 to 7 s", Times: 30,
		Spec: rig.Spec{Workers: 2, KeepAlive: 5 * time.Second},
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			lasts, clients := time.Duration(max(times, 12))*time.Second, 250
			var opened int
			all, err := beside(ctx, func(ctx context.Context, stop <-chan struct{}) []history.Client {
				return paced(ctx, r, clients, stop)
			}, func() error { return pause(ctx, lasts) })
			if err != nil {
				return nil, err
			}
			for _, w := range r.Workers {
				s, err := w.Engine.State(ctx)
				if err != nil {
					return nil, err
				}
				opened += s.Opened
			}
			return []bench.Figure{
				bench.AtMost("F13 paced requests that failed", float64(failures(all)), "", 0),
				bench.Plain("F13 paced requests", float64(len(all)), ""),
				bench.Plain("F13 connections that the engines saw", float64(opened), ""),
			}, nil
		}}}
}

// paced is clients that ask, and then wait for a while by chance.
func paced(ctx context.Context, r *rig.Rig, clients int, stop <-chan struct{}) []history.Client {
	var mu sync.Mutex
	var all []history.Client
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			source := rand.New(rand.NewPCG(uint64(i), 13))
			gap := time.Duration(source.Int64N(int64(3500 * time.Millisecond)))
			for n := 0; ; n++ {
				timer := time.NewTimer(gap)
				select {
				case <-timer.C:
				case <-stop:
					timer.Stop()
					return
				case <-ctx.Done():
					timer.Stop()
					return
				}
				c := r.Routers[0].Client.Do(ctx, words(2, n%2 == 0))
				mu.Lock()
				all = append(all, c)
				mu.Unlock()
				gap = 3500*time.Millisecond + time.Duration(source.Int64N(int64(3500*time.Millisecond)))
			}
		})
	}
	group.Wait()
	return all
}
