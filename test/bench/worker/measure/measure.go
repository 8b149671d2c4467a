// Package measure asks the engines of package peers, in turns, what the worker promises to do better than they do, or as
// well, and makes rows of what it saw. It decides what each measure is and how many pairs it takes; it judges nothing but
// by the goals, and writes nothing but its progress.
package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
	"github.com/ringfleet/ringfleet/test/bench/worker/peers"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
	"github.com/ringfleet/ringfleet/test/bench/worker/programs"
)

// measure is one of those below.
type measure struct {
	name string
	// pair is how many seconds a pair takes on two idle cores, or all of it where there are no pairs. It only serves to say
	// how long the rest takes.
	pair float64
	once bool
	run  func(*Rig, context.Context) ([]pairs.Row, error)
}

// all measures, in their order.
var all = []measure{
	{"decode", 30, false, (*Rig).decode},
	{"prefix", 40, false, (*Rig).prefix},
	{"second", 5, false, (*Rig).second},
	{"gap", 10, false, (*Rig).gap},
	{"cancel", 10, false, (*Rig).cancel},
	{"mixed", 40, false, (*Rig).mixed},
	{"start", 2, false, (*Rig).start},
	{"cost", 60, true, (*Rig).cost},
	{"vllm", 100, true, (*Rig).vllm},
}

// Names are the names of all measures.
func Names() []string {
	var out []string
	for _, m := range all {
		out = append(out, m.name)
	}
	return out
}

// Rig is what all measures share.
type Rig struct {
	Programs programs.Programs
	// Root is the repository's folder.
	Root string
	// Pairs is how often the sides take turns.
	Pairs int
	Out   io.Writer

	fleet    *peers.Fleet
	corpus   *peers.Corpus
	worker   *peers.Worker // with its own defaults
	llama    *peers.Server
	progress *progress
	measure  measure // the one that runs
}

// Run runs the measures of those names, all when there are none, and returns the rows of those that could measure. dir is
// for what it needs on disk meanwhile.
func (r *Rig) Run(ctx context.Context, dir string, names []string) ([]pairs.Row, error) {
	chosen := all
	if len(names) > 0 {
		chosen = nil
		for _, n := range names {
			i := slices.IndexFunc(all, func(m measure) bool { return m.name == n })
			if i < 0 {
				return nil, fmt.Errorf("there is no measure %q; choose from %s", n, strings.Join(Names(), ", "))
			}
			chosen = append(chosen, all[i])
		}
	}
	if err := r.open(ctx, dir); err != nil {
		return nil, err
	}
	defer r.close()
	r.progress = begin(r.Out, chosen, r.Pairs, time.Now())
	var rows []pairs.Row
	var bad error
	for _, m := range chosen {
		r.measure = m
		load, err := process.Load()
		if err != nil {
			return nil, err
		}
		found, err := m.run(r, ctx)
		if m.once {
			r.progress.pass(m.pair)
		}
		if err != nil {
			bad = errors.Join(bad, fmt.Errorf("measure %s: %w", m.name, err))
			fmt.Fprintf(r.Out, "%s could not be measured: %v\n", m.name, err)
		}
		for _, row := range found {
			row.Load = load
			rows = append(rows, row)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return rows, bad
}

// open starts the two engines that most measures ask. Both stay up: they do nothing while nobody asks.
func (r *Rig) open(ctx context.Context, dir string) (err error) {
	if r.fleet, err = peers.NewFleet(filepath.Join(dir, "tls")); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.worker, err = peers.StartWorker(ctx, r.fleet, r.Programs); err != nil {
		return err
	}
	if r.llama, err = peers.StartLlamaServer(ctx, r.Programs); err != nil {
		return err
	}
	tokens, err := r.worker.Tokenize(ctx, peers.Text())
	if err != nil {
		return err
	}
	if r.corpus, err = peers.NewCorpus(tokens, 1); err != nil {
		return err
	}
	for _, e := range []peers.Engine{r.worker, r.llama} { // their first answer pays for what later ones find
		if _, err := e.Ask(ctx, r.one(nil, 64, 8)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rig) close() {
	if r.llama != nil {
		r.llama.Stop()
	}
	if r.worker != nil {
		r.worker.Stop()
	}
	r.fleet.Close()
}

// one is a request for maxTokens after prefix and n tokens of its own.
func (r *Rig) one(prefix []uint32, n, maxTokens int) peers.Request {
	return r.corpus.Requests(1, prefix, n, maxTokens)[0]
}

// series are what a measure has seen so far, by name.
type series map[string]pairs.Series

func (s series) add(name string, v float64) { s[name] = append(s[name], v) }

// turns calls one for each pair, and returns the rows, those of the pairs before an error, too.
func (r *Rig) turns(ctx context.Context, one func(ctx context.Context, i int) error, rows func() []pairs.Row) ([]pairs.Row, error) {
	for i := range r.Pairs {
		ctx, cancel := context.WithTimeout(ctx, hangs)
		err := one(ctx, i)
		cancel()
		if err != nil {
			err = fmt.Errorf("pair %d of %d: %w", i+1, r.Pairs, err)
			if i == 0 {
				return nil, err
			}
			return rows(), err
		}
		r.progress.pair(r.measure, i+1, r.Pairs, rows())
	}
	return rows(), nil
}

// hangs is how long a pair may take before it counts as never.
const hangs = 15 * time.Minute

// beside is in which pairs those take part that are shown and not compared: in each third one.
const beside = 3

// alternate does both, and the second one first in every other pair, so that neither gains by the machine getting busier.
func alternate(i int, a, b func() error) error {
	if i%2 == 1 {
		a, b = b, a
	}
	if err := a(); err != nil {
		return err
	}
	return b()
}
