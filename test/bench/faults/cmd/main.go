// Command cmd does to routers, workers and engines what goes wrong with them, measures what comes of it and checks the history
// of every fault. It writes bench/out/faults.*, or faults-partial.* where not
// all of them were done, and fails only where a fault can't be measured. It plays routers and engines
// itself, each in a process of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/hack/program"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/clients"
	"github.com/ringfleet/ringfleet/test/bench/faults/life"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
	"github.com/ringfleet/ringfleet/test/bench/faults/worker"
	"github.com/ringfleet/ringfleet/test/bench/tables"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// trials are all faults, in the order of their ids.
func trials() []trial.Trial {
	all := slices.Concat(worker.Trials(), clients.Trials(), life.Trials())
	slices.SortStableFunc(all, func(a, b trial.Trial) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// options are the flags.
type options struct{ command.Flags }

func main() { os.Exit(program.Run("bench-faults", run)) }

func run(ctx context.Context, args []string, out io.Writer) error {
	if played, err := rig.Roles.Play(ctx, args, out); played {
		return err
	}
	var o options
	f := flag.NewFlagSet("bench-faults", flag.ContinueOnError)
	o.Bind(f, "faults, separated by commas, such as F03,F12", "each fault once", page, 30*time.Minute)
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.Update && o.part() {
		return errors.New("--update: the documentation has whole runs only")
	}
	return o.Within(ctx, func(ctx context.Context, root, dir string) error { return o.measure(ctx, root, dir, out) })
}

// page is the page of docs that has the table.
const page = "faults.md"

// part says that not all faults were asked for, or that they were asked for once.
func (o options) part() bool { return o.Only != "" || o.Quick }

// file is the name of what is written.
func (o options) file() string { return command.File("faults", o.part()) }

// measure runs the faults and writes what came of them.
func (o options) measure(ctx context.Context, root, dir string, out io.Writer) error {
	h, _, err := tables.Here(o.file(), "Faults, and what came of them")
	if err != nil {
		return err
	}
	shared, err := prepare(ctx, root, dir, out)
	if err != nil {
		return err
	}
	figures, bad := trial.Run(ctx, trials(), trial.Options{Shared: shared, Quick: o.Quick, Out: out, Only: command.Names(o.Only),
		Keep: filepath.Join(bench.Out(root), "faults")})
	if len(figures) == 0 {
		return bad
	}
	r := bench.Of(h, figures)
	r.Page = page
	return errors.Join(bad, r.Keep(root, o.Update && bad == nil))
}

// prepare compiles the worker and brings the demo's model.
func prepare(ctx context.Context, root, dir string, out io.Writer) (s rig.Shared, err error) {
	s = rig.Shared{Dir: dir, Root: root, Out: out, Worker: filepath.Join(dir, "worker")}
	if s.Program, err = os.Executable(); err != nil {
		return s, err
	}
	fmt.Fprintln(out, "compiling the worker")
	_, err = process.Run(ctx, process.Spec{Path: "go", Dir: root, Env: []string{"CGO_ENABLED=1"},
		Args: []string{"build", "-trimpath", "-buildvcs=false", "-o", s.Worker, "./worker"}})
	if err != nil {
		return s, err
	}
	cache, err := fetch.New(out)
	if err != nil {
		return s, err
	}
	libraries, err := fetch.Libraries()
	if err != nil {
		return s, err
	}
	if s.Libraries, err = cache.Get(ctx, libraries); err != nil {
		return s, err
	}
	weights, err := cache.Get(ctx, fetch.Weights())
	s.Weights = filepath.Join(weights, fetch.WeightsFile)
	return s, err
}
