package clients

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

const (
	// together is how many clients go at once, each time; seats is how many requests run at the one worker, and entered how
	// many of them a router lets in.
	together = 100
	seats    = 128
	entered  = 116
	// long is a time between two words that nobody waits for.
	long = time.Hour
)

// goneClients is F71.
func goneClients() []trial.Trial {
	return []trial.Trial{{
		ID: "F71", Says: fmt.Sprintf("clients go away, %d at a time, in the queue, before the first byte and in the middle, by FIN and by RST", together), Times: 5, Takes: 6 * time.Second,
		Most: 4 * time.Minute,
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			r.Foreign()
			w, err := seated(ctx, r, "worker-0", seats, engine.Plan{})
			if err != nil {
				return nil, err
			}
			return (&leaving{r: r, w: w, left: map[string]time.Time{}}).run(ctx, times)
		},
	}}
}

// seated starts a worker whose engine does not tell of its KV cache, so that routers count its seats.
func seated(ctx context.Context, r *rig.Rig, pod string, seats int, p engine.Plan) (*rig.Worker, error) {
	p.Blind = true
	w, err := r.NewWorker(ctx, rig.Place{Pod: pod, Model: r.Model, Plan: p, Flags: []string{fmt.Sprintf("--max-sequences=%d", seats)}})
	if err != nil {
		return nil, err
	}
	r.Workers = append(r.Workers, w)
	if err := w.Loaded(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(r.Members(ctx, r.Workers...), r.InRing(ctx, w)); err != nil {
		return nil, err
	}
	for r.Routers[0].Client.Do(ctx, chat(1, true)).Worker != pod { // its connection belongs to what was before the fault
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return w, r.Remember(ctx)
}

// leaving is what goes on in F71.
type leaving struct {
	r *rig.Rig
	w *rig.Worker

	mu   sync.Mutex // guards left
	left map[string]time.Time
}

// stage is where clients go away.
type stage struct {
	name string
	plan engine.Plan
	// there waits until a batch of clients is at this stage.
	there func(ctx context.Context, conns []*conn) error
}

func (l *leaving) run(ctx context.Context, times int) ([]bench.Figure, error) {
	x := l.r.Routers[0]
	before, err := holds(ctx, x)
	if err != nil {
		return nil, err
	}
	running := func(ctx context.Context, _ []*conn) error { return l.running(ctx, together) }
	var figures []bench.Figure
	for _, s := range []stage{
		{"before the first byte", engine.Plan{First: long, Blind: true}, running},
		{"in the middle", engine.Plan{Between: long, Blind: true}, firstOf},
	} {
		got, err := l.atWorker(ctx, s, times)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		figures = append(figures, got...)
	}
	queued, err := l.inQueue(ctx, times)
	if err != nil {
		return nil, fmt.Errorf("in the queue: %w", err)
	}
	more, err := back(ctx, x, before, 5*time.Second)
	return append(append(figures, queued...),
		bench.AtMost("F71 requests that the router counts 5 s later", more.requests, "", 0),
		bench.AtMost("F71 goroutines more than before, 5 s later", more.goroutines, "", 2),
		bench.AtMost("F71 files more than before, 5 s later", more.files, "", 1)), err
}

// atWorker lets clients go whose requests are at the worker.
func (l *leaving) atWorker(ctx context.Context, s stage, times int) (figures []bench.Figure, err error) {
	if err := l.w.Engine.Set(ctx, s.plan); err != nil {
		return nil, err
	}
	for _, how := range []struct {
		name string
		end  func(*conn)
	}{{"FIN", (*conn).fin}, {"RST", (*conn).reset}} {
		var ids []string
		for range times {
			batch, conns, err := l.open(ctx, together)
			if err != nil {
				return nil, err
			}
			ids = append(ids, batch...)
			if err := s.there(ctx, conns); err != nil {
				return nil, err
			}
			l.leave(batch, conns, how.end)
			err = l.running(ctx, 0)
			for _, c := range conns {
				_ = c.Close()
			}
			if err != nil {
				return nil, err
			}
		}
		took, lost, err := l.aborts(ids)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("F71 %s, %s, %d clients", s.name, how.name, len(ids))
		figures = append(figures,
			bench.AtMost(name+": p99 until the engine saw it", 1000*took.Quantile(0.99), "ms", 500),
			bench.AtMost(name+": requests that the engine was not freed of", float64(lost), "", 0))
	}
	return figures, nil
}

// open sends n requests, each on a connection of its own.
func (l *leaving) open(ctx context.Context, n int) (ids []string, conns []*conn, err error) {
	for range n {
		c, err := dial(ctx, address(l.r.Routers[0]), 0)
		if err != nil {
			return nil, nil, err
		}
		id := client.NewID()
		if _, err := c.Write([]byte(asked(id, 4))); err != nil {
			return nil, nil, err
		}
		ids, conns = append(ids, id), append(conns, c)
	}
	return ids, conns, nil
}

// firstOf waits for the first word of each.
func firstOf(_ context.Context, conns []*conn) error {
	for _, c := range conns {
		if err := c.firstData(20 * time.Second); err != nil {
			return err
		}
	}
	return nil
}

// leave ends all connections, and remembers when.
func (l *leaving) leave(ids []string, conns []*conn, end func(*conn)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range conns {
		l.left[ids[i]] = time.Now()
		end(c)
	}
}

// running waits until the engine is at work on n requests.
func (l *leaving) running(ctx context.Context, n int) error {
	return rig.Until(ctx, 5*time.Millisecond, func(ctx context.Context) error {
		s, err := l.w.Engine.State(ctx)
		if err == nil && len(s.Running) != n {
			err = fmt.Errorf("the engine is at work on %d requests, not on %d", len(s.Running), n)
		}
		return err
	})
}

// attempts are those of the requests that reached the engine.
func (l *leaving) attempts(ids []string) ([]history.Attempt, error) {
	all, err := engine.Attempts(filepath.Join(l.r.Dir(), "attempts.jsonl"))
	mine := map[string]bool{}
	for _, id := range ids {
		mine[id] = true
	}
	return slices.DeleteFunc(all, func(a history.Attempt) bool { return !mine[a.ID] }), err
}

// aborts are the times from a client's going until its engine saw it, and how many never did.
func (l *leaving) aborts(ids []string) (took trial.Series, lost int, err error) {
	all, err := l.attempts(ids)
	if err != nil {
		return nil, 0, err
	}
	for _, a := range all {
		if a.End.IsZero() || !a.Aborted {
			lost++
			continue
		}
		took.Took(a.End.Sub(l.left[a.ID]))
	}
	return took, lost + len(ids) - len(all), nil
}

// inQueue lets clients go whose requests wait in the router. The seats are taken by others, whose requests stay.
func (l *leaving) inQueue(ctx context.Context, times int) (figures []bench.Figure, err error) {
	if err := l.w.Engine.Set(ctx, engine.Plan{First: long, Blind: true}); err != nil {
		return nil, err
	}
	_, inside, err := l.open(ctx, seats)
	defer func() {
		for _, c := range inside {
			c.reset()
		}
		err = errors.Join(err, l.running(ctx, 0))
	}()
	if err != nil {
		return nil, err
	}
	if err := l.running(ctx, entered); err != nil {
		return nil, err
	}
	for _, how := range []struct {
		name string
		end  func(*conn)
	}{{"FIN", (*conn).fin}, {"RST", (*conn).reset}} {
		var ids []string
		var took trial.Series
		for range times {
			batch, conns, err := l.open(ctx, together)
			if err != nil {
				return nil, err
			}
			ids = append(ids, batch...)
			if err := l.queued(ctx, seats-entered+together); err != nil {
				return nil, err
			}
			began := time.Now()
			l.leave(batch, conns, how.end)
			err = l.queued(ctx, seats-entered)
			took.Took(time.Since(began))
			for _, c := range conns {
				_ = c.Close()
			}
			if err != nil {
				return nil, err
			}
		}
		reached, err := l.attempts(ids)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("F71 in the queue, %s, %d clients", how.name, len(ids))
		figures = append(figures,
			bench.AtMost(name+fmt.Sprintf(": longest until all %d of a batch were out of it", together), 1000*took.Max(), "ms", 500),
			bench.AtMost(name+": requests that reached an engine", float64(len(reached)), "", 0))
	}
	return figures, nil
}

// queued waits until so many requests wait in the router.
func (l *leaving) queued(ctx context.Context, n int) error {
	return rig.Until(ctx, 5*time.Millisecond, func(ctx context.Context) error {
		s, err := l.r.Routers[0].Status(ctx)
		if err != nil {
			return err
		}
		for _, m := range s.GetModels() {
			if m.GetModelUid() == l.r.Model.UID && int(m.GetQueued()) != n {
				return fmt.Errorf("%d requests are queued, not %d", m.GetQueued(), n)
			}
		}
		return nil
	})
}
