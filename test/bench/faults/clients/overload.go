package clients

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/api/telemetry"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

const (
	// tooMuch is how much more is asked than can be answered.
	tooMuch = 5
	// half is for how long a router's memory is measured, twice, after its heap has its size; that takes no longer than longest.
	half, longest = 10 * time.Second, 75 * time.Second
	// fills is how often the heap is collected from when the queue is full until it has its size: the first time finds what
	// a full queue takes, and until the second it grows to the most that follows from that.
	fills = 2
	// fewSeats has each worker; an answer takes about a second.
	fewSeats = 16
	// mostWait is how long a request of the middle tier may be queued.
	mostWait = 10 * time.Second
)

// aSecond is the plan of engines whose answers of ten words take about a second.
var aSecond = engine.Plan{First: 100 * time.Millisecond, Between: 100 * time.Millisecond}

const aSecondsWords = 10

// tiers are a top, a middle and a low one.
func tiers(s *discovery.Settings) {
	s.TrustHeaders, s.DefaultTier = true, "low"
	s.Tiers = []discovery.Tier{
		{Name: "top", Priority: 100, WhenBusy: string(v1alpha1.WhenBusyFirst), MaxQueue: mostWait},
		{Name: "middle", Priority: 50, WhenBusy: string(v1alpha1.WhenBusyQueue), MaxQueue: mostWait},
		{Name: "low", Priority: 0, WhenBusy: string(v1alpha1.WhenBusyRefuse), MaxQueue: mostWait},
	}
}

// of is a request of a tier.
func of(tier string, stream bool) client.Request {
	q := chat(aSecondsWords, stream)
	q.Tenant, q.Header = tier, map[string]string{telemetry.HeaderTier: tier}
	return q
}

// overload is F79.
func overload() []trial.Trial {
	return []trial.Trial{{
		ID: "F79", Says: fmt.Sprintf("%d times as many requests as can be answered, of three tiers", tooMuch), Takes: 95 * time.Second, Most: 4 * time.Minute,
		Spec: rig.Spec{Settings: tiers},
		Run: func(ctx context.Context, r *rig.Rig, _ int) ([]bench.Figure, error) {
			for _, pod := range []string{"worker-0", "worker-1"} {
				if _, err := seated(ctx, r, pod, fewSeats, aSecond); err != nil {
					return nil, err
				}
			}
			return (&flood{r: r}).run(ctx)
		},
	}}
}

// flood is what goes on in F79.
type flood struct {
	r        *rig.Rig
	capacity float64 // requests a second
	began    time.Time
	settled  time.Duration // from then until the heap has its size
	took     time.Duration
	heaps    [2]rig.Heap     // when it was first collected with a full queue, and last
	resident [2]trial.Series // in bytes
}

func (f *flood) run(ctx context.Context) ([]bench.Figure, error) {
	var err error
	if f.capacity, err = f.most(ctx); err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	var all []history.Client
	var group sync.WaitGroup
	f.began = time.Now()
	group.Go(func() {
		all = f.r.Routers[0].Client.Open(ctx, tooMuch*f.capacity, stop, func(n int) client.Request {
			tier := []string{"top", "middle", "low", "middle", "low", "middle", "low", "middle", "low", "low"}[n%10] // the top one half of what can be
			return of(tier, n/10%2 == 0)
		})
	})
	err = f.watch(ctx)
	f.took = time.Since(f.began)
	close(stop)
	group.Wait()
	if err != nil {
		return nil, err
	}
	waits, err := f.waits(all)
	if err != nil {
		return nil, err
	}
	return f.figures(all, waits), nil
}

// most is how many answers there are in a second while just enough clients ask.
func (f *flood) most(ctx context.Context) (float64, error) {
	const d, settled = 10 * time.Second, 2 * time.Second
	stop := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(stop) })
	defer timer.Stop()
	began := time.Now()
	all := f.r.Routers[0].Client.Closed(ctx, 3*fewSeats, stop, func(n int) client.Request { return of("middle", n%2 == 0) })
	n := ended(all, began.Add(settled), began.Add(d))
	if n == 0 {
		return 0, fmt.Errorf("nothing was answered before the overload: %+v", seenBy(all).why)
	}
	return float64(n) / (d - settled).Seconds(), nil
}

// ended counts the whole answers that ended in a time.
func ended(all []history.Client, from, to time.Time) (n int) {
	for i := range all {
		c := &all[i]
		if c.Outcome() == history.Completed && c.End.After(from) && c.End.Before(to) {
			n++
		}
	}
	return n
}

