package life

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	routerv1 "github.com/ringfleet/ringfleet/api/router/v1"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

const (
	// burst is how many requests come for a model that has no worker, one each apart; listeners are streams besides whose
	// comments are read.
	burst     = 500
	apart     = 2 * time.Millisecond
	listeners = 20
	// asleep is how long the worker takes from the wake until it is started.
	asleep = 4 * time.Second
	// fewSeats is how many requests run at the worker at once.
	fewSeats = 16
)

// fromZero is F25.
func fromZero() []trial.Trial {
	return []trial.Trial{{
		ID: "F25", Says: fmt.Sprintf("%d requests for a model without a worker, which is started when the router rings", burst), Times: 2, Takes: 13 * time.Second, Most: 4 * time.Minute,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			var z waking
			for i := range times {
				if err := z.one(ctx, r, fmt.Sprintf("worker-%d", i)); err != nil {
					return nil, err
				}
			}
			return []bench.Figure{
				bench.AtLeast(fmt.Sprintf("F25 %d times %d requests, answered", times, burst), z.answered.Quantile(0), "%", 100),
				bench.AtMost("F25 wakes by burst", z.wakes.Max(), "", 1),
				bench.AtLeast("F25 requests held at once", z.held.Quantile(0), "", burst),
				bench.AtMost("F25 p99 from the worker in the ring until a request is at its engine", z.overhead.Quantile(0.99), "s", 1),
				bench.AtMost(fmt.Sprintf("F25 most later requests that went before one, at %d seats", fewSeats), z.overtaken.Max(), "", fewSeats),
				bench.AtLeast("F25 streams that were told by comments what they wait for", z.told.Quantile(0), "%", 100),
			}, nil
		},
	}}
}

// waking is what F25 sees, burst by burst; overhead is by request.
type waking struct {
	answered, wakes, held, overhead, overtaken, told trial.Series
}

// one lets a burst come, starts the worker and looks at what became of all. Afterwards the model has no worker again.
func (z *waking) one(ctx context.Context, r *rig.Rig, pod string) error {
	before, err := model(ctx, r)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	all := make([]history.Client, burst)
	comments := make([]string, listeners)
	began := time.Now()
	for i := range burst {
		group.Go(func() {
			if command.Pause(ctx, time.Until(began.Add(time.Duration(i)*apart))) == nil {
				all[i] = r.Routers[0].Client.Do(ctx, client.Request{Model: rig.ModelName, Words: 1, Stream: i%2 == 0})
			}
		})
	}
	for i := range comments {
		group.Go(func() {
			q := chat(1, true)
			q.Comment = func(s string) { comments[i] += s }
			_ = r.Routers[0].Client.Do(ctx, q) // the checker sees what came of it
		})
	}
	defer group.Wait()
	var held *routerv1.ModelStatus
	err = rig.Until(ctx, 10*time.Millisecond, func(ctx context.Context) error {
		held, err = model(ctx, r)
		if err == nil && held.GetHeld() < burst+listeners {
			err = fmt.Errorf("%d requests are held", held.GetHeld())
		}
		return err
	})
	if err != nil {
		return err
	}
	z.wakes.Add(float64(held.GetWakes() - before.GetWakes()))
	z.held.Add(float64(held.GetHeld()))
	if err := command.Pause(ctx, asleep); err != nil {
		return err
	}
	w, err := r.NewWorker(ctx, rig.Place{Pod: pod, Model: r.Model, Plan: engine.Plan{Blind: true}, Flags: []string{fmt.Sprintf("--max-sequences=%d", fewSeats)}})
	if err != nil {
		return err
	}
	if err := errors.Join(r.Members(ctx, w), w.Loaded(ctx), r.InRing(ctx, w)); err != nil {
		return err
	}
	ready := time.Now()
	group.Wait()
	z.answered.Add(share(all))
	tellFailed(r, "F25", all)
	if err := z.order(r, all, ready); err != nil {
		return err
	}
	n := 0
	for _, c := range comments {
		if strings.Contains(c, "waiting for a worker") {
			n++
		}
	}
	z.told.Add(100 * float64(n) / listeners)
	if err := r.Members(ctx); err != nil {
		return err
	}
	w.Stands(false)
	w.Kill()
	return nil
}

// model is what the router knows of the model.
func model(ctx context.Context, r *rig.Rig) (*routerv1.ModelStatus, error) {
	s, err := r.Routers[0].Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range s.GetModels() {
		if m.GetModelUid() == r.Model.UID {
			return m, nil
		}
	}
	return nil, errors.New("the router does not know the model")
}

