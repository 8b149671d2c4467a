package worker

import (
	"context"
	"errors"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// keys is how many keys are asked for.
const keys = 1000

// afar starts one more worker, on a host of its own, and waits until all routers have it in their rings.
func afar(ctx context.Context, r *rig.Rig) (*rig.Worker, error) {
	host, err := r.NewHost(ctx)
	if err != nil {
		return nil, err
	}
	w, err := r.NewWorker(ctx, rig.Place{Pod: "worker-afar", Model: r.Model, Plan: r.Spec.Plan, Host: host})
	if err != nil {
		return nil, err
	}
	if err := w.Loaded(ctx); err != nil {
		return nil, err
	}
	all := append(append([]*rig.Worker(nil), r.Workers...), w)
	if err := r.Members(ctx, all...); err != nil {
		return nil, err
	}
	if err := r.InRing(ctx, all...); err != nil {
		return nil, err
	}
	return w, r.Warm(ctx, len(all))
}

// partition is F04.
func partition() []trial.Trial {
	m := scripted
	m.words *= 2
	m.spec.Workers, m.spec.Settings, m.spec.Plan.First = 3, rig.ByKey, 0
	return []trial.Trial{{ID: "F04", Says: "every packet between routers and a worker dropped for 6 s, both ways", Times: 1, Takes: 13 * time.Second, Most: 3 * time.Minute, Spec: m.spec,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			w, err := afar(ctx, r)
			if err != nil {
				return nil, err
			}
			before, err := r.Routers[0].Owners(ctx, keys)
			if err != nil {
				return nil, err
			}
			var s streamed
			var failed trial.Series
			for range times {
				probes, err := beside(ctx, m.probes(r), func() error { return s.partition(ctx, r, m, w, keysOf(before, w.Pod)) })
				if err != nil {
					return nil, err
				}
				failed.Add(float64(m.failed(probes)))
			}
			after, err := r.Routers[0].Owners(ctx, keys)
			if err != nil {
				return nil, err
			}
			return append(s.figures("F04", m),
				bench.AtMost("F04 requests beside, and meanwhile, that failed", failed.Sum(), "", 0),
				bench.AtLeast("F04 keys back at their worker, of 1000", 100*(1-float64(moved(before, after))/keys), "%", 99.9)), nil
		}}}
}

// partition cuts w off for a time. A third of the streams have keys of w, and so have their place there.
func (s *streamed) partition(ctx context.Context, r *rig.Rig, m mode, w *rig.Worker, keys []string) error {
	x := r.Routers[0]
	all, err := flows(ctx, x.Client, m.streams, 5, func(i int) client.Request {
		q := m.request(0)
		if i%3 == 0 && len(keys) > 0 {
			q.Session = keys[i%len(keys)]
		}
		return q
	})
	if err != nil {
		return err
	}
	drop := func(on bool) func() error {
		return func() error { return errors.Join(w.Host.To(ctx, w.Host.Address, on), w.Host.From(ctx, on)) }
	}
	return s.away(ctx, x, m, w, all, still, drop(true), drop(false))
}

// halfPartition is F05.
func halfPartition() []trial.Trial {
	spec := scripted.spec
	spec.Routers, spec.Workers, spec.Settings, spec.Plan.First = 2, 3, rig.ByKey, 0
	return []trial.Trial{{ID: "F05", Says: "what one of two routers sends to a worker is dropped for 6 s, one way", Times: 1, Takes: 17 * time.Second, Most: 3 * time.Minute, Spec: spec,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			w, err := afar(ctx, r)
			if err != nil {
				return nil, err
			}
			h := half{r: r, w: w}
			if err := h.apart(ctx); err != nil {
				return nil, err
			}
			for range times {
				if err := h.once(ctx); err != nil {
					return nil, err
				}
			}
			n := float64(len(r.Workers) + 1)
			return []bench.Figure{
				bench.AtMost("F05 keys that move on the router that is cut off, greatest share", h.moved.Max()/keys, "", 1.2/n),
				bench.AtMost("F05 keys of other workers that move there", h.strays.Sum(), "", 0),
				bench.AtMost("F05 keys that move on the other router", h.other.Sum(), "", 0),
				bench.AtMost("F05 keys that are elsewhere after it", h.late.Sum(), "", 0),
				bench.Plain("F05 down for the router that is cut off, greatest; reports still reach it at first", h.down.Max(), "s"),
				bench.AtMost("F05 up again, greatest", h.up.Max(), "s", 2.5),
				bench.AtMost("F05 requests to the other router that failed", h.failed.Sum(), "", 0),
				bench.AtMost("F05 instances of the worker beside the first", h.instances, "", 0),
			}, nil
		}}}
}

// half is a worker that one of two routers reaches at an address of its own.
type half struct {
	r         *rig.Rig
	w         *rig.Worker
	before    [2]map[string]string
	instance  string
	instances float64

	moved, strays, other, late, down, up, failed trial.Series
}

// apart tells the second router the worker's other address.
func (h *half) apart(ctx context.Context) (err error) {
	there := *h.w
	there.Address = h.w.Host.Other + h.w.Address[len(h.w.Host.Address):]
	if err := h.r.Routers[1].Tell(ctx, h.r.State(append(append([]*rig.Worker(nil), h.r.Workers...), &there)...)); err != nil {
		return err
	}
	if err := h.r.Routers[1].Await(ctx, h.w.Pod, true); err != nil {
		return err
	}
	if h.instance, err = h.w.Instance(ctx); err != nil {
		return err
	}
	for i, x := range h.r.Routers {
		if h.before[i], err = x.Owners(ctx, keys); err != nil {
			return err
		}
	}
	return nil
}

// once cuts the second router off for a time.
func (h *half) once(ctx context.Context) error {
	whole, cut := h.r.Routers[0], h.r.Routers[1]
	began := time.Now()
	all, err := beside(ctx, func(ctx context.Context, stop <-chan struct{}) []history.Client {
		return whole.Client.Open(ctx, 20, stop, mixed(4))
	}, func() error {
		out := leaves(ctx, cut, h.w.Pod)
		if err := h.w.Host.To(ctx, h.w.Host.Other, true); err != nil {
			return err
		}
		took, err := out()
		if err != nil {
			return err
		}
		h.down.Took(took)
		now, err := cut.Owners(ctx, keys)
		if err != nil {
			return err
		}
		h.moved.Add(float64(moved(h.before[1], now)))
		h.strays.Add(float64(strays(h.before[1], now, h.w.Pod)))
		if now, err = whole.Owners(ctx, keys); err != nil {
			return err
		}
		h.other.Add(float64(moved(h.before[0], now)))
		if err := command.Pause(ctx, time.Until(began.Add(still))); err != nil {
			return err
		}
		up := awaits(ctx, cut, h.w.Pod, true)
		if err := h.w.Host.To(ctx, h.w.Host.Other, false); err != nil {
			return err
		}
		took, err = up()
		h.up.Took(took)
		return err
	})
	if err != nil {
		return err
	}
	h.failed.Add(float64(failures(all)))
	for i, x := range h.r.Routers {
		now, err := x.Owners(ctx, keys)
		if err != nil {
			return err
		}
		h.late.Add(float64(moved(h.before[i], now)))
	}
	id, err := h.w.Instance(ctx)
	if id != h.instance {
		h.instances++
	}
	return err
}
