package server

import (
	"context"
	"time"

	"github.com/ringfleet/ringfleet/router/gateway"
)

// lastWords is the time in which requests that outlive the drain get their error.
const lastWords = 10 * time.Second

// drain ends the router's work without cutting any that can be finished. Readiness fails at once, but for a while new
// requests are still served, since not everybody knows yet; their connections are not kept. Then the listener closes.
// Running requests may go on until the drain's deadline; those that are left then get one error.
func (r *router) drain() {
	began := r.clock.Now()
	r.ops.draining.Store(true)
	r.gateway.Drain()
	r.log.Info("the router drains", "settle", r.options.DrainSettle.String(), "timeout", r.options.DrainTimeout.String())
	settled := make(chan struct{})
	r.clock.AfterFunc(r.options.DrainSettle, func() { close(settled) })
	<-settled

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	late := r.clock.AfterFunc(max(r.options.DrainTimeout-r.clock.Since(began), 0), cancel)
	err := r.http.Shutdown(ctx)
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
