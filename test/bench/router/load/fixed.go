package load

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Times are what a load has seen.
type Times struct {
	Requests int `json:"requests"`
	// Failed have another status than 200, or none.
	Failed int    `json:"failed"`
	Error  string `json:"error"` // one of the failures
	// Seconds is how long the load took.
	Seconds float64 `json:"seconds"`
	// P50 and P99 are of all answers, in microseconds: from when a request was due.
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// collector gathers times of several connections.
type collector struct {
	mu     sync.Mutex // guards the rest
	took   []time.Duration
	failed int
	why    string
}

func (c *collector) add(took []time.Duration, failed int, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took, c.failed = append(c.took, took...), c.failed+failed
	if why != nil {
		c.why = why.Error()
	}
}

func (c *collector) times(whole time.Duration) Times {
	slices.Sort(c.took)
	return Times{Requests: len(c.took) + c.failed, Failed: c.failed, Error: c.why, Seconds: whole.Seconds(),
		P50: Quantile(c.took, 0.5), P99: Quantile(c.took, 0.99)}
}

// Quantile of sorted times, in microseconds; 0 without any.
func Quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]) / float64(time.Microsecond)
}

// client asks again and again over one connection, which it opens anew when it broke or was closed.
type client struct {
	address string
	request []byte
	c       *conn
}

// once makes one request; it fails for another status than 200.
func (k *client) once(ctx context.Context) error {
	if k.c == nil {
		c, err := dial(ctx, k.address)
		if err != nil {
			return err
		}
		k.c = c
	}
	a, err := k.c.ask(k.request)
	if err != nil || a.closing {
		k.close()
	}
	if err == nil && a.status != 200 {
		err = fmt.Errorf("status %d", a.status)
	}
	return err
}

func (k *client) close() {
	if k.c != nil {
		_ = k.c.Close()
		k.c = nil
	}
}

// Closed asks over conns connections, each as soon as it has its answer, for d.
func Closed(ctx context.Context, t Target, conns int, d time.Duration) Times {
	var all collector
	var group sync.WaitGroup
	began := time.Now()
	for i := range conns {
		group.Go(func() {
			k := client{address: t.Address, request: t.of(i)}
			defer k.close()
			var took []time.Duration
			failed, why := 0, error(nil)
			for ctx.Err() == nil {
				from := time.Now()
				if from.Sub(began) >= d {
					break
				}
				if err := k.once(ctx); err != nil {
					failed, why = failed+1, err
					continue
				}
				took = append(took, time.Since(from))
			}
			all.add(took, failed, why)
		})
	}
	group.Wait()
	return all.times(time.Since(began))
}

// Open asks perSecond times a second for d, over at most conns connections, whatever the server does: a time begins when
// its request was due.
func Open(ctx context.Context, t Target, conns, perSecond int, d time.Duration) Times {
	var all collector
	var group sync.WaitGroup
	due := make(chan time.Time, perSecond*int(d/time.Second+1)) // the pace never waits for a connection
	began := time.Now()
	for i := range conns {
		group.Go(func() {
			k := client{address: t.Address, request: t.of(i)}
			defer k.close()
			var took []time.Duration
			failed, why := 0, error(nil)
			for from := range due {
				if err := k.once(ctx); err != nil {
					failed, why = failed+1, err
					continue
				}
				took = append(took, time.Since(from))
			}
			all.add(took, failed, why)
		})
	}
	pace(ctx, began, time.Second/time.Duration(perSecond), d, due)
	close(due)
	group.Wait()
	return all.times(time.Since(began))
}

// pace sends to due every step, by the clock and not by a timer of the runtime, which may be late by half a millisecond.
func pace(ctx context.Context, began time.Time, step, d time.Duration, due chan<- time.Time) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for at := step; at <= d && ctx.Err() == nil; at += step {
		if wait := time.Until(began.Add(at)); wait > 0 {
			ts := unix.NsecToTimespec(wait.Nanoseconds())
			_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, nil) // a signal only makes it shorter
		}
		due <- began.Add(at)
	}
}
