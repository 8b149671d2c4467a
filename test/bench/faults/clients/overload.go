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
	// tooMuch is how much more is asked than can be answered, for overloadTime; quickOverload is that of a quick run.
	tooMuch       = 5
	overloadTime  = 30 * time.Second
	quickOverload = 24 * time.Second
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
		ID: "F79", Says: fmt.Sprintf("%d times as many requests as can be answered, of three tiers", tooMuch), Times: 2, Takes: 45 * time.Second, Most: 4 * time.Minute,
		Spec: rig.Spec{Settings: tiers},
		Run: func(ctx context.Context, r *rig.Rig, times int) ([]bench.Figure, error) {
			for _, pod := range []string{"worker-0", "worker-1"} {
				if _, err := seated(ctx, r, pod, fewSeats, aSecond); err != nil {
					return nil, err
				}
			}
			d := overloadTime
			if quick(times) {
				d = quickOverload
			}
			return (&flood{r: r, took: d}).run(ctx)
		},
	}}
}

// flood is what goes on in F79.
type flood struct {
	r        *rig.Rig
	took     time.Duration
	capacity float64 // requests a second
	memory   []trial.Series
}

func (f *flood) run(ctx context.Context) ([]bench.Figure, error) {
	var err error
	if f.capacity, err = f.most(ctx); err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	var all []history.Client
	var group sync.WaitGroup
	began := time.Now()
	group.Go(func() {
		all = f.r.Routers[0].Client.Open(ctx, tooMuch*f.capacity, stop, func(n int) client.Request {
			tier := []string{"top", "middle", "low", "middle", "low", "middle", "low", "middle", "low", "low"}[n%10] // the top one half of what can be
			return of(tier, n/10%2 == 0)
		})
	})
	err = f.watch(ctx)
	close(stop)
	group.Wait()
	if err != nil {
		return nil, err
	}
	waits, err := f.waits(all)
	if err != nil {
		return nil, err
	}
	return f.figures(all, began, waits), nil
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

// watch reads the router's memory, third by third of the time.
func (f *flood) watch(ctx context.Context) error {
	for range 3 {
		var s trial.Series
		for until := time.Now().Add(f.took / 3); time.Now().Before(until); {
			n, err := f.r.Routers[0].RSS()
			if err != nil {
				return err
			}
			s.Add(float64(n))
			if err := command.Pause(ctx, 250*time.Millisecond); err != nil {
				return err
			}
		}
		f.memory = append(f.memory, s)
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

// figures are those of the overload. The first third of it fills the queue, and does not count as goodput.
func (f *flood) figures(all []history.Client, began time.Time, waits trial.Series) []bench.Figure {
	from, to := began.Add(f.took/3), began.Add(f.took)
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
	name := fmt.Sprintf("F79 %d times too much for %.0f s", tooMuch, f.took.Seconds())
	drift := 100 * (mean(f.memory[2])/mean(f.memory[1]) - 1)
	return []bench.Figure{
		bench.Plain(name+", what can be answered", f.capacity, "/s"),
		bench.AtLeast(name+", answered of what can be", 100*float64(ended(all, from, to))/to.Sub(from).Seconds()/f.capacity, "%", 90),
		bench.AtLeast(name+", top tier answered", 100*float64(topWell)/float64(max(top, 1)), "%", 99),
		bench.AtMost(name+", p99 until a request is refused", 1000*refused.Quantile(0.99), "ms", 50),
		bench.Plain(name+", refused", float64(len(refused)), ""),
		bench.AtMost(name+", refused without a Retry-After from 1 to 60", float64(unsaid), "", 0),
		bench.AtMost(name+", neither answered nor refused", float64(other), "", 0),
		bench.AtMost(name+", longest wait in the queue", waits.Max(), "s", mostWait.Seconds()+0.5),
		bench.AtMost(name+", memory of the last third over that of the second", max(drift, -drift), "%", 10),
	}
}

func mean(s trial.Series) float64 { return s.Sum() / float64(max(len(s), 1)) }