// watch reads the router's memory. The queue is full after the longest wait in it, and from then on nothing changes any more but
// what of the heap is garbage: so memory is measured from when the heap was as full of that as it gets.
func (f *flood) watch(ctx context.Context) error {
	if err := command.Pause(ctx, mostWait); err != nil {
		return err
	}
	if err := f.settle(ctx); err != nil {
		return err
	}
	for i := range f.resident {
		for until := time.Now().Add(half); time.Now().Before(until); {
			n, err := f.r.Routers[0].RSS()
			if err != nil {
				return err
			}
			f.resident[i].Add(float64(n))
			if err := command.Pause(ctx, 250*time.Millisecond); err != nil {
				return err
			}
		}
	}
	var err error
	f.heaps[1], err = f.r.Routers[0].Heap(ctx)
	return err
}

// settle waits until the heap has its size.
func (f *flood) settle(ctx context.Context) error {
	full, err := f.r.Routers[0].Heap(ctx)
	if err != nil {
		return err
	}
	for now := full; now.Collections < full.Collections+fills; {
		if f.settled = time.Since(f.began); f.settled > longest {
			return fmt.Errorf("the router's heap was collected %d times in %s with a full queue, too seldom to measure it", now.Collections-full.Collections, f.settled-mostWait)
		}
		if err := command.Pause(ctx, time.Second); err != nil {
			return err
		}
		if now, err = f.r.Routers[0].Heap(ctx); err != nil {
			return err
		}
		if now.Collections == full.Collections+1 {
			f.heaps[0] = now
		}
	}
	return nil
}

// waits are the times from a request of the middle tier until its engine had it.
func (f *flood) waits(all []history.Client) (s trial.Series, err error) {
	attempts, err := engine.Attempts(filepath.Join(f.r.Dir(), "attempts.jsonl"))
	started := map[string]time.Time{}
	for _, a := range attempts {
		started[a.ID] = a.Start
	}
	for i := range all {
		if at, ok := started[all[i].ID]; ok && all[i].Tenant == "middle" {
			s.Took(at.Sub(all[i].Start))
		}
	}
	return s, err
}

// figures are those of the overload. Its first seconds fill the queue, and do not count as goodput.
func (f *flood) figures(all []history.Client, waits trial.Series) []bench.Figure {
	from, to := f.began.Add(mostWait), f.began.Add(f.took)
	var refused trial.Series
	unsaid, other, top, topWell := 0, 0, 0, 0
	for i := range all {
		c := &all[i]
		well := c.Outcome() == history.Completed
		if c.Tenant == "top" {
			top++
			if well {
				topWell++
			}
		}
		if well {
			continue
		}
		if c.Status != 429 {
			other++
			fmt.Fprintf(f.r.Shared.Out, "  F79: a request of tier %s has status %d, code %q, %s\n", c.Tenant, c.Status, c.Code, c.Broken)
			continue
		}
		if c.RetryAfter < 1 || c.RetryAfter > 60 {
			unsaid++
		}
		if c.Code != "queue_timeout" {
			refused.Took(c.End.Sub(c.Start))
		}
	}
	name := fmt.Sprintf("F79 %d times too much", tooMuch)
	resident := grown(mean(f.resident[0]), mean(f.resident[1]))
	return []bench.Figure{
		bench.Plain(name+", what can be answered", f.capacity, "/s"),
		bench.AtLeast(name+", answered of what can be", 100*float64(ended(all, from, to))/to.Sub(from).Seconds()/f.capacity, "%", 90),
		bench.AtLeast(name+", top tier answered", 100*float64(topWell)/float64(max(top, 1)), "%", 99),
		bench.AtMost(name+", p99 until a request is refused", 1000*refused.Quantile(0.99), "ms", 50),
		bench.Plain(name+", refused", float64(len(refused)), ""),
		bench.AtMost(name+", refused without a Retry-After from 1 to 60", float64(unsaid), "", 0),
		bench.AtMost(name+", neither answered nor refused", float64(other), "", 0),
		bench.AtMost(name+", longest wait in the queue", waits.Max(), "s", mostWait.Seconds()+0.5),
		bench.Plain(name+", time until the heap has its size", f.settled.Seconds(), "s"),
		bench.Plain(name+", resident memory then", mean(f.resident[0])/(1<<20), "MiB"),
		bench.AtMost(name+fmt.Sprintf(", resident memory of the next %.0f s over that of %.0f s", half.Seconds(), half.Seconds()), max(resident, -resident), "%", 10),
		bench.Plain(name+", memory in use when it is first collected with a full queue", f.heaps[0].Live/(1<<20), "MiB"),
		bench.AtMost(name+", growth of that until it is last collected", grown(f.heaps[0].Live, f.heaps[1].Live), "%", 10),
	}
}

// grown is by how many per cent a figure is more than before.
func grown(before, after float64) float64 { return 100 * (after/before - 1) }

func mean(s trial.Series) float64 { return s.Sum() / float64(max(len(s), 1)) }
