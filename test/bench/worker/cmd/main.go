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
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ringfleet/ringfleet/hack/image/repo"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/tables"
	"github.com/ringfleet/ringfleet/test/bench/worker/measure"
	"github.com/ringfleet/ringfleet/test/bench/worker/peers"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
	"github.com/ringfleet/ringfleet/test/bench/worker/programs"
	"github.com/ringfleet/ringfleet/test/bench/worker/report"
)

// options are the flags.
type options struct {
	pairs  int
	quick  bool
	only   string
	update bool
	most   time.Duration
}

func (o *options) bind(f *flag.FlagSet) {
	f.IntVar(&o.pairs, "pairs", 15, "how often the sides take turns")
	f.BoolVar(&o.quick, "quick", false, "three pairs, to see that everything works")
	f.StringVar(&o.only, "only", "", "only these measures, separated by commas: "+strings.Join(measure.Names(), ", "))
	f.BoolVar(&o.update, "update", false, "write the tables into docs/benchmarks.md, too")
	f.DurationVar(&o.most, "timeout", 2*time.Hour, "how long all may take; what was measured until then is written")
}

func (o *options) validate() error {
	if o.quick {
		o.pairs = 3
	}
	if o.pairs < 1 {
		return fmt.Errorf("--pairs %d: want 1 or more", o.pairs)
	}
	if o.update && (o.only != "" || o.pairs < 15) {
		return errors.New("--update: the documentation has whole runs of 15 pairs only")
	}
	return nil
}

// names are the measures that were asked for; none means all.
func (o *options) names() []string {
	return strings.FieldsFunc(o.only, func(r rune) bool { return r == ',' || r == ' ' })
}

func main() {
	var o options
	o.bind(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-worker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.most)
	defer cancel()
	root, err := repo.Root(".")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ringfleet-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := programs.Get(ctx, root, dir, out)
	if err != nil {
		return err
	}
	if !o.quick {
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
	rows, bad := rig.Run(ctx, dir, o.names())
	if len(rows) == 0 {
		return bad
	}
	fmt.Fprintln(out, "\n"+tables.Markdown(h, report.Intro(h), rows))
	bad = errors.Join(bad, tables.Write(filepath.Join(root, "bench", "out"), h, report.Intro(h), rows))
	if o.update && bad == nil {
		bad = tables.Publish(filepath.Join(root, "docs", "benchmarks.md"), report.Mark, h, report.Intro(h), rows)
	}
	return bad
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
	h := bench.Here("worker", "The worker beside llama.cpp's own programs")
	load, err := process.Load()
	if err != nil {
		return h, err
	}
	h.Machine[report.Threads], h.Machine[tables.Load] = strconv.Itoa(peers.Threads), strconv.FormatFloat(load, 'f', 2, 64)
	if load > busy() {
		h.Machine[report.Busy] = fmt.Sprintf("The machine was busy: a load average of %.1f on %d cores at the start. These figures say little.", load, runtime.NumCPU())
	}
	for name, v := range p.Versions() {
		h.Versions[name] = v
	}
	return h, nil
}
