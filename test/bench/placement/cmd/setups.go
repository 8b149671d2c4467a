package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/prefix"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/placement/ours"
	"github.com/ringfleet/ringfleet/test/bench/placement/peers"
	"github.com/ringfleet/ringfleet/test/bench/placement/report"
	"github.com/ringfleet/ringfleet/test/bench/placement/sim"
	"github.com/ringfleet/ringfleet/test/bench/placement/trace"
)

// standard is how many setups a whole run has.
const standard = 5

// several is how many routers share the requests where there is more than one.
const several = 3

// conversation is the number of requests by which Mooncake's conversation trace is known.
const conversation = 12031

// A setup is a fleet, its routers, and a trace.
type setup struct {
	name    string
	trace   *trace.Trace
	chains  []prefix.Chain
	fleet   sim.Options
	routers int
}

// title says everything.
func (s setup) title() string {
	routers := "one router"
	if s.routers > 1 {
		routers = fmt.Sprintf("%d routers that share nothing but the ring", s.routers)
	}
	return fmt.Sprintf("%s (%d requests), %g × as fast, %d workers of %d blocks, %s",
		s.trace.Name, len(s.trace.Requests), s.fleet.Speed, s.fleet.Workers, s.fleet.Blocks, routers)
}

// names are the policies: the router's own, then the others.
func names() []string {
	var out []string
	out = append(out, placement.Names()...)
	for _, p := range peers.All() {
		out = append(out, p.Name)
	}
	return out
}

// plan reads the traces and says what is replayed.
func plan(o options, out io.Writer) ([]setup, error) {
	t, err := load(o.trace, out)
	if err != nil {
		return nil, err
	}
	base := setup{name: fmt.Sprintf("%d router(s)", o.routers), trace: t, chains: ours.Chains(t), fleet: o.fleet, routers: o.routers}
	if len(o.own) > 0 {
		return []setup{base}, nil
	}
	one, three, fast, small := base, base, base, base
	one.name = "one router"
	three.name, three.routers = "three routers", several
	fast.name, fast.fleet.Speed = "1.5 times as fast", 1.5
	small.name, small.fleet.Blocks = "1,000 blocks", 1000
	setups := []setup{one, three, fast, small}
	beside := filepath.Join(filepath.Dir(o.trace), strings.Replace(filepath.Base(o.trace), "conversation", "synthetic", 1))
	if beside == filepath.Clean(o.trace) {
		return setups, nil
	}
	if _, err := os.Stat(beside); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(out, "there is no %s: the synthetic trace is left out\n", beside)
		return setups, nil
	}
	other, err := load(beside, out)
	if err != nil {
		return nil, err
	}
	synthetic := one
	synthetic.name, synthetic.trace, synthetic.chains = "synthetic", other, ours.Chains(other)
	return append(setups, synthetic), nil
}

// load reads a trace and says what it holds.
func load(path string, out io.Writer) (*trace.Trace, error) {
	t, err := trace.Read(path)
	if err != nil {
		return nil, err
	}
	n := t.Totals()
	fmt.Fprintf(out, "%s: %d requests in %.0f s, %d tokens in and %d out of each on average; one cache without bounds would find %.1f %% of %d blocks\n",
		t.Name, n.Requests, n.Lasts.Seconds(), n.Input/n.Requests, n.Output/n.Requests, 100*n.Ceiling, n.Blocks)
	return t, nil
}

// chosen is how a policy's router begins, with its name for people.
type chosen struct {
	title string
	ours  bool
	start func(*sim.Fleet) sim.Router
}

// policies are those of a setup that were asked for. Rules that see everything choose alike however many routers there
// are, so with several only our own are replayed.
func (s setup) policies(only []string) ([]chosen, error) {
	wanted := func(name string) bool { return len(only) == 0 || slices.Contains(only, name) }
	var out []chosen
	for _, name := range placement.Names() {
		if !wanted(name) {
			continue
		}
		start, err := ours.Start(name, s.routers, s.chains)
		if err != nil {
			return nil, err
		}
		out = append(out, chosen{name, true, start})
	}
	for _, p := range peers.All() {
		if s.routers == 1 && wanted(p.Name) {
			out = append(out, chosen{p.Title, false, p.Start})
		}
	}
	return out, nil
}

// replay runs every policy of every setup, as many at a time as there are processors.
func replay(ctx context.Context, setups []setup, only []string) ([]report.Table, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	tables := make([]report.Table, len(setups))
	for i, s := range setups {
		policies, err := s.policies(only)
		if err != nil {
			return nil, err
		}
		tables[i] = report.Table{Name: s.name, Title: s.title(), Rows: make([]report.Row, len(policies))}
		for j, p := range policies {
			group.Go(func() error {
				result, err := sim.Run(ctx, s.fleet, s.trace, p.start)
				if err != nil {
					return fmt.Errorf("%s: %w", p.title, err)
				}
				tables[i].Rows[j] = report.Row{Policy: p.title, Ours: p.ours, Summary: result.Summary()}
				return nil
			})
		}
	}
	return tables, group.Wait()
}

// judge holds the router's default policy to its goals, which are for Mooncake's conversation trace.
func judge(setups []setup, tables []report.Table) []bench.Figure {
	if len(setups) < 2 || len(setups[0].trace.Requests) != conversation {
		return nil
	}
	return report.Judge(placement.DefaultPolicy, tables[0], tables[1])
}
