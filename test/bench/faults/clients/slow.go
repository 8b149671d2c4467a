package clients

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

const (
	// readers take one byte a second of answers that don't end; patienceForReaders is how long that may go on.
	readers            = 64
	patienceForReaders = 55 * time.Second
	fast               = 10 * time.Millisecond
	// loris is how many connections send a byte of their head each 10 seconds; quickLoris is that of a quick run.
	loris, quickLoris = 2000, 200
)

// slowReaders is F72.
func slowReaders() []trial.Trial {
	return []trial.Trial{{
		ID: "F72", Says: fmt.Sprintf("%d clients take a byte a second of answers that come fast and don't end", readers), Times: 1, Takes: 45 * time.Second,
		Most: 3 * time.Minute, Spec: rig.Spec{Workers: 2, Plan: engine.Plan{Between: fast}},
		Run: func(ctx context.Context, r *rig.Rig, _ int) ([]bench.Figure, error) {
			r.Foreign()
			quiet, err := alone(ctx, r, mixed)
			if err != nil {
				return nil, err
			}
			var took time.Duration
			var during *seen
			grown, err := r.Routers[0].Growth(func() (err error) {
				during, err = beside(ctx, r, mixed, func() error {
					took, err = readSlowly(ctx, r)
					return err
				})
				return err
			})
			if err != nil {
				return nil, err
			}
			return append([]bench.Figure{
				bench.AtMost("F72 memory of the router, by slow reader", grown/readers/1024, "KiB", 1024),
				bench.AtMost("F72 time until no engine works for a slow reader: 30 s after the buffers are full", took.Seconds(), "s", 50),
			}, others(r, "F72", quiet, during, 1.1)...), nil
		},
	}}
}

// readSlowly begins the answers and reads them slowly until no engine works on one. It returns how long that took.
func readSlowly(ctx context.Context, r *rig.Rig) (time.Duration, error) {
	const endless = 1 << 19
	slow := map[string]bool{}
	stop := make(chan struct{})
	var group sync.WaitGroup
	defer group.Wait()
	defer close(stop)
	for range readers {
		c, err := dial(ctx, address(r.Routers[0]), 4<<10)
		if err != nil {
			return 0, err
		}
		id := client.NewID()
		slow[id] = true
		if _, err := c.Write([]byte(asked(id, endless))); err != nil {
			return 0, err
		}
		group.Go(func() {
			defer c.Close() //nolint:errcheck // nothing is left to lose
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for one := make([]byte, 1); ; {
				select {
				case <-tick.C:
					_, _ = c.Read(one) // a connection that has ended is seen by its engine's end
				case <-stop:
					return
				}
			}
		})
	}
	return idleWithin(ctx, r, slow, patienceForReaders)
}

// idleWithin waits until no engine works on one of the requests any more, which are on their way, and returns how long that took;
// where it took longer than most, that is what it returns.
func idleWithin(ctx context.Context, r *rig.Rig, ids map[string]bool, most time.Duration) (time.Duration, error) {
	began := time.Now()
	limit, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	seen := false
	err := rig.Until(limit, 50*time.Millisecond, func(context.Context) error {
		n, err := atWork(ctx, r, ids)
		seen = seen || n > 0
		if err == nil && (n > 0 || !seen) {
			err = fmt.Errorf("%d answers still run", n)
		}
		return err
	})
	if limit.Err() != nil && ctx.Err() == nil {
		err = nil // the figure says that it took too long
	}
	return time.Since(began), err
}

// atWork is how many of the requests engines are at work on.
func atWork(ctx context.Context, r *rig.Rig, ids map[string]bool) (n int, err error) {
	for _, w := range r.Workers {
		s, err := w.Engine.State(ctx)
		if err != nil {
			return 0, err
		}
		for _, id := range s.Running {
			if ids[id] {
				n++
			}
		}
	}
	return n, nil
}

// slowHeaders is F73.
func slowHeaders() []trial.Trial {
	return []trial.Trial{{
		ID: "F73", Says: fmt.Sprintf("%d connections that send a byte of their head each 10 seconds", loris), Times: 2, Takes: 22 * time.Second,
		Spec: rig.Spec{Workers: 2, Plan: engine.Plan{Between: time.Millisecond}},
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			r.Foreign()
			n := loris
			if quick(times) {
				n = quickLoris
			}
			before, err := holds(ctx, r.Routers[0])
			if err != nil {
				return nil, err
			}
			quiet, err := alone(ctx, r, mixed)
			if err != nil {
				return nil, err
			}
			var lived trial.Series
			during, err := beside(ctx, r, mixed, func() error {
				lived, err = sendHeads(ctx, r, n)
				return err
			})
			if err != nil {
				return nil, err
			}
			r.Routers[0].Client.Close()
			more, err := back(ctx, r.Routers[0], before, 5*time.Second)
			name := fmt.Sprintf("F73 %d slow heads", n)
			return append([]bench.Figure{
				bench.AtLeast(name+", those that were closed", float64(len(lived)), "", float64(n)),
				bench.AtMost(name+", the longest life of one", lived.Max(), "s", 11),
				bench.AtMost(name+", goroutines more than before", more.goroutines, "", 2),
			}, others(r, name, quiet, during, 1.5)...), err
		},
	}}
}

