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
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/hack/image/repo"
	"github.com/ringfleet/ringfleet/test/bench"
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
type options struct {
	only   string
	quick  bool
	update bool
	most   time.Duration
}

func (o *options) bind(f *flag.FlagSet) {
	f.StringVar(&o.only, "only", "", "only these faults, separated by commas, such as F03,F12")
	f.BoolVar(&o.quick, "quick", false, "each fault once, to see that everything works")
	f.BoolVar(&o.update, "update", false, "write the table into docs/faults.md, too")
	f.DurationVar(&o.most, "timeout", 30*time.Minute, "how long all may take; what was measured until then is written")
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-faults:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 2 {
		if role, ok := rig.Roles[args[0]]; ok {
			return role(ctx, []byte(args[1]), out)
		}
	}
	var o options
	f := flag.NewFlagSet("bench-faults", flag.ContinueOnError)
	o.bind(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.update && (o.only != "" || o.quick) {
		return errors.New("--update: the documentation has whole runs only")
	}
	return o.measure(ctx, out)
}

// file is the name of what is written. A part does not replace what a whole run has written.
func (o options) file() string {
	if o.only != "" || o.quick {
		return "faults-partial"
	}
	return "faults"
}

// measure runs the faults and writes what came of them.
func (o options) measure(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.most)
	defer cancel()
	root, err := repo.Root(".")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rf-faults-") // short: sockets lie in it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	load, err := process.Load()
	if err != nil {
		return err
	}
	shared, err := prepare(ctx, root, dir, out)
	if err != nil {
		return err
	}
	figures, bad := trial.Run(ctx, trials(), trial.Options{Shared: shared, Quick: o.quick, Out: out,
		Only: strings.FieldsFunc(o.only, func(r rune) bool { return r == ',' || r == ' ' }), Keep: filepath.Join(root, "bench", "out", "faults")})
	if len(figures) == 0 {
		return bad
	}
	h := bench.Here(o.file(), "Faults, and what came of them")
	h.Machine[tables.Load] = strconv.FormatFloat(load, 'f', 2, 64)
	bad = errors.Join(bad, bench.WriteWith(filepath.Join(root, "bench", "out"), h, figures))
	if o.update && bad == nil {
		bad = publish(filepath.Join(root, "docs", "faults.md"), h, figures)
	}
	return bad
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

// publish writes the table into a page.
func publish(page string, h bench.Head, figures []bench.Figure) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	_, table, _ := strings.Cut(bench.Markdown(h, figures), "\n\n") // without its title
	text, err := tables.Insert(string(old), "bench-faults", table)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(text), 0o644)
}
