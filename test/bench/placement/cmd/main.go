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
	"slices"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/hack/image/repo"
	"github.com/ringfleet/ringfleet/hack/program"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
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
	return command.Names(o.policies)
}

func main() { os.Exit(program.Run("bench-placement", run)) }

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(flag.NewFlagSet("bench-placement", flag.ContinueOnError), args)
	if err != nil {
		return err
	}
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
	all := report.Replays{Head: bench.Here("placement", "Placement of a trace's requests, on a virtual clock")}
	if all.Tables, err = replay(ctx, setups, o.names()); err != nil {
		return err
	}
	all.Judged = judge(setups, all.Tables)
	r := all.Report()
	fmt.Fprintln(out, "\n"+r.Text)
	if whole := len(all.Judged) > 0 && len(setups) >= standard; o.update && !whole {
		return errors.Join(r.Keep(root, false),
			fmt.Errorf("--update: the documentation has Mooncake's conversation trace and the synthetic one beside it, both from %s", trace.Source))
	}
	return r.Keep(root, o.update)
}
