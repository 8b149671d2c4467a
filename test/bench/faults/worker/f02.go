package worker

import (
	"context"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// deathWithinStreams is F02.
func deathWithinStreams() (all []trial.Trial) {
	for _, m := range []mode{scripted, settled, llama} {
		all = append(all, trial.Trial{ID: "F02", Kind: m.kind, Says: "kill -9 of a worker that streams" + m.says, Times: m.deaths, Takes: m.takes[0], Most: 6 * time.Minute, Spec: m.spec,
			Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
				var s streamed
				for range times {
					probes, err := beside(ctx, m.probes(r), func() error { return s.kill(ctx, r, m) })
					if err != nil {
						return nil, err
					}
					s.others.Add(float64(m.failed(probes)))
				}
				return s.figures("F02", m), nil
			}})
	}
	return all
}

// streamed is what came of streams whose worker was lost.
type streamed struct {
	met            trial.Series // streams on the worker
	cut, others    trial.Series
	pause, toError trial.Series
	unsaid, done   trial.Series // of streams that were cut
	out, asked, up trial.Series
	again          trial.Series // requests that had to be asked of another worker
}

// kill kills the worker that most streams are on.
func (s *streamed) kill(ctx context.Context, r *rig.Rig, m mode) error {
	x := r.Routers[0]
	all, err := flows(ctx, x.Client, m.streams, 5, func(int) client.Request { return m.request(0) })
	if err != nil {
		return err
	}
	w := busiest(r.Workers, all)
	killed := time.Now()
	out, still := leaves(ctx, x, w.Pod), asks(ctx, x)
	w.Kill()
	took, err := out()
	if err != nil {
		return err
	}
	s.out.Took(took)
	if seen := still(); seen.looks > 1 {
		s.asked.Took(seen.last)
		s.again.Add(float64(seen.requests))
	}
	on, beside, err := ends(ctx, all, w.Pod)
	if err != nil {
		return err
	}
	s.judge(m, on, beside, killed)
	return back(ctx, r, w)
}

// judge takes what came of the streams on the worker, which was lost at a moment, and of the others.
func (s *streamed) judge(m mode, on, beside []history.Client, lost time.Time) {
	s.met.Add(float64(len(on)))
	s.cut.Add(float64(m.cut(on)))
	s.others.Add(float64(m.cut(beside)))
	s.pause.Took(longest(on))
	for i := range on {
		c := &on[i]
		if m.whole(c) {
			continue
		}
		said, done := 0.0, 0.0
		for _, e := range c.Events {
			if e.Error != "" {
				said++
				s.toError.Took(e.At.Sub(lost))
			}
			if e.Done || e.Finish != "" {
				done++
			}
		}
		unsaid := 0.0
		if said != 1 {
			unsaid = 1
		}
		s.unsaid.Add(unsaid)
		s.done.Add(done)
	}
}

func (s *streamed) figures(id string, m mode) []bench.Figure {
	f := []bench.Figure{bench.AtLeast(m.name(id, "streams on the lost worker, least"), s.met.Quantile(0), "", 1)}
	if m.resumes {
		f = append(f, bench.AtMost(m.name(id, "of them not whole"), s.cut.Sum(), "", 0),
			bench.Plain(m.name(id, "longest pause of one that goes on elsewhere, median"), s.pause.Quantile(0.5), "s"),
			bench.Plain(m.name(id, "longest pause of one that goes on elsewhere, greatest"), s.pause.Max(), "s"))
	} else {
		most := 1.0
		if id != "F02" {
			most = 3.5 + 1
		}
		f = append(f, bench.AtMost(m.name(id, "streams without exactly one error event"), s.unsaid.Sum(), "", 0),
			bench.AtMost(m.name(id, "[DONE] or finish reasons in streams that were cut"), s.done.Sum(), "", 0),
			bench.AtMost(m.name(id, "time to the error event, greatest"), s.toError.Max(), "s", most))
	}
	f = append(f, bench.AtMost(m.name(id, "other requests that failed"), s.others.Sum(), "", 0))
	if id == "F02" {
		// Without streams that go on elsewhere it may be that nobody had to, as the death was noticed before the next request.
		again := bench.Plain(m.name(id, "requests that had to go elsewhere"), s.again.Sum(), "")
		if m.resumes {
			again = bench.AtLeast(again.Name, again.Value, "", 1)
		}
		return append(f, again, bench.AtMost(m.name(id, "last request that is sent there and has to go elsewhere, after the death"), s.asked.Max(), "s", 1),
			bench.AtMost(m.name(id, "out of the ring, greatest"), s.out.Max(), "s", 3.5))
	}
	return append(f, bench.AtMost(m.name(id, "down, greatest"), s.out.Max(), "s", 3.5), bench.AtMost(m.name(id, "up again, greatest"), s.up.Max(), "s", 2.5))
}
