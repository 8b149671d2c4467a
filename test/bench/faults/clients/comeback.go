package clients

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

const (
	// crowd is how many clients ask at one moment, for an answer of a second each; shortQueue is how many may wait.
	crowd, quickCrowd = 200, 150
	shortQueue        = 40
	// stubborn is when those come back that do not heed Retry-After.
	stubborn = 500 * time.Millisecond
)

// comeBack is F80.
func comeBack() []trial.Trial {
	var all []trial.Trial
	for _, obeys := range []bool{true, false} {
		says := fmt.Sprintf("%d clients ask at one moment and come back when Retry-After says", crowd)
		if !obeys {
			says = fmt.Sprintf("%d clients ask at one moment and come back each half second, whatever Retry-After says", crowd)
		}
		all = append(all, trial.Trial{
			ID: "F80", Says: says, Times: 2, Takes: 15 * time.Second, Most: 4 * time.Minute,
			Spec: rig.Spec{Settings: func(s *discovery.Settings) { s.Admission.MaxQueued = shortQueue }},
			Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
				if _, err := seated(ctx, r, "worker-0", fewSeats, aSecond); err != nil {
					return nil, err
				}
				n := crowd
				if quick(times) {
					n = quickCrowd
				}
				return crowded(ctx, r, n, obeys), nil
			},
		})
	}
	return all
}

// mostTries is how often a client asks.
const mostTries = 200

// crowded lets n clients ask until each has its answer.
func crowded(ctx context.Context, r *rig.Rig, n int, obeys bool) []bench.Figure {
	var mu sync.Mutex // guards all
	var all []history.Client
	answered := 0
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			for range mostTries {
				c := r.Routers[0].Client.Do(ctx, client.Request{Model: rig.ModelName, Words: aSecondsWords, Stream: i%2 == 0})
				mu.Lock()
				all = append(all, c)
				if c.Outcome() == history.Completed {
					answered++
				}
				mu.Unlock()
				if c.Status != http.StatusTooManyRequests {
					return
				}
				wait := time.Duration(c.RetryAfter) * time.Second
				if !obeys {
					wait = stubborn
				}
				if command.Pause(ctx, wait) != nil {
					return
				}
			}
		})
	}
	group.Wait()
	name := fmt.Sprintf("F80 %d clients that come back as told", n)
	if !obeys {
		name = fmt.Sprintf("F80 %d clients that come back each half second", n)
	}
	peak, seconds := wave(all)
	figures := []bench.Figure{
		bench.AtLeast(name+", refused at first", float64(len(all)-answered), "", 1),
		bench.AtLeast(name+", answered in the end", 100*float64(answered)/float64(n), "%", 100),
		bench.Plain(name+", requests until then", float64(len(all))/float64(n), "each"),
		bench.Plain(name+", time until the last came back", seconds, "s"),
	}
	if obeys {
		return append(figures, bench.AtMost(name+", most that came in a second over the mean", peak, "times", 2))
	}
	return append(figures, bench.Plain(name+", most that came in a second over the mean", peak, "times"))
}

// wave is how many requests came in the worst second over the mean of all seconds, of those that came back, and over how many
// seconds they came. Where nobody came back the first is NaN.
func wave(all []history.Client) (peak, seconds float64) {
	if len(all) == 0 {
		return math.NaN(), 0
	}
	slices.SortFunc(all, func(a, b history.Client) int { return a.Start.Compare(b.Start) })
	first := all[0].Start.Add(time.Second) // before that nobody was told anything
	in := map[int]int{}
	last, n := 0, 0
	for i := range all {
		if d := all[i].Start.Sub(first); d >= 0 {
			in[int(d/time.Second)]++
			last = max(last, int(d/time.Second))
			n++
		}
	}
	if n == 0 {
		return math.NaN(), 0
	}
	most := 0
	for _, k := range in {
		most = max(most, k)
	}
	seconds = float64(last + 1)
	return float64(most) / (float64(n) / seconds), seconds
}
