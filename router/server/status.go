package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	routerv1 "github.com/ringfleet/ringfleet/api/router/v1"
	"github.com/ringfleet/ringfleet/router/heartbeat"
)

// statusServer tells the manager what this router knows.
type statusServer struct {
	routerv1.UnimplementedRouterServer
	fleet *fleet
	clock clock.WithTicker
	name  string
}

// Status is routerv1.RouterServer's.
func (s *statusServer) Status(context.Context, *routerv1.StatusRequest) (*routerv1.StatusResponse, error) {
	workers := s.fleet.table.Workers()
	inFlight := s.fleet.calls.InFlight()
	f := s.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &routerv1.StatusResponse{Router: s.name, Synced: !f.synced.IsZero()}
	for _, m := range f.models {
		waiting := f.gate.Stats(m.UID)
		status := &routerv1.ModelStatus{ModelUid: m.UID, Model: m.Name,
			Queued: uint32(waiting.Queued), Held: uint32(waiting.Held), QueuedTokens: uint64(waiting.Tokens), Wakes: waiting.Wakes}
		if v := f.board.View(m.UID); v != nil {
			status.RingVersion = v.RingVersion()
		}
		for _, w := range workers {
			if w.ModelUID == m.UID {
				status.Workers = append(status.Workers, s.worker(w, inFlight[w.Pod]))
			}
		}
		out.Models = append(out.Models, status)
	}
	return out, nil
}

// again is how often a caller is told of a model that requests still wait for.
const again = time.Second

// WatchWakes is routerv1.RouterServer's.
func (s *statusServer) WatchWakes(_ *routerv1.WatchWakesRequest, to grpc.ServerStreamingServer[routerv1.Wake]) error {
	tick := s.clock.NewTicker(again)
	defer tick.Stop()
	for {
		rung := s.fleet.woken.listen()
		for _, m := range s.fleet.served() {
			if st := s.fleet.gate.Stats(m.UID); st.Held > 0 {
				if err := to.Send(&routerv1.Wake{ModelUid: m.UID, Wakes: st.Wakes}); err != nil {
					return err
				}
			}
		}
		select {
		case <-rung:
		case <-tick.C():
		case <-to.Context().Done():
			return nil
		}
	}
}

func (s *statusServer) worker(w heartbeat.Worker, inFlight uint32) *routerv1.WorkerStatus {
	out := &routerv1.WorkerStatus{
		PodName: w.Pod, PodUid: w.PodUID, Address: w.Address, InRing: w.State == heartbeat.Up,
		Health: routerv1.Health_HEALTH_DOWN, Report: w.Report, InFlight: inFlight, LastError: w.LastError,
		Ejected: w.Ejected, Anomaly: w.Anomaly,
	}
	if out.InRing {
		out.Health = routerv1.Health_HEALTH_UP
	}
	if w.Report != nil {
		out.ReportAgeMilliseconds = uint64(max(s.fleet.clock.Since(w.ReportedAt).Milliseconds(), 0))
	}
	return out
}
