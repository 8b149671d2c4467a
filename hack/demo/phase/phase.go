// Package phase runs the named steps of a long command one after another, and never lets a user wait for
// long without a line that says what runs. It knows nothing about what the steps do.
package phase

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Quiet is how long a phase may be silent before a line says that it still runs.
const Quiet = 15 * time.Second

// Phase is one step.
type Phase struct {
	Name string // what it does, as "build the images"
	// Look says what a user may look at when it fails.
	Look string
	Run  func(ctx context.Context, out io.Writer) error
}

// Run runs phases in their order, up to the first that fails, whose error names it.
func Run(ctx context.Context, c clock.WithTicker, out io.Writer, phases []Phase) error {
	begin := c.Now()
	for i, p := range phases {
		start := c.Now()
		fmt.Fprintf(out, "[%d/%d] %s\n", i+1, len(phases), p.Name)
		w := &watched{out: out, clock: c, last: start}
		stop := w.watch(p.Name, start)
		err := p.Run(ctx, w)
		stop()
		if err != nil && p.Look != "" {
			return fmt.Errorf("phase %d of %d, %s: %w\nlook at: %s", i+1, len(phases), p.Name, err, p.Look)
		}
		if err != nil {
			return fmt.Errorf("phase %d of %d, %s: %w", i+1, len(phases), p.Name, err)
		}
		fmt.Fprintf(out, "      done in %s, %s so far\n", seconds(c.Since(start)), seconds(c.Since(begin)))
	}
	return nil
}

func seconds(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

// watched is a writer that knows when something was last written.
type watched struct {
	out   io.Writer
	clock clock.WithTicker

	mu   sync.Mutex // guards last, and keeps lines apart
	last time.Time
}

// Write implements io.Writer.
func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = w.clock.Now()
	return w.out.Write(b)
}

// watch breaks every silence, until the returned function is called.
func (w *watched) watch(name string, start time.Time) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	t := w.clock.NewTicker(Quiet / 3)
	go func() {
		defer close(ended)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C():
				w.breakSilence(name, start)
			}
		}
	}()
	return func() { close(done); <-ended }
}

func (w *watched) breakSilence(name string, start time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	if now.Sub(w.last) < Quiet {
		return
	}
	w.last = now
	fmt.Fprintf(w.out, "      still: %s, %s in this phase\n", name, now.Sub(start).Round(time.Second))
}
