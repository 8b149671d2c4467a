package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// firstWord is how long engines take to the first word where that has to be met.
const firstWord = 300 * time.Millisecond

// deathBeforeTheFirstByte is F01.
func deathBeforeTheFirstByte() []trial.Trial {
	plan := engine.Plan{First: firstWord, Between: time.Millisecond}
	return []trial.Trial{{
		ID: "F01", Says: "kill -9 of a worker that has a request and has sent nothing of its answer", Times: 10, Takes: 21 * time.Second, Spec: rig.Spec{Workers: 4, Plan: plan},
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			d := early{r: r, takes: firstWord + 7*time.Millisecond}
			all, err := beside(ctx, func(ctx context.Context, stop <-chan struct{}) []history.Client {
				return r.Routers[0].Client.Open(ctx, 20, stop, mixed(8))
			}, func() error {
				for i := range times {
					q := words(8, i%2 == 0)
					q.ID = client.NewID()
					if err := d.kill(ctx, q, func(ctx context.Context) (*rig.Worker, error) { return busy(ctx, r.Workers, q.ID) }); err != nil {
						return err
					}
				}
				return d.whole(ctx)
			})
			if err != nil {
				return nil, err
			}
			return []bench.Figure{
				bench.AtMost("F01 requests on the worker that failed", d.failed, "", 0),
				bench.AtMost("F01 requests beside them that failed", float64(failures(all)), "", 0),
				bench.AtMost("F01 added latency, greatest", d.added.Max(), "s", 1),
			}, nil
		},
	}, {
		ID: "F01", Kind: llama.kind, Says: "kill -9 of a worker that computes a prompt" + llama.says, Times: llama.deaths, Takes: 30 * time.Second, Most: 4 * time.Minute, Spec: llama.spec,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			m := llama
			m.words = 8
			usual := r.Routers[0].Client.Do(ctx, m.request(longPrompt))
			if !good(&usual) {
				return nil, errors.New("a long prompt has no answer while all is well")
			}
			d := early{r: r}
			for range times {
				if err := d.kill(ctx, m.request(longPrompt), d.atWork); err != nil {
					return nil, err
				}
				if err := d.whole(ctx); err != nil {
					return nil, err
				}
			}
			return []bench.Figure{
				bench.AtMost("F01 requests on the worker that failed, llama.cpp", d.failed, "", 0),
				bench.Plain("F01 an answer while all is well, llama.cpp", usual.End.Sub(usual.Start).Seconds(), "s"),
				bench.Plain("F01 from the death to the whole answer, greatest, llama.cpp", d.added.Max(), "s"),
			}, nil
		},
	}}
}

// longPrompt is one that takes a while to compute, in words.
const longPrompt = 600

// early is workers that die before they have said anything.
type early struct {
	r      *rig.Rig
	takes  time.Duration // an answer, while all is well
	failed float64
	added  trial.Series // from the death to the answer, less what that takes
	last   *rig.Worker  // that was killed, and is not in the ring yet
}

// kill asks, kills the worker that has the request, and starts it anew. The one that was killed before must be in the ring
// again by the end.
func (d *early) kill(ctx context.Context, q client.Request, who func(context.Context) (*rig.Worker, error)) error {
	var victim history.Client
	var group sync.WaitGroup
	group.Go(func() { victim = d.r.Routers[0].Client.Do(ctx, q) })
	defer group.Wait()
	w, err := who(ctx)
	if err != nil {
		return err
	}
	killed := time.Now()
	w.Kill()
	group.Wait()
	d.added.Took(victim.End.Sub(killed) - d.takes)
	d.failed += float64(failures([]history.Client{victim}))
	if err := d.whole(ctx); err != nil {
		return err
	}
	d.last = w
	if err := w.Restart(ctx); err != nil {
		return err
	}
	return w.Loaded(ctx)
}

// whole waits until the worker that was killed last is in the ring.
func (d *early) whole(ctx context.Context) error {
	if d.last == nil {
		return nil
	}
	return newly(ctx, d.r, d.last)
}

// atWork waits until the router has a request on a worker that has sent nothing yet.
func (d *early) atWork(ctx context.Context) (found *rig.Worker, err error) {
	err = rig.Until(ctx, 5*time.Millisecond, func(ctx context.Context) error {
		for _, w := range d.r.Workers {
			if s, err := d.r.Routers[0].Worker(ctx, w.Pod); err != nil {
				return err
			} else if s.GetInFlight() > 0 {
				found = w
				return nil
			}
		}
		return errNowhere
	})
	return found, err
}
