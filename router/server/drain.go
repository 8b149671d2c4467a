package server

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ringfleet/ringfleet/router/gateway"
)

// lastWords is the time in which requests that outlive the drain get their error.
const lastWords = 10 * time.Second

// drain ends the router's work without cutting any that can be finished. Readiness fails at once, but for a while new
// requests are still served, since not everybody knows yet; their connections are not kept. Then the listener closes.
// Running requests may go on until the drain's deadline; those that are left then get one error. Connections that are open
// and idle stay until the last request has ended: one that is closed just as its client asks for something costs that request.
func (r *router) drain() {
	began := r.clock.Now()
	r.ops.draining.Store(true)
	r.gateway.Drain()
	r.log.Info("the router drains", "settle", r.options.DrainSettle.String(), "timeout", r.options.DrainTimeout.String())
	settled := make(chan struct{})
	r.clock.AfterFunc(r.options.DrainSettle, func() { close(settled) })
	<-settled

	_ = r.listeners[0].Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	late := r.clock.AfterFunc(max(r.options.DrainTimeout-r.clock.Since(began), 0), cancel)
	err := r.running.wait(ctx)
	if err == nil {
		err = r.http.Shutdown(ctx)
	}
	late.Stop()
	if err != nil {
		r.log.Info("requests outlive the drain and are ended", "timeout", r.options.DrainTimeout.String())
		r.endRequests(gateway.ErrShutdown)
		words, stop := context.WithTimeout(context.Background(), lastWords)
		defer stop()
		_ = r.http.Shutdown(words) // close ends what is left
	}
	r.log.Info("the router is drained", "took", r.clock.Since(began).String())
}

// running counts the requests that run.
type running struct {
	n    atomic.Int64
	none chan struct{} // holds a token when there were none
}

func newRunning() *running { return &running{none: make(chan struct{}, 1)} }

// counted counts the requests to next.
func (c *running) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.n.Add(1)
		defer func() {
			if c.n.Add(-1) == 0 {
				select {
				case c.none <- struct{}{}:
				default:
				}
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// wait waits until none runs. Its error is that of ctx, where that ends before.
func (c *running) wait(ctx context.Context) error {
	for c.n.Load() > 0 {
		select {
		case <-c.none:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
