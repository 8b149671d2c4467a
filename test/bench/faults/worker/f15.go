package worker

import (
	"context"
	"fmt"
	"strings"
	"time"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

const firstEvent = `data: {"choices":[{"index":0,"delta":{"content":"w0"},"finish_reason":null,"token_ids":[0]}]}` + "\n\n"

// garbage is F15.
func garbage() []trial.Trial {
	raw := func(s ...string) engine.Plan {
		p := engine.Plan{Gap: 5 * time.Millisecond}
		for _, x := range s {
			p.Raw = append(p.Raw, []byte(x))
		}
		return p
	}
	spec := rig.Spec{Workers: 2, Settings: func(s *discovery.Settings) { s.Idle = 2 * time.Second }}
	all := []trial.Trial{
		nonsense("no JSON", "an engine that sends a word and then what is no JSON", raw(firstEvent, "data: {\"choices\":[{\n\n")),
		nonsense("an end too early", "an engine that sends a word and ends without an end", raw(firstEvent)),
		nonsense("1 MiB without an end of line", "an engine that sends a word and then a line of 1 MiB that does not end", engine.Plan{RawSize: 1 << 20}),
		nonsense("64 MiB in a line", "an engine that sends a word and then a line of 64 MiB", engine.Plan{RawSize: 64 << 20}),
	}
	for i := range all {
		all[i].Spec = spec
	}
	return append(all, nonsenseByContract(spec))
}

// growth is how much more memory processes have had since the last call than they had then.
type growth struct {
	of     []*rig.Process
	before []int64
}

func grows(of ...*rig.Process) (*growth, error) {
	g := &growth{of: of}
	for _, p := range of {
		if err := p.ResetPeak(); err != nil {
			return nil, err
		}
		n, err := p.Peak()
		if err != nil {
			return nil, err
		}
		g.before = append(g.before, n)
	}
	return g, nil
}

// most is the greatest growth, in MiB.
func (g *growth) most() (float64, error) {
	most := 0.0
	for i, p := range g.of {
		n, err := p.Peak()
		if err != nil {
			return 0, err
		}
		most = max(most, float64(n-g.before[i])/(1<<20))
	}
	return most, nil
}

// nonsense is a trial of engines that all answer as p says.
func nonsense(kind, says string, p engine.Plan) trial.Trial {
	return trial.Trial{ID: "F15", Kind: kind, Says: says, Times: 3, Takes: 4 * time.Second,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			for _, w := range r.Workers {
				if err := w.Engine.Set(ctx, p); err != nil {
					return nil, err
				}
			}
			router, err := grows(&r.Routers[0].Process)
			if err != nil {
				return nil, err
			}
			workers, err := grows(&r.Workers[0].Process, &r.Workers[1].Process)
			if err != nil {
				return nil, err
			}
			var answers []history.Client
			for range times {
				answers = append(answers, r.Routers[0].Client.Do(ctx, client.Request{Model: rig.ModelName, Words: 16, Free: true, Stream: true,
					Prompt: "Number " + client.NewID()}))
			}
			return ended(kind, answers, router, workers)
		}}
}

// ended are the figures of answers that must end by an error event.
func ended(kind string, answers []history.Client, router, workers *growth) ([]bench.Figure, error) {
	unsaid, whole, codes := 0, 0, map[string]int{}
	for i := range answers {
		a := &answers[i]
		if a.Done() || a.Finish(0) != "" {
			whole++
		}
		if a.Code == "" {
			unsaid++
		}
		codes[a.Code]++
	}
	name := func(what string) string { return fmt.Sprintf("F15 %s: %s", kind, what) }
	grown, err := router.most()
	if err != nil {
		return nil, err
	}
	figures := []bench.Figure{
		bench.AtMost(name("streams without an error"), float64(unsaid), "", 0),
		bench.AtMost(name("[DONE] or finish reasons"), float64(whole), "", 0),
		bench.AtMost(name("the router's memory grows by"), grown, "MiB", 2),
	}
	if workers == nil {
		return figures, nil
	}
	grown, err = workers.most()
	return append(figures, bench.AtMost(name("a worker's memory grows by"), grown, "MiB", 2)), err
}

// nonsenseByContract is F15 by workers that speak the contract, and break it.
func nonsenseByContract(spec rig.Spec) trial.Trial {
	answers := map[string]func(stream) error{
		"a choice that nobody asked for": func(s stream) error {
			return s.Send(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{Choice: 7, Text: "w1", Tokens: []uint32{1}}}})
		},
		"an end too early":   func(stream) error { return nil },
		"16 MiB in an event": func(s stream) error { return delta(s, strings.Repeat("x", 16<<20), 1) },
		"64 MiB in an event": func(s stream) error { return delta(s, strings.Repeat("x", 64<<20), 1) },
	}
	spec.Workers = 0
	return trial.Trial{ID: "F15", Kind: "by the contract", Says: "workers that break the contract in the middle of an answer", Times: 3, Takes: 7 * time.Second, Spec: spec,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			var all []bench.Figure
			for _, kind := range []string{"a choice that nobody asked for", "an end too early", "16 MiB in an event", "64 MiB in an event"} {
				f, err := breaks(ctx, r, kind, answers[kind], times)
				if err != nil {
					return nil, err
				}
				all = append(all, f...)
			}
			return all, nil
		}}
}

// breaks asks two workers that break the contract in one way.
func breaks(ctx context.Context, r *rig.Rig, kind string, how func(stream) error, times int) ([]bench.Figure, error) {
	state := r.State()
	var liars []*liar
	for i := range 2 {
		l := newLiar(r, r.Model, fmt.Sprintf("breaks-%d", i), "")
		l.answer = func(_ *workerv1.GenerateRequest, s stream) error {
			if err := accept(s, l.pod+"-1"); err != nil {
				return err
			}
			if err := delta(s, "w0", 0); err != nil {
				return err
			}
			return how(s)
		}
		stop, err := l.start()
		if err != nil {
			return nil, err
		}
		defer stop()
		liars = append(liars, l)
		state = with(state, r.Model, l.candidate())
	}
	if err := r.Tell(ctx, state); err != nil {
		return nil, err
	}
	for _, l := range liars {
		if err := r.Routers[0].Await(ctx, l.pod, true); err != nil {
			return nil, err
		}
	}
	router, err := grows(&r.Routers[0].Process)
	if err != nil {
		return nil, err
	}
	var answers []history.Client
	for range times {
		answers = append(answers, r.Routers[0].Client.Do(ctx, client.Request{Model: rig.ModelName, Words: 16, Free: true, Stream: true, Prompt: "Number " + client.NewID()}))
	}
	f, err := ended(kind+", by the contract", answers, router, nil)
	if err != nil {
		return nil, err
	}
	return f, r.Tell(ctx, r.State())
}
