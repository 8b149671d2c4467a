package agent

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/ringfleet/ringfleet/worker/grpcserver"
)

const (
	// notice is the least time between reporting draining and being gone: two heartbeats, so that every router has
	// heard it.
	notice = 2 * time.Second
	// flush is how long the last answers may take to leave.
	flush = 5 * time.Second
)

// drain refuses new requests, says so, and waits for those inside, up to the drain timeout. A worker that never loaded
// has nothing to wait for: no router sends it anything. An error that ends the process otherwise ends the drain, and is
// returned.
func (a *agent) drain() error {
	a.state.Drain()
	now, _ := a.state.Status()
	if now.Engine == nil {
		return a.trouble()
	}
	inside := now.Engine.Stats()
	a.log.Info("The worker drains", "running", inside.Running, "waiting", inside.Waiting, "timeout", a.o.DrainTimeout.String())
	heard := a.clock.After(notice)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timeout := a.clock.NewTimer(a.o.DrainTimeout)
	defer timeout.Stop()
	done := make(chan error, 1)
	go func() { done <- now.Engine.Drain(ctx) }()
	select {
	case err := <-a.failure:
		return err
	case err := <-done:
		a.log.Info("All requests have ended", "error", err)
	case <-timeout.C():
		cancel()
		err := <-done
		left := now.Engine.Stats()
		a.log.Info("The drain timeout is over; requests that still run are ended", "error", err, "running", left.Running, "waiting", left.Waiting)
	}
	select {
	case err := <-a.failure:
		return err
	case <-heard:
		return a.trouble()
	}
}

// stopGRPC ends what has no end of its own, lets the last answers leave, and closes every connection.
func (a *agent) stopGRPC(server *grpc.Server, service *grpcserver.Server) {
	service.StopStreams()
	done := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-a.clock.After(flush):
		server.Stop()
		<-done
	}
}
