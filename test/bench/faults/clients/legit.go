package clients

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// perSecond is how often well-behaved clients ask, and quietTime how long they do so without anything beside them.
const (
	perSecond = 50
	quietTime = 5 * time.Second
)

// chat is a request for a scripted answer.
func chat(words int, stream bool) client.Request {
	return client.Request{Model: rig.ModelName, Words: words, Stream: stream}
}

// mixed is a load half of which is streamed.
func mixed(i int) client.Request { return chat(8, i%2 == 0) }

// seen is what the clients of a load saw.
type seen struct {
	asked, failed int
	why           string // of one that failed
	whole, first  trial.Series
}

// share is the per cent of the requests that were answered.
func (s *seen) share() float64 {
	return 100 * float64(s.asked-s.failed) / float64(max(s.asked, 1))
}

// seenBy sums up what clients saw.
func seenBy(all []history.Client) *seen {
	s := &seen{asked: len(all)}
	for i := range all {
		c := &all[i]
		if c.Outcome() != history.Completed {
			s.failed++
			s.why = fmt.Sprintf("status %d, code %q, %s", c.Status, c.Code, c.Broken)
			continue
		}
		s.whole.Took(c.End.Sub(c.Start))
		if c.Stream {
			s.first.Took(c.First())
		}
	}
	return s
}

// beside runs a steady load of those requests while do runs.
func beside(ctx context.Context, r *rig.Rig, of client.Make, do func() error) (*seen, error) {
	stop := make(chan struct{})
	var all []history.Client
	var group sync.WaitGroup
	group.Go(func() { all = r.Routers[0].Client.Open(ctx, perSecond, stop, of) })
	err := do()
	close(stop)
	group.Wait()
	return seenBy(all), err
}

// alone runs the load without anything beside it.
func alone(ctx context.Context, r *rig.Rig, of client.Make) (*seen, error) {
	return beside(ctx, r, of, func() error { return command.Pause(ctx, quietTime) })
}

// others are the figures of well-behaved clients beside a fault; name is the fault's.
func others(r *rig.Rig, name string, quiet, during *seen, times float64) []bench.Figure {
	if during.failed > 0 {
		fmt.Fprintf(r.Shared.Out, "  %s: %d of %d well-behaved requests failed, such as: %s\n", name, during.failed, during.asked, during.why)
	}
	return []bench.Figure{
		bench.AtLeast(name+", well-behaved requests that were answered", during.share(), "%", 100),
		bench.AtMost(name+", p99 of well-behaved requests over that without the fault", during.whole.Quantile(0.99)/quiet.whole.Quantile(0.99), "times", times),
		bench.Plain(name+", p99 of well-behaved requests", 1000*during.whole.Quantile(0.99), "ms"),
	}
}

// back waits until a router holds no more goroutines and files than before, or a time has passed, and returns how many more
// there are.
func back(ctx context.Context, r *rig.Router, before held, most time.Duration) (more held, err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err = rig.Until(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		now, err := holds(context.WithoutCancel(ctx), r)
		if err != nil {
			return err
		}
		more = held{now.goroutines - before.goroutines, now.files - before.files, now.requests - before.requests}
		if more.goroutines > 2 || more.files > 1 || more.requests > 0 {
			return errMore
		}
		return nil
	})
	if ctx.Err() != nil || err == errMore { //nolint:errorlint // it is that very one
		err = nil // how many more there are is the figure
	}
	return more, err
}

var errMore = fmt.Errorf("the router holds more than before")

// held is what a router holds.
type held struct{ goroutines, files, requests float64 }

// holds asks a router what it holds.
func holds(ctx context.Context, r *rig.Router) (held, error) {
	f, err := r.Figures(ctx)
	if err != nil {
		return held{}, err
	}
	const own = "ringfleet_router_requests_"
	return held{rig.Goroutines(f), rig.Figure(f, "process_open_fds", nil),
		rig.Figure(f, own+"in_flight", nil) + rig.Figure(f, own+"queued", nil) + rig.Figure(f, own+"held", nil)}, nil
}
