package worker

import (
	"context"
	"fmt"
	"time"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// notLoaded is F09.
func notLoaded() []trial.Trial {
	return []trial.Trial{{ID: "F09", Says: "workers that answer well and have not loaded their model", Spec: rig.Spec{Workers: 2}, Times: 4, Takes: 5 * time.Second,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			l := newLiar(r, r.Model, "says-no", "")
			l.says(func(p *workerv1.Report) { p.ModelLoaded = false })
			r.Log.Stands(history.Standing{Pod: l.pod, At: time.Now()})
			stop, err := l.start()
			if err != nil {
				return nil, err
			}
			defer stop()
			// Its engine's /health is 200, and no completion works.
			w, err := r.NewWorker(ctx, rig.Place{Pod: "worker-loading", Model: r.Model, Plan: engine.Plan{Loading: true}})
			if err != nil {
				return nil, err
			}
			if err := r.Tell(ctx, with(r.State(r.Workers[0], r.Workers[1], w), r.Model, l.candidate())); err != nil {
				return nil, err
			}
			all, err := beside(ctx, func(ctx context.Context, stop <-chan struct{}) []history.Client {
				return r.Routers[0].Client.Open(ctx, 100, stop, mixed(2))
			}, func() error { return command.Pause(ctx, time.Duration(max(times, 4))*time.Second) })
			if err != nil {
				return nil, err
			}
			calls, _ := l.counts()
			s, err := w.Engine.State(ctx)
			if err != nil {
				return nil, err
			}
			return []bench.Figure{
				bench.AtMost("F09 requests to a worker that says model_loaded=false", float64(calls), "", 0),
				bench.AtMost("F09 requests to an engine that is healthy and still loads", float64(s.Started), "", 0),
				bench.Plain("F09 requests meanwhile", float64(len(all)), ""),
				bench.AtMost("F09 of them failed", float64(failures(all)), "", 0),
			}, nil
		}}}
}

// anotherInstance is F10.
func anotherInstance() []trial.Trial {
	return []trial.Trial{{ID: "F10", Says: "a worker that restarts at its address, at 50 requests a second", Spec: rig.Spec{Workers: 3, Plan: engine.Plan{First: time.Millisecond}}, Times: 4, Takes: 12 * time.Second,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			l := newLiar(r, r.Model, "restarts", "")
			stop, err := l.start()
			if err != nil {
				return nil, err
			}
			defer func() { stop() }()
			if err := r.Tell(ctx, with(r.State(r.Workers...), r.Model, l.candidate())); err != nil {
				return nil, err
			}
			if err := r.Routers[0].Await(ctx, l.pod, true); err != nil {
				return nil, err
			}
			if err := r.Warm(ctx, 4); err != nil {
				return nil, err
			}
			var up trial.Series
			hasty := 0
			all, err := beside(ctx, func(ctx context.Context, stop <-chan struct{}) []history.Client {
				return r.Routers[0].Client.Open(ctx, 50, stop, mixed(2))
			}, func() error {
				for i := range times {
					w := r.Workers[i%len(r.Workers)]
					w.Kill()
					if err := w.Restart(ctx); err != nil {
						return err
					}
					if err := w.Loaded(ctx); err != nil {
						return err
					}
					began := time.Now()
					if err := newly(ctx, r, w); err != nil {
						return err
					}
					up.Took(time.Since(began))
					n, err := reborn(ctx, r, l, i, &stop)
					if err != nil {
						return err
					}
					hasty += n
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			_, strange := l.counts()
			return []bench.Figure{
				bench.Plain("F10 calls for the old instance that the new one refused, and that went elsewhere", float64(strange), ""),
				bench.AtMost("F10 calls for a new instance before its second good heartbeat", float64(hasty), "", 0),
				bench.AtMost("F10 loaded to the ring, greatest", up.Max(), "s", 2.5),
				bench.Plain("F10 requests meanwhile", float64(len(all)), ""),
				bench.AtMost("F10 of them failed", float64(failures(all)), "", 0),
			}, nil
		}}}
}

// reborn ends a liar and starts it anew as another instance at the same address. It returns how many calls came before the
// worker was in the ring again.
func reborn(ctx context.Context, r *rig.Rig, l *liar, n int, stop *func()) (hasty int, err error) {
	(*stop)()
	*stop = func() {}
	id := fmt.Sprintf("%s-%d", l.pod, n+2)
	l.says(func(p *workerv1.Report) { p.InstanceId = id })
	before, _ := l.counts()
	again, err := l.start()
	if err != nil {
		return 0, err
	}
	*stop = again
	x := r.Routers[0]
	early := before
	err = rig.Until(ctx, 5*time.Millisecond, func(ctx context.Context) error {
		calls, _ := l.counts()
		s, err := x.Worker(ctx, l.pod)
		if err != nil {
			return err
		}
		if s.GetInRing() && s.GetReport().GetInstanceId() == id {
			return nil
		}
		early = calls
		return fmt.Errorf("%s is not in the ring", l.pod)
	})
	return early - before, err
}

// anotherModel is F11.
func anotherModel() []trial.Trial {
	return []trial.Trial{{ID: "F11", Says: "a worker's address that another model's worker has taken", Spec: rig.Spec{Workers: 2}, Times: 10_000, Takes: 15 * time.Second, Most: 4 * time.Minute,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			other := rig.NewModel("other")
			stays, err := r.NewWorker(ctx, rig.Place{Pod: "other-0", Model: other, Plan: engine.Plan{Tag: "other"}})
			if err != nil {
				return nil, err
			}
			if err := stays.Loaded(ctx); err != nil {
				return nil, err
			}
			all := []*rig.Worker{r.Workers[0], r.Workers[1], stays}
			if err := r.Members(ctx, all...); err != nil {
				return nil, err
			}
			if err := r.InRing(ctx, all...); err != nil {
				return nil, err
			}
			n := max(times, 1000)
			var answers []history.Client
			answers, err = beside(ctx, func(ctx context.Context, _ <-chan struct{}) []history.Client {
				return alternate(ctx, r, n, other.Name)
			}, func() error {
				// The cluster still names the address as the first model's.
				gone := r.Workers[1]
				gone.Kill()
				_, err := r.NewWorker(ctx, rig.Place{Pod: "other-1", Model: other, Plan: engine.Plan{Tag: "other"}, Address: gone.Address})
				return err
			})
			if err != nil {
				return nil, err
			}
			cross := 0
			for i := range answers {
				tag := "w0"
				if answers[i].Model == other.Name {
					tag = "other0"
				}
				if text := answers[i].Text(0); text != "" && text[:min(len(tag), len(text))] != tag {
					cross++
				}
			}
			in, err := r.Routers[0].InRing(ctx, r.Workers[1].Pod)
			if err != nil {
				return nil, err
			}
			stranger := 0.0
			if in {
				stranger = 1
			}
			return []bench.Figure{
				bench.Plain("F11 requests to both models", float64(len(answers)), ""),
				bench.AtMost("F11 answers of the other model", float64(cross), "", 0),
				bench.AtMost("F11 strangers in the ring", stranger, "", 0),
				bench.AtMost("F11 requests that failed", float64(failures(answers)), "", 0),
			}, nil
		}}}
}

// alternate asks both models in turns.
func alternate(ctx context.Context, r *rig.Rig, n int, other string) []history.Client {
	return r.Routers[0].Client.Many(ctx, n, 16, func(i int) client.Request {
		q := words(3, i%4 < 2)
		if i%2 == 1 {
			q.Model = other
		}
		return q
	})
}
