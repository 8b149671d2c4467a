package measure

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
	"github.com/ringfleet/ringfleet/test/bench/worker/peers"
	"github.com/ringfleet/ringfleet/test/bench/worker/timeline"
)

// The sizes of a step that are compared: the worker's default on a CPU, half of it, and one that takes the whole prompt.
const (
	usual = 128
	small = 64
	whole = 512
)

// gap has a prompt of 512 tokens come while four answers run, and looks for the longest wait of one of them for its next
// token until the newcomer has its first.
func (r *Rig) gap(ctx context.Context) ([]pairs.Row, error) {
	workers := map[int]*peers.Worker{}
	for _, tokens := range []int{usual, small, whole} {
		w, err := peers.StartWorker(ctx, r.fleet, r.Programs, "--step-tokens="+strconv.Itoa(tokens))
		if err != nil {
			return nil, err
		}
		defer w.Stop()
		workers[tokens] = w
		if _, err := w.Ask(ctx, r.one(nil, prompt, 8)); err != nil {
			return nil, err
		}
	}
	s := series{}
	one := func(ctx context.Context, i int) error {
		a := arrival{streams: r.corpus.Requests(4, nil, prompt, 1500), newcomer: r.one(nil, shared, 4)}
		order := []int{usual, small, whole}
		for j := range order {
			tokens := order[(i+j)%len(order)]
			worst, first, err := a.gap(ctx, workers[tokens])
			if err != nil {
				return fmt.Errorf("steps of %d tokens: %w", tokens, err)
			}
			s.add(at("gap", tokens), worst)
			s.add(at("first", tokens), first)
		}
		return nil
	}
	return r.turns(ctx, one, func() []pairs.Row { return gapRows(s) })
}

func gapRows(s series) []pairs.Row {
	const name = "worst gap of 4 streams while a prompt of 512 tokens comes: "
	over := func(n int) pairs.Series { return pairs.Over(s[at("gap", n)], s[at("gap", whole)]) }
	out := []pairs.Row{
		pairs.AtMost(name+"steps of 128 / unchunked", over(usual), "×", 0.3),
		pairs.Plain(name+"steps of 64 / unchunked", over(small), "×"),
	}
	for _, n := range []int{usual, small, whole} {
		out = append(out, pairs.Plain(fmt.Sprintf("%ssteps of %d", name, n), s[at("gap", n)], "s"),
			pairs.Plain(fmt.Sprintf("%sits first token with steps of %d", name, n), s[at("first", n)], "s"))
	}
	return out
}

// arrival is a newcomer among streams.
type arrival struct {
	streams  []peers.Request
	newcomer peers.Request
}

// gap returns the worst gap and the newcomer's time to its first token, in seconds.
func (a arrival) gap(ctx context.Context, w *peers.Worker) (worst, first float64, err error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	var begun, ended sync.WaitGroup
	answers, errs := make([]timeline.Answer, len(a.streams)), make([]error, len(a.streams))
	for i, q := range a.streams {
		begun.Add(1)
		once := sync.OnceFunc(begun.Done)
		q.Each = func(tokens int) {
			if tokens >= 8 {
				once()
			}
		}
		ended.Go(func() {
			defer once()
			answers[i], errs[i] = w.Ask(running, q)
		})
	}
	begun.Wait()
	newcomer, err := w.Ask(ctx, a.newcomer)
	stop()
	ended.Wait()
	if err != nil {
		return 0, 0, err
	}
	from, to := newcomer.Sent, newcomer.Sent.Add(newcomer.First())
	for i, s := range answers {
		if !s.Ran(to) {
			return 0, 0, fmt.Errorf("a stream ended before the newcomer's first token: %w", errs[i])
		}
	}
	return timeline.WorstGap(answers, from, to).Seconds(), newcomer.First().Seconds(), nil
}