// order takes when requests reached their engine, and how often later ones went before them. Those that came close together
// have no order.
func (z *waking) order(r *rig.Rig, all []history.Client, ready time.Time) error {
	const clear = 100 * time.Millisecond
	attempts, err := engine.Attempts(filepath.Join(r.Dir(), "attempts.jsonl"))
	if err != nil {
		return err
	}
	asked := map[string]time.Time{}
	for i := range all {
		asked[all[i].ID] = all[i].Start
	}
	attempts = slices.DeleteFunc(attempts, func(a history.Attempt) bool { return asked[a.ID].IsZero() })
	slices.SortFunc(attempts, func(a, b history.Attempt) int { return a.Start.Compare(b.Start) })
	for i, a := range attempts {
		z.overhead.Took(max(a.Start.Sub(ready), 0))
		n := 0
		for _, earlier := range attempts[:i] {
			if asked[earlier.ID].Sub(asked[a.ID]) > clear {
				n++
			}
		}
		z.overtaken.Add(float64(n))
	}
	return nil
}

const (
	// edges is how often a model goes to one worker and back in F26. Each so many of them, it has none for so long as away,
	// which is more than what a request may take that was on its way.
	edges = 20
	each  = 5
	away  = 1500 * time.Millisecond
)

// zeroAndOne is F26. Its heartbeats are four times as fast as by default. A request that reaches the worker a second after its
// router was told that it goes away breaks a rule.
func zeroAndOne() []trial.Trial {
	return []trial.Trial{{
		ID: "F26", Says: fmt.Sprintf("a model goes from no worker to one and back, %d times, with requests at each edge", edges), Times: 2, Takes: 18 * time.Second, Most: 4 * time.Minute,
		Spec: rig.Spec{Workers: 1, Plan: engine.Plan{Between: 10 * time.Millisecond}, Settings: func(s *discovery.Settings) {
			s.Heartbeat.Interval, s.Heartbeat.Timeout = 250*time.Millisecond, 125*time.Millisecond
		}},
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			n := edges
			if times == 1 {
				n = edges / 4
			}
			var e edge
			for i := range n {
				if err := e.cycle(ctx, r, i%each == 0); err != nil {
					return nil, err
				}
			}
			e.group.Wait()
			tellFailed(r, "F26", e.all)
			open := among(e.all, func(c *history.Client) bool { return c.Status == 0 })
			name := fmt.Sprintf("F26 %d times to one worker and back", n)
			return []bench.Figure{
				bench.AtMost(name+", requests that hung", float64(len(open)), "", 0),
				bench.AtLeast(name+", requests that were answered", share(e.all), "%", 100),
				bench.Plain(name+", requests", float64(len(e.all)), ""),
			}, nil
		},
	}}
}

// edge are the requests of F26.
type edge struct {
	group sync.WaitGroup
	mu    sync.Mutex // guards all
	all   []history.Client
}

// ask sends requests beside what happens now: one for a stream, one for a whole answer.
func (e *edge) ask(ctx context.Context, r *rig.Rig) {
	for _, stream := range []bool{true, false} {
		e.group.Go(func() {
			c := r.Routers[0].Client.Do(ctx, chat(40, stream))
			e.mu.Lock()
			defer e.mu.Unlock()
			e.all = append(e.all, c)
		})
	}
}

// cycle takes the worker away, as the manager does when it drains, and brings it back, with requests before, at and after each
// edge. Where it stays away, that lasts.
func (e *edge) cycle(ctx context.Context, r *rig.Rig, stays bool) error {
	w := r.Workers[0]
	going := r.State(w)
	going.Models[0].Candidates[0].Terminating = true
	e.ask(ctx, r)
	e.ask(ctx, r)
	if err := r.Tell(ctx, going); err != nil {
		return err
	}
	w.Stands(false)
	e.ask(ctx, r)
	err := rig.Until(ctx, 5*time.Millisecond, func(ctx context.Context) error {
		s, err := r.Routers[0].Worker(ctx, w.Pod)
		if err == nil && (s.GetInRing() || s.GetInFlight() > 0) {
			err = errors.New("the worker is not idle")
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := r.Members(ctx); err != nil {
		return err
	}
	e.ask(ctx, r)
	e.ask(ctx, r)
	if stays {
		if err := command.Pause(ctx, away); err != nil {
			return err
		}
	}
	w.Stands(true)
	if err := r.Members(ctx, w); err != nil {
		return err
	}
	e.ask(ctx, r)
	if err := r.InRing(ctx, w); err != nil {
		return err
	}
	e.ask(ctx, r)
	return nil
}
