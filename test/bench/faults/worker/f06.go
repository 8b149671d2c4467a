package worker

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// slowWorker is F06.
func slowWorker() []trial.Trial {
	plan := engine.Plan{First: 20 * time.Millisecond, Between: 10 * time.Millisecond}
	return []trial.Trial{{ID: "F06", Says: "one of four workers becomes ten times slower, at 50 requests a second", Times: 5, Takes: 15 * time.Second,
		Spec: rig.Spec{Workers: 4, Plan: plan},
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			// Each time is a second, with a least that a p99 needs.
			lasts := time.Duration(max(times, 4)) * time.Second
			slow := r.Workers[0]
			before, _, err := under(ctx, r, slow.Pod, lasts)
			if err != nil {
				return nil, err
			}
			plan := plan
			plan.Slow = 10
			if err := slow.Engine.Set(ctx, plan); err != nil {
				return nil, err
			}
			// What it was thought to be wears off.
			if _, _, err := under(ctx, r, slow.Pod, 2*time.Second); err != nil {
				return nil, err
			}
			during, over, err := under(ctx, r, slow.Pod, lasts)
			if err != nil {
				return nil, err
			}
			was, is, there := trial.Series{}, trial.Series{}, 0.0
			for i := range before {
				if before[i].Worker != slow.Pod {
					was.Took(before[i].First())
				}
			}
			for i := range during {
				if during[i].Worker == slow.Pod {
					there++
				} else {
					is.Took(during[i].First())
				}
			}
			return []bench.Figure{
				bench.AtMost("F06 requests in flight there above ⌈1.25 × mean⌉ of when they were placed and above 2, greatest", over.Max(), "", 0),
				bench.AtMost("F06 p99 to the first word at the others, to that before", is.Quantile(0.99)/was.Quantile(0.99), "×", 1.2),
				bench.Plain("F06 share of requests that the slow worker still gets", there/float64(len(during)), ""),
				bench.AtMost("F06 requests that failed", float64(failures(before)+failures(during)), "", 0),
			}, nil
		}}}
}

// leastBound is how many requests a worker may have in any case.
const leastBound = 2

// look is the time between two looks at a router, and slowest how many of them a request on the slow worker lasts.
const (
	look    = 50 * time.Millisecond
	slowest = int(20*10*10*time.Millisecond/look) + 4
)

// under asks for a time, and looks how many requests are on a worker beyond its share.
func under(ctx context.Context, r *rig.Rig, pod string, lasts time.Duration) ([]history.Client, trial.Series, error) {
	x := r.Routers[0]
	var over trial.Series
	var totals []float64 // while the oldest of those in flight was placed
	all, err := beside(ctx, func(ctx context.Context, stop <-chan struct{}) []history.Client {
		return x.Client.Open(ctx, 50, stop, mixed(20))
	}, func() error {
		for until := time.Now().Add(lasts); time.Now().Before(until); {
			s, err := x.Status(ctx)
			if err != nil {
				return err
			}
			n, total, there := 0, 0.0, 0.0
			for _, m := range s.GetModels() {
				for _, w := range m.GetWorkers() {
					n++
					total += float64(w.GetInFlight())
					if w.GetPodName() == pod {
						there = float64(w.GetInFlight())
					}
				}
			}
			if totals = append(totals, total); len(totals) > slowest {
				totals = totals[1:]
			}
			over.Add(max(there-max(leastBound, math.Ceil(1.25*(slices.Max(totals)+1)/float64(max(n, 1)))), 0))
			if err := command.Pause(ctx, look); err != nil {
				return err
			}
		}
		return nil
	})
	return all, over, err
}
