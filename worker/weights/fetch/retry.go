package fetch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/weights/source"
)

// Bounds of retries.
const (
	tries     = 6 // in a row without progress
	firstWait = time.Second
	mostWait  = 30 * time.Second
	mostAsked = 5 * time.Minute // that a source may ask for; one that asks for more gives up the try
	stall     = time.Minute     // without a byte
)

// retry repeats what may succeed later. One is shared by all requests of an Ensure: a source that says "too many requests"
// says so to all of them.
type retry struct {
	clock clock.WithTicker
	note  func(string)

	mu     sync.Mutex // guards the rest
	random *rand.Rand
	until  time.Time // no request before
}

// do calls f until it succeeds, fails for good, or has failed too often in a row. f returns whether it got anywhere, which
// begins the count anew.
func (r *retry) do(ctx context.Context, f func(context.Context) (progress bool, err error)) error {
	for failures := 0; ; {
		if err := r.pause(ctx); err != nil {
			return err
		}
		progress, err := f(ctx)
		if progress {
			failures = 0
		}
		var bad *source.Error
		switch {
		case err == nil:
			if failures > 0 {
				r.note("")
			}
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.As(err, &bad) || !bad.Temporary():
			return err
		}
		failures++
		if failures >= tries {
			return &source.Error{Kind: bad.Kind, Says: fmt.Sprintf("%s; this was try %d", bad.Says, failures)}
		}
		if bad.After > mostAsked {
			return &source.Error{Kind: bad.Kind, Says: fmt.Sprintf("%s, and asks to wait for %s", bad.Says, bad.After)}
		}
		wait := r.next(failures, bad)
		r.note(fmt.Sprintf("%s; the next try is in %s", bad.Says, wait.Round(time.Second)))
		if bad.Kind == source.Limited {
			continue // pause waits, and for all
		}
		if err := sleep(ctx, r.clock, wait); err != nil {
			return err
		}
	}
}

// next returns how long to wait after so many failures: exponentially more, half of it random, so that workers that failed
// together don't come back together. What the source asked for is the least.
func (r *retry) next(failures int, bad *source.Error) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := min(firstWait<<(failures-1), mostWait)
	wait = wait/2 + time.Duration(r.random.Int64N(int64(wait/2)+1))
	wait = max(wait, bad.After)
	if bad.After > 0 {
		wait += time.Duration(r.random.Int64N(int64(bad.After)/5 + 1))
	}
	if until := r.clock.Now().Add(wait); bad.Kind == source.Limited && until.After(r.until) {
		r.until = until
	}
	return wait
}

// pause waits while the source wants no requests.
func (r *retry) pause(ctx context.Context) error {
	for {
		r.mu.Lock()
		left := r.until.Sub(r.clock.Now())
		r.mu.Unlock()
		if left <= 0 {
			return ctx.Err()
		}
		if err := sleep(ctx, r.clock, left); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, c clock.WithTicker, d time.Duration) error {
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
