package worker

import (
	"context"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

const poison = "poisonous"

// poisonous is F12.
func poisonous() []trial.Trial {
	plan := engine.Plan{First: 10 * time.Millisecond, Between: time.Millisecond, Poison: poison}
	return []trial.Trial{{ID: "F12", Says: "a prompt that kills every worker with its engine, asked again and again", Times: 1, Takes: 11 * time.Second, Most: 3 * time.Minute,
		Spec: rig.Spec{Workers: 4, Plan: plan},
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			lost, failed, least := trial.Series{}, trial.Series{}, float64(len(r.Workers))
			quarantined, tries := 0, 0
			for range times {
				p := pest{r: r, plan: plan, prompt: client.NewID(), least: len(r.Workers)}
				all, err := beside(ctx, func(ctx context.Context, stop <-chan struct{}) []history.Client {
					return r.Routers[0].Client.Open(ctx, 30, stop, mixed(4))
				}, func() error { return p.once(ctx) })
				if err != nil {
					return nil, err
				}
				lost.Add(float64(p.lost))
				failed.Add(float64(failures(all)))
				least = min(least, float64(p.least))
				tries += len(p.answers)
				for _, a := range p.answers {
					if a.Code == "request_quarantined" {
						quarantined++
					}
				}
			}
			return []bench.Figure{
				bench.AtMost("F12 workers lost to one prompt, greatest", lost.Max(), "", 2),
				bench.AtLeast("F12 workers in the ring, least of 4", least, "", 2),
				bench.AtMost("F12 other requests that failed", failed.Sum(), "", 0),
				bench.Plain("F12 times that the prompt was asked", float64(tries), ""),
				bench.Plain("F12 of them refused as request_quarantined", float64(quarantined), ""),
			}, nil
		}}}
}

// pest is one prompt that kills.
type pest struct {
	r       *rig.Rig
	plan    engine.Plan
	prompt  string
	answers []history.Client

	mu          sync.Mutex // guards the rest
	lost, least int
}

// once asks a prompt for some seconds, while workers that have died are started anew after a second, as the kubelet does.
func (p *pest) once(ctx context.Context) error {
	live, end := context.WithCancel(ctx)
	defer end()
	var group sync.WaitGroup
	for _, w := range p.r.Workers {
		plan := p.plan
		plan.Victims = []int{w.PID()}
		if err := w.Engine.Set(ctx, plan); err != nil {
			return err
		}
	}
	for _, w := range p.r.Workers {
		group.Go(func() { p.nurse(live, ctx, w) })
	}
	group.Go(func() { p.count(live) })
	// What the client does that is told of a failure: it asks again.
	for until := time.Now().Add(8 * time.Second); time.Now().Before(until); {
		q := words(8, len(p.answers)%2 == 0)
		q.Prompt, q.Same = poison, p.prompt
		p.answers = append(p.answers, p.r.Routers[0].Client.Do(ctx, q))
		if err := command.Pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
	end()
	group.Wait()
	for _, w := range p.r.Workers {
		select {
		case <-w.Ended():
			if err := w.Restart(ctx); err != nil {
				return err
			}
		default:
		}
		if err := w.Loaded(ctx); err != nil {
			return err
		}
	}
	return p.r.InRing(ctx, p.r.Workers...)
}

// nurse starts a worker anew each time that it has died, until live ends. What it starts lasts as long as ctx.
func (p *pest) nurse(live, ctx context.Context, w *rig.Worker) {
	for {
		select {
		case <-w.Ended():
		case <-live.Done():
			return
		}
		p.mu.Lock()
		p.lost++
		p.mu.Unlock()
		if command.Pause(live, time.Second) != nil || w.Restart(ctx) != nil {
			return // the caller starts it
		}
		plan := p.plan
		plan.Victims = []int{w.PID()}
		if w.Engine.Set(ctx, plan) != nil || w.Loaded(live) != nil {
			return
		}
	}
}

// count looks how many workers are in the ring, until ctx ends.
func (p *pest) count(ctx context.Context) {
	for command.Pause(ctx, 50*time.Millisecond) == nil {
		s, err := p.r.Routers[0].Status(ctx)
		if err != nil {
			return
		}
		n := 0
		for _, m := range s.GetModels() {
			for _, w := range m.GetWorkers() {
				if w.GetInRing() {
					n++
				}
			}
		}
		p.mu.Lock()
		p.least = min(p.least, n)
		p.mu.Unlock()
	}
}
