package client

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

// Make returns the n-th request of a load.
type Make func(n int) Request

// answers collects what came of a load.
type answers struct {
	mu  sync.Mutex // guards all
	all []history.Client
}

func (a *answers) add(c history.Client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, c)
}

// Many asks all requests at once, at most so many beside each other, and returns their answers by their order.
func (c *Client) Many(ctx context.Context, n, together int, of Make) []history.Client {
	all := make([]history.Client, n)
	places := make(chan struct{}, together)
	var group sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		group.Go(func() {
			all[i] = c.Do(ctx, of(i))
			<-places
		})
	}
	group.Wait()
	return all
}

// Closed asks with so many clients, each one request after the other, until stop is closed or ctx ends. Requests that have
// begun are finished.
func (c *Client) Closed(ctx context.Context, clients int, stop <-chan struct{}, of Make) []history.Client {
	var a answers
	var group sync.WaitGroup
	next := make(chan int)
	go func() {
		defer close(next)
		for n := 0; ; n++ {
			select {
			case next <- n:
			case <-stop:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	for range clients {
		group.Go(func() {
			for n := range next {
				a.add(c.Do(ctx, of(n)))
			}
		})
	}
	group.Wait()
	return a.all
}

// Open asks at a rate, however long answers take, until stop is closed or ctx ends. Requests that have begun are finished.
func (c *Client) Open(ctx context.Context, perSecond float64, stop <-chan struct{}, of Make) []history.Client {
	return c.OpenWith(ctx, perSecond, stop, of, Patience{})
}

// Patience is what a client does when it is told to come back later.
type Patience struct {
	// Tries is how often it asks again; 0 never does.
	Tries int
	// Ignores: it comes back after Pause, whatever it was told.
	Ignores bool
	Pause   time.Duration
}

// OpenWith is Open with clients that come back. Each try is a request of its own in the log.
func (c *Client) OpenWith(ctx context.Context, perSecond float64, stop <-chan struct{}, of Make, p Patience) []history.Client {
	var a answers
	var group sync.WaitGroup
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ; n++ {
		timer.Reset(time.Until(began.Add(time.Duration(float64(n) / perSecond * float64(time.Second)))))
		select {
		case <-timer.C:
		case <-stop:
			group.Wait()
			return a.all
		case <-ctx.Done():
			group.Wait()
			return a.all
		}
		group.Go(func() { c.persist(ctx, of(n), p, a.add) })
	}
}

// persist asks, and again as p says.
func (c *Client) persist(ctx context.Context, q Request, p Patience, add func(history.Client)) {
	for try := 0; ; try++ {
		r := c.Do(ctx, q)
		add(r)
		if try >= p.Tries || r.Status != http.StatusTooManyRequests && r.Status != http.StatusServiceUnavailable {
			return
		}
		pause := time.Duration(r.RetryAfter) * time.Second
		if p.Ignores {
			pause = p.Pause
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		q.ID = NewID()
	}
}
