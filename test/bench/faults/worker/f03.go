package worker

import (
	"context"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// still is how long a worker is stopped or cut off.
const still = 6 * time.Second

// frozenWorker is F03.
func frozenWorker() (all []trial.Trial) {
	for _, m := range []mode{scripted, settled, llama} {
		m.words *= 2 // they must outlast the time until the worker is down
		all = append(all, trial.Trial{ID: "F03", Kind: m.kind, Says: "SIGSTOP of a worker for 6 s" + m.says, Times: m.freezes, Takes: m.takes[1], Most: 6 * time.Minute, Spec: m.spec,
			Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
				var s streamed
				var failed, slowest trial.Series
				for range times {
					probes, err := beside(ctx, m.probes(r), func() error { return s.freeze(ctx, r, m, still) })
					if err != nil {
						return nil, err
					}
					failed.Add(float64(m.failed(probes)))
					for i := range probes {
						slowest.Took(probes[i].End.Sub(probes[i].Start))
					}
				}
				return append(s.figures("F03", m),
					bench.AtMost(m.name("F03", "requests beside, and meanwhile, that failed"), failed.Sum(), "", 0),
					bench.Plain(m.name("F03", "slowest of them"), slowest.Max(), "s")), nil
			}})
	}
	return all
}

// probes is a load of short requests, some of which meet the worker that is lost.
func (m mode) probes(r *rig.Rig) func(context.Context, <-chan struct{}) []history.Client {
	rate, n := 20.0, 4
	if m.free {
		rate = 1
	}
	return func(ctx context.Context, stop <-chan struct{}) []history.Client {
		return r.Routers[0].Client.Open(ctx, rate, stop, func(i int) client.Request {
			q := m.request(0)
			q.Words, q.Stream = n, i%2 == 0
			return q
		})
	}
}

// failed counts requests that failed. Where answers don't go on elsewhere, one that was cut after its first words is none.
func (m mode) failed(all []history.Client) (n int) {
	for i := range all {
		if c := &all[i]; !good(c) && (m.resumes || c.First() == 0) {
			n++
		}
	}
	return n
}

// freeze stops the worker that most streams are on, for a time, and lets it go on.
func (s *streamed) freeze(ctx context.Context, r *rig.Rig, m mode, lasts time.Duration) error {
	x := r.Routers[0]
	all, err := flows(ctx, x.Client, m.streams, 5, func(int) client.Request { return m.request(0) })
	if err != nil {
		return err
	}
	w := busiest(r.Workers, all)
	return s.away(ctx, x, m, w, all, lasts, w.Stop, w.Cont)
}

// away makes w silent for a time, while all run, and judges them when they have ended.
func (s *streamed) away(ctx context.Context, x *rig.Router, m mode, w *rig.Worker, all []*flow, lasts time.Duration, silence, mend func() error) error {
	began := time.Now()
	out := leaves(ctx, x, w.Pod)
	if err := silence(); err != nil {
		return err
	}
	took, err := out()
	if err != nil {
		return err
	}
	s.out.Took(took)
	if err := command.Pause(ctx, time.Until(began.Add(lasts))); err != nil {
		return err
	}
	up := awaits(ctx, x, w.Pod, true)
	if err := mend(); err != nil {
		return err
	}
	if took, err = up(); err != nil {
		return err
	}
	s.up.Took(took)
	on, beside, err := ends(ctx, all, w.Pod)
	if err != nil {
		return err
	}
	s.judge(m, on, beside, began)
	return nil
}
