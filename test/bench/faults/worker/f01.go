package worker

import (
	"context"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// firstWord is how long engines take to the first word where that has to be met.
const firstWord = 300 * time.Millisecond

// deathBeforeTheFirstByte is F01.
func deathBeforeTheFirstByte() []trial.Trial {
	return []trial.Trial{{
		ID: "F01", Says: "kill -9 of a worker that has a request and has sent nothing of its answer", Times: 20,
		Spec: rig.Spec{Workers: 4, Plan: engine.Plan{First: firstWord, Between: time.Millisecond}},
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			var failed, others, added trial.Series
			for i := range times {
				q := words(8, i%2 == 0)
				q.ID = "victim-" + time.Now().Format("150405.000000")
				var victim history.Client
				var group sync.WaitGroup
				all, err := beside(ctx, func(ctx context.Context, stop <-chan struct{}) []history.Client {
					return r.Routers[0].Client.Open(ctx, 20, stop, mixed(8))
				}, func() error {
					group.Go(func() { victim = r.Routers[0].Client.Do(ctx, q) })
					w, err := busy(ctx, r.Workers, q.ID)
					if err != nil {
						return err
					}
					killed := time.Now()
					w.Kill()
					group.Wait()
					added.Took(victim.End.Sub(killed) - firstWord - 7*time.Millisecond)
					return back(ctx, r, w)
				})
				group.Wait()
				if err != nil {
					return nil, err
				}
				failed.Add(float64(failures([]history.Client{victim})))
				others.Add(float64(failures(all)))
			}
			return []bench.Figure{
				bench.AtMost("F01 requests on the worker that failed", failed.Sum(), "", 0),
				bench.AtMost("F01 requests beside them that failed", others.Sum(), "", 0),
				bench.AtMost("F01 added latency, greatest", added.Max(), "s", 1),
			}, nil
		},
	}}
}
