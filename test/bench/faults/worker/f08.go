package worker

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// badEngines is F08: engines whose health is well and that answer nothing.
func badEngines() []trial.Trial {
	const firstByte = time.Second
	return []trial.Trial{
		bad("500", "an engine that is healthy and answers 500", 1, engine.Plan{Status: http.StatusInternalServerError}, nil),
		bad("hangs", "an engine that is healthy and never answers", 1, engine.Plan{First: time.Hour},
			func(s *discovery.Settings) { s.FirstByte = firstByte }),
		bad("three of four", "three of four engines that are healthy and answer 500", 3, engine.Plan{Status: http.StatusInternalServerError}, nil),
	}
}

// bad is a trial with so many engines that follow a plan.
func bad(kind, says string, broken int, plan engine.Plan, settings func(*discovery.Settings)) trial.Trial {
	well := engine.Plan{First: 2 * time.Millisecond}
	return trial.Trial{ID: "F08", Kind: kind, Says: says, Times: 3, Takes: 8 * time.Second, Spec: rig.Spec{Workers: 4, Plan: well, Settings: settings},
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			lasts := time.Duration(max(times, 3)) * time.Second
			started := make([]int, broken)
			for i, w := range r.Workers[:broken] {
				s, err := w.Engine.State(ctx)
				if err != nil {
					return nil, err
				}
				started[i] = s.Started
				if err := w.Engine.Set(ctx, plan); err != nil {
					return nil, err
				}
			}
			met := make([]int, broken)
			late, ejected, inRing := 0, 0, 0
			all, err := beside(ctx, func(ctx context.Context, stop <-chan struct{}) []history.Client {
				return r.Routers[0].Client.Open(ctx, 50, stop, mixed(2))
			}, func() error {
				if err := command.Pause(ctx, lasts); err != nil {
					return err
				}
				for i, w := range r.Workers[:broken] {
					s, err := w.Engine.State(ctx)
					if err != nil {
						return err
					}
					met[i] = s.Started - started[i]
				}
				if err := command.Pause(ctx, lasts); err != nil {
					return err
				}
				for i, w := range r.Workers[:broken] {
					s, err := w.Engine.State(ctx)
					if err != nil {
						return err
					}
					late += s.Started - started[i] - met[i]
				}
				for _, w := range r.Workers {
					s, err := r.Routers[0].Worker(ctx, w.Pod)
					if err != nil {
						return err
					}
					if s.GetEjected() {
						ejected++
					}
					if s.GetInRing() {
						inRing++
					}
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			name := func(what string) string { return fmt.Sprintf("F08 %s: %s", kind, what) }
			figures := []bench.Figure{bench.Plain(name("requests of its clients that failed"), float64(failures(all)), "")}
			if broken > 1 {
				return append(figures, bench.AtMost(name("workers that are ejected"), float64(ejected), "", 2),
					bench.AtLeast(name("workers that are ejected, at least"), float64(ejected), "", 2),
					bench.AtLeast(name("workers in the ring"), float64(inRing), "", 4)), nil
			}
			most := 0
			for _, n := range met {
				most = max(most, n)
			}
			goal := 5.0
			if plan.Status == 0 {
				// All that are under way until the third has waited for its first byte are there already.
				return append(figures, bench.Plain(name("requests that met it before it was ejected"), float64(most), ""),
					bench.AtMost(name("requests that met it afterwards"), float64(late), "", 0), bench.AtLeast(name("workers that are ejected"), float64(ejected), "", 1)), nil
			}
			return append(figures, bench.AtMost(name("requests that met it before it was ejected"), float64(most), "", goal),
				bench.AtMost(name("requests that met it afterwards"), float64(late), "", 0), bench.AtLeast(name("workers that are ejected"), float64(ejected), "", 1)), nil
		}}
}
