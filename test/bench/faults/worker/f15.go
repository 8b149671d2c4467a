package worker

import (
	"context"
	"fmt"
	"slices"
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

// nonsense is a trial of engines that all answer as p says.
func nonsense(kind, says string, p engine.Plan) trial.Trial {
	return trial.Trial{ID: "F15", Kind: kind, Says: says, Times: 3, Takes: 4 * time.Second,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			for _, w := range r.Workers {
				if err := w.Engine.Set(ctx, p); err != nil {
					return nil, err
				}
			}
			answers, grown, err := weighed(ctx, r, times, &r.Workers[0].Process, &r.Workers[1].Process)
			if err != nil {
				return nil, err
			}
			return ended(kind, answers, grown), nil
		}}
}

// weighed asks one request after the other, and returns the answers and how much memory the router and the workers took for it.
func weighed(ctx context.Context, r *rig.Rig, times int, workers ...*rig.Process) (answers []history.Client, grown []float64, err error) {
	x := r.Routers[0]
	grown, err = rig.Growth(func() error {
		for range times {
			answers = append(answers, x.Client.Do(ctx, client.Request{Model: rig.ModelName, Words: 16, Free: true, Stream: true,
				Prompt: "Number " + client.NewID()}))
		}
		return nil
	}, append([]*rig.Process{&x.Process}, workers...)...)
	return answers, grown, err
}

// ended are the figures of answers that must end by an error event. grown is the memory of the router, and of workers if any.
func ended(kind string, answers []history.Client, grown []float64) []bench.Figure {
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
	figures := []bench.Figure{
		bench.AtMost(name("streams without an error"), float64(unsaid), "", 0),
		bench.AtMost(name("[DONE] or finish reasons"), float64(whole), "", 0),
		bench.AtMost(name("the router's memory grows by"), grown[0]/(1<<20), "MiB", 2),
	}
	if workers := grown[1:]; len(workers) > 0 {
		figures = append(figures, bench.AtMost(name("a worker's memory grows by"), slices.Max(workers)/(1<<20), "MiB", 2))
	}
	return figures
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
	answers, grown, err := weighed(ctx, r, times)
	if err != nil {
		return nil, err
	}
	return ended(kind+", by the contract", answers, grown), r.Tell(ctx, r.State())
}