// sendHeads opens n connections that never come to the end of their head, and returns how long each of them lived that the
// router closed.
func sendHeads(ctx context.Context, r *rig.Rig, n int) (trial.Series, error) {
	const most = 25 * time.Second
	text := head(0)
	var mu sync.Mutex // guards lived
	var lived trial.Series
	var group sync.WaitGroup
	for range n {
		c, err := dial(ctx, address(r.Routers[0]), 0)
		if err != nil {
			return nil, err
		}
		group.Go(func() {
			if d, ended := oneByOne(ctx, c, text, most); ended {
				mu.Lock()
				defer mu.Unlock()
				lived.Took(d)
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return lived, nil
}

// oneByOne sends a byte each 10 seconds, and returns how long it took until the router ended the connection, if it did.
func oneByOne(ctx context.Context, c *conn, text string, most time.Duration) (time.Duration, bool) {
	began := time.Now()
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for i := range text {
			if _, err := c.Write([]byte(text[i : i+1])); err != nil {
				return
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			case <-ctx.Done():
				return
			}
		}
	})
	defer group.Wait()
	defer close(stop)
	defer c.Close() //nolint:errcheck // it has ended, or lives too long
	_ = c.SetReadDeadline(began.Add(most))
	_, err := io.Copy(io.Discard, c.in)
	return time.Since(began), !isTimeout(err)
}

// slowBodies is F74.
func slowBodies() []trial.Trial {
	return []trial.Trial{{
		ID: "F74", Says: "bodies that come at a byte a second, that don't come and that end too early", Times: 1, Takes: 32 * time.Second,
		Spec: rig.Spec{Workers: 2, Plan: engine.Plan{Between: time.Millisecond}},
		Run: func(ctx context.Context, r *rig.Rig, _ int) ([]bench.Figure, error) {
			r.Foreign()
			before, err := holds(ctx, r.Routers[0])
			if err != nil {
				return nil, err
			}
			var got []bodyEnd
			during, err := beside(ctx, r, mixed, func() error {
				got, err = sendBodies(ctx, r)
				return err
			})
			if err != nil {
				return nil, err
			}
			r.Routers[0].Client.Close()
			more, err := back(ctx, r.Routers[0], before, 5*time.Second)
			figures := bodyFigures(got)
			return append(figures,
				bench.AtMost("F74 goroutines more than before", more.goroutines, "", 2),
				bench.AtLeast("F74 well-behaved requests that were answered", during.share(), "%", 100)), err
		},
	}}
}

// bodies are how clients send theirs; each is done by several at once.
var bodies = []struct {
	name string
	// closes: the client itself ends the connection; no answer is due.
	closes bool
	send   func(ctx context.Context, c *conn) error
}{
	{"a byte a second", false, func(ctx context.Context, c *conn) error {
		if _, err := c.Write([]byte(head(1000))); err != nil {
			return err
		}
		go drip(ctx, c)
		return nil
	}},
	{"no body", false, func(_ context.Context, c *conn) error {
		_, err := c.Write([]byte(head(1000)))
		return err
	}},
	{"half a body and then the end", true, func(_ context.Context, c *conn) error {
		_, err := c.Write([]byte(head(1000) + `{"model":`))
		c.fin()
		return err
	}},
	{"half a chunk and then the end", true, func(_ context.Context, c *conn) error {
		_, err := c.Write([]byte(head(-1) + "10\r\n{\"mod"))
		c.fin()
		return err
	}},
}

// drip sends a byte a second until the connection ends.
func drip(ctx context.Context, c *conn) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, err := c.Write([]byte(" ")); err != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// bodyEnd is what became of one body.
type bodyEnd struct {
	kind   int
	status int
	took   time.Duration
	ended  bool
}

// sendBodies sends every kind several times at once, and waits for the ends.
func sendBodies(ctx context.Context, r *rig.Rig) ([]bodyEnd, error) {
	const each, most = 20, 45 * time.Second
	var mu sync.Mutex // guards all
	var all []bodyEnd
	var group sync.WaitGroup
	for kind, b := range bodies {
		for range each {
			c, err := dial(ctx, address(r.Routers[0]), 0)
			if err != nil {
				return nil, err
			}
			began := time.Now()
			if err := b.send(ctx, c); err != nil {
				return nil, err
			}
			group.Go(func() {
				defer c.Close() //nolint:errcheck // it has ended, or lives too long
				a, err := c.answer(most)
				if err == nil {
					_, err = c.in.ReadByte() // the connection's end
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, bodyEnd{kind, a.status, time.Since(began), err != nil && !isTimeout(err)})
			})
		}
	}
	group.Wait()
	return all, nil
}

// bodyFigures says of each kind how it ended.
func bodyFigures(all []bodyEnd) (figures []bench.Figure) {
	for kind, b := range bodies {
		var took trial.Series
		n, right := 0, 0
		for _, e := range all {
			if e.kind != kind {
				continue
			}
			n++
			took.Took(e.took)
			if e.ended && (b.closes && (e.status == 0 || e.status == 400) || e.status == 408) {
				right++
			}
		}
		want := "answered 408 and closed"
		if b.closes {
			want = "closed, with 400 or nothing"
		}
		figures = append(figures,
			bench.AtLeast("F74 "+b.name+", those "+want, 100*float64(right)/float64(max(n, 1)), "%", 100),
			bench.AtMost("F74 "+b.name+", the longest life of one", took.Max(), "s", 31))
	}
	return figures
}
