// Command cmd measures the worker side by side with the programs of llama.cpp, and with vLLM on the CPU where it is
// installed: all with the same model and one thread. It writes bench/out/worker.*, and fails only when it can't measure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/hack/program"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/tables"
	"github.com/ringfleet/ringfleet/test/bench/worker/measure"
	"github.com/ringfleet/ringfleet/test/bench/worker/peers"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
	"github.com/ringfleet/ringfleet/test/bench/worker/programs"
	"github.com/ringfleet/ringfleet/test/bench/worker/report"
)

// options are the flags.
type options struct {
	command.Flags
	pairs int
}

func (o *options) bind(f *flag.FlagSet) {
	o.Bind(f, "measures, separated by commas: "+strings.Join(measure.Names(), ", "), "three pairs", page, 2*time.Hour)
	f.IntVar(&o.pairs, "pairs", 15, "how often the sides take turns")
}

func (o *options) validate() error {
	if o.Quick {
		o.pairs = 3
	}
	if o.pairs < 1 {
		return fmt.Errorf("--pairs %d: want 1 or more", o.pairs)
	}
	if o.Update && (o.Only != "" || o.pairs < 15) {
		return errors.New("--update: the documentation has whole runs of 15 pairs only")
	}
	return nil
}

// page is the page of docs that has the tables.
const page = "benchmarks.md"

func main() { os.Exit(program.Run("bench-worker", run)) }

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	f := flag.NewFlagSet("bench-worker", flag.ContinueOnError)
	o.bind(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	return o.Within(ctx, func(ctx context.Context, root, dir string) error { return o.measure(ctx, root, dir, out) })
}

// measure runs the bench and writes what came of it.
func (o options) measure(ctx context.Context, root, dir string, out io.Writer) error {
	p, err := programs.Get(ctx, root, dir, out)
	if err != nil {
		return err
	}
	if !o.Quick {
		if err := settle(ctx, out); err != nil {
			return err
		}
	}
	h, err := head(p)
	if err != nil {
		return err
	}
	if why := h.Machine[report.Busy]; why != "" {
		fmt.Fprintln(out, "warning:", why)
	}
	rig := &measure.Rig{Programs: p, Root: root, Pairs: o.pairs, Out: out}
	rows, bad := rig.Run(ctx, dir, command.Names(o.Only))
	if len(rows) == 0 {
		return bad
	}
	r := tables.Of(h, report.Intro(h), rows, page)
	fmt.Fprintln(out, "\n"+r.Text)
	return errors.Join(bad, r.Keep(root, o.Update && bad == nil))
}

// patience is how long the load that compiling left behind may take to go.
const patience = 2 * time.Minute

// busy is the load average above which the figures say little.
func busy() float64 { return float64(runtime.NumCPU()) / 2 }

// settle waits until the machine is quiet, or patience is at its end.
func settle(ctx context.Context, out io.Writer) error {
	t := time.NewTicker(10 * time.Second)
	defer t.Stop()
	for began := time.Now(); ; {
		load, err := process.Load()
		if err != nil || load <= busy() || time.Since(began) > patience {
			return err
		}
		fmt.Fprintf(out, "the load average is %.1f: waiting for less than %.1f, for two minutes at most\n", load, busy())
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// head describes the machine as it was before anything was measured.
func head(p programs.Programs) (bench.Head, error) {
	h, load, err := tables.Here("worker", "The worker beside llama.cpp's own programs")
	if err != nil {
		return h, err
	}
	h.Machine[report.Threads] = strconv.Itoa(peers.Threads)
	if load > busy() {
		h.Machine[report.Busy] = fmt.Sprintf("The machine was busy: a load average of %.1f on %d cores at the start. These figures say little.", load, runtime.NumCPU())
	}
	for name, v := range p.Versions() {
		h.Versions[name] = v
	}
	return h, nil
}
