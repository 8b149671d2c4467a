package worker

import (
	"context"
	"path/filepath"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// drained is F23. What reaches the worker a heartbeat after it was asked to end breaks a rule.
func drained() []trial.Trial {
	m := scripted
	m.words *= 2 // they must outlast the time that requests may still come
	return []trial.Trial{{ID: "F23", Says: "SIGTERM of a worker that streams, as the kubelet sends it", Times: 2, Takes: 17 * time.Second, Spec: m.spec,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			var d draining
			for range times {
				probes, err := beside(ctx, m.probes(r), func() error { return d.once(ctx, r, m) })
				if err != nil {
					return nil, err
				}
				d.failed.Add(float64(failures(probes)))
			}
			return []bench.Figure{
				bench.AtLeast("F23 streams on the worker that drains, least", d.met.Quantile(0), "", 1),
				bench.AtMost("F23 of them not whole", d.cut.Sum(), "", 0),
				bench.AtMost("F23 of them sent elsewhere", d.moved.Sum(), "", 0),
				bench.AtMost("F23 other requests that failed", d.failed.Sum()+d.others.Sum(), "", 0),
				bench.Plain("F23 from the last of its streams to the worker's end, greatest", d.end.Max(), "s"),
			}, nil
		}}}
}

// draining is what F23 sees.
type draining struct{ met, cut, moved, others, failed, end trial.Series }

// once asks the worker that most streams are on to end, and starts it anew when it has.
func (d *draining) once(ctx context.Context, r *rig.Rig, m mode) error {
	all, err := flows(ctx, r.Routers[0].Client, m.streams, 5, func(int) client.Request { return m.request(0) })
	if err != nil {
		return err
	}
	w := busiest(r.Workers, all)
	if err := w.Drain(); err != nil {
		return err
	}
	on, others, err := ends(ctx, all, w.Pod)
	if err != nil {
		return err
	}
	select {
	case <-w.Ended():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	last := time.Time{}
	ids := map[string]bool{}
	for i := range on {
		ids[on[i].ID] = true
		if on[i].End.After(last) {
			last = on[i].End
		}
	}
	d.met.Add(float64(len(on)))
	d.cut.Add(float64(m.cut(on)))
	d.others.Add(float64(m.cut(others)))
	d.end.Took(time.Since(last))
	attempts, err := engine.Attempts(filepath.Join(r.Dir(), "attempts.jsonl"))
	if err != nil {
		return err
	}
	d.moved.Add(float64(beyond(attempts, ids, w.Pod)))
	return back(ctx, r, w)
}

// beyond counts the attempts of some requests that were not at one worker.
func beyond(attempts []history.Attempt, ids map[string]bool, pod string) (n int) {
	for _, a := range attempts {
		if ids[a.ID] && a.Pod != pod {
			n++
		}
	}
	return n
}
