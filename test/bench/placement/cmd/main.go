// Command cmd replays a trace of requests on a virtual clock, placed by the router's own package placement and by the
// rules of other routers, and writes bench/out/placement.*. It fails only when it can't replay.
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
	"strings"
	"syscall"
	"time"

	"github.com/ringfleet/ringfleet/hack/image/repo"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/placement/report"
	"github.com/ringfleet/ringfleet/test/bench/placement/sim"
	"github.com/ringfleet/ringfleet/test/bench/placement/trace"
)

// options are the flags.
type options struct {
	trace    string
	fleet    sim.Options
	routers  int
	policies string
	update   bool
	most     time.Duration
	own      []string // flags that describe a fleet of the caller's own
}

func (o *options) bind(f *flag.FlagSet) {
	o.fleet = sim.Defaults()
	f.StringVar(&o.trace, "trace", "", "the file of the trace to replay; with Mooncake's conversation trace the synthetic one beside it, too")
	f.IntVar(&o.fleet.Workers, "workers", o.fleet.Workers, "how many workers there are")
	f.IntVar(&o.fleet.Blocks, "blocks", o.fleet.Blocks, "room of each worker's cache, in blocks of 512 tokens")
	f.Float64Var(&o.fleet.Speed, "speed", o.fleet.Speed, "how many times faster than in the trace requests come")
	f.IntVar(&o.routers, "routers", 1, "among how many routers requests are dealt; only the router's own policies are replayed with several")
	f.StringVar(&o.policies, "policies", "", "only these policies, separated by commas: "+strings.Join(names(), ", "))
	f.BoolVar(&o.update, "update", false, "write the tables into docs/benchmarks.md, too")
	f.DurationVar(&o.most, "timeout", 10*time.Minute, "how long all may take")
}

// parse reads the flags.
func parse(f *flag.FlagSet, args []string) (options, error) {
	var o options
	o.bind(f)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	f.Visit(func(g *flag.Flag) {
		if slices.Contains([]string{"workers", "blocks", "speed", "routers"}, g.Name) {
			o.own = append(o.own, "--"+g.Name)
		}
	})
	return o, o.validate()
}

func (o *options) validate() error {
	if o.trace == "" {
		return fmt.Errorf("--trace: want the file of a trace, as in make bench-placement TRACE=conversation_trace.jsonl; traces can be had from %s", trace.Source)
	}
	if o.routers < 1 {
		return fmt.Errorf("--routers %d: want 1 or more", o.routers)
	}
	for _, name := range o.names() {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("--policies %q: want some of %s", name, strings.Join(names(), ", "))
		}
	}
	if o.update && (o.policies != "" || len(o.own) > 0) {
		return errors.New("--update: the documentation has whole runs only, without --policies, --workers, --blocks, --speed and --routers")
	}
	return nil
}

// names are the policies that were asked for; none means all.
func (o *options) names() []string {
	return strings.FieldsFunc(o.policies, func(r rune) bool { return r == ',' || r == ' ' })
}

func main() {
	o, err := parse(flag.CommandLine, os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, o, os.Stdout)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-placement:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.most, fmt.Errorf("--timeout %s is over", o.most))
	defer cancel()
	root, err := repo.Root(".")
	if err != nil {
		return err
	}
	setups, err := plan(o, out)
	if err != nil {
		return err
	}
	r := report.Report{Head: bench.Here("placement", "Placement of a trace's requests, on a virtual clock")}
	if r.Tables, err = replay(ctx, setups, o.names()); err != nil {
		return err
	}
	r.Judged = judge(setups, r.Tables)
	fmt.Fprintln(out, "\n"+r.Markdown())
	if err := r.Write(filepath.Join(root, "bench", "out")); err != nil {
		return err
	}
	if !o.update {
		return nil
	}
	if len(r.Judged) == 0 || len(setups) < standard {
		return fmt.Errorf("--update: the documentation has Mooncake's conversation trace and the synthetic one beside it, both from %s", trace.Source)
	}
	return r.Publish(filepath.Join(root, "docs", "benchmarks.md"))
}
