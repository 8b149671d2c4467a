// Package trial says what a fault is, and runs faults one after the other, each on a rig of its own, whose whole history is
// checked when the fault is over. It never decides whether a figure is good: that is the figure's own goal.
package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
)

// Trial is one fault.
type Trial struct {
	// ID is the fault's, such as F01. Several trials may share one; Kind tells these apart, in a few words.
	ID, Kind string
	// Says is what is done, in a sentence.
	Says string
	Spec rig.Spec
	// Times is how often it is done in a whole run; a quick one does it once.
	Times int
	// Takes is how long that takes on two quiet cores, about.
	Takes time.Duration
	// Most bounds the whole trial; 0 is two minutes.
	Most time.Duration
	// Run does it so many times on the rig, and returns what was measured. The names of figures begin with the ID.
	Run func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error)
	// Allow is what the checker lets pass; the zero value is history.DefaultAllowance.
	Allow history.Allowance
}

// Options are a run's.
type Options struct {
	Shared rig.Shared
	// Only are the ids to run; none: all.
	Only  []string
	Quick bool
	// Keep is the folder for histories that don't hold.
	Keep string
	Out  io.Writer
}

// Run runs trials, and returns every figure that came of them. A trial that can't be run is an error, and the others go on.
func Run(ctx context.Context, all []Trial, o Options) ([]bench.Figure, error) {
	var figures []bench.Figure
	var errs []error
	var chosen []Trial
	for _, t := range all {
		if wanted(t.ID, o.Only) {
			chosen = append(chosen, t)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("there is no fault among %s", strings.Join(o.Only, ", "))
	}
	if takes := sum(chosen); !o.Quick {
		fmt.Fprintf(o.Out, "%d faults, which take about %.1f minutes on two quiet cores\n", len(chosen), takes.Minutes())
	}
	for i, t := range chosen {
		if ctx.Err() != nil {
			errs = append(errs, fmt.Errorf("%d faults are left undone: %w", len(chosen)-i, context.Cause(ctx)))
			break
		}
		fmt.Fprintf(o.Out, "%s (%d of %d): %s\n", t.name(), i+1, len(chosen), t.Says)
		began := time.Now()
		got, err := one(ctx, t, o)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.name(), err))
			fmt.Fprintf(o.Out, "  can't be measured: %v\n", err)
		}
		for _, f := range got {
			fmt.Fprintf(o.Out, "  %s\n", tell(f))
		}
		fmt.Fprintf(o.Out, "  took %.1f s\n", time.Since(began).Seconds())
		figures = append(figures, got...)
	}
	return figures, errors.Join(errs...)
}

// sum is how long trials take.
func sum(all []Trial) (d time.Duration) {
	for i := range all {
		d += all[i].Takes
	}
	return d
}

func wanted(id string, only []string) bool {
	for _, o := range only {
		if strings.EqualFold(o, id) {
			return true
		}
	}
	return len(only) == 0
}

func tell(f bench.Figure) string {
	s := fmt.Sprintf("%s: %.4g %s", f.Name, f.Value, f.Unit)
	switch {
	case f.Goal == "":
		return s
	case f.Holds:
		return s + " (" + f.Goal + ")"
	}
	return s + " (" + f.Goal + ", MISSED)"
}

// one runs one trial on a rig of its own.
func one(ctx context.Context, t Trial, o Options) (figures []bench.Figure, err error) {
	most := t.Most
	if most == 0 {
		most = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("it took longer than %s", most))
	defer cancel()
	r, err := rig.Start(ctx, o.Shared, t.Spec)
	defer func() { err = errors.Join(err, r.Close()) }()
	if err != nil {
		return nil, err
	}
	times := max(t.Times, 1)
	if o.Quick {
		times = 1
	}
	figures, err = t.Run(ctx, r, times)
	if err != nil {
		return figures, err
	}
	h, err := r.Quiesce(ctx)
	if err != nil {
		return figures, err
	}
	allow := t.Allow
	if allow == (history.Allowance{}) {
		allow = history.DefaultAllowance
	}
	bad := history.Check(&h, allow)
	for i, v := range bad {
		if i == 8 {
			fmt.Fprintf(o.Out, "  … and %d more\n", len(bad)-i)
			break
		}
		fmt.Fprintf(o.Out, "  %s: %s\n", v.Rule, v.What)
	}
	if len(bad) > 0 {
		err = keep(o, t, &h)
	}
	return append(figures, bench.AtMost(t.name()+": violations of the invariants", float64(len(bad)), "", 0)), err
}

// name is the trial's, in figures and files.
func (t *Trial) name() string { return strings.TrimSpace(t.ID + " " + t.Kind) }

// keep writes a history that does not hold.
func keep(o Options, t Trial, h *history.History) error {
	if err := os.MkdirAll(o.Keep, 0o755); err != nil {
		return err
	}
	file := filepath.Join(o.Keep, strings.ReplaceAll(t.name(), " ", "-")+".jsonl")
	fmt.Fprintf(o.Out, "  the history is in %s\n", file)
	return rig.Keep(file, h)
}
