package grpcserver

import (
	"context"
	"time"

	"google.golang.org/grpc"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// The intervals between reports.
const (
	defaultInterval = time.Second
	minInterval     = 100 * time.Millisecond
	maxInterval     = time.Minute
)

func interval(milliseconds uint32) time.Duration {
	if milliseconds == 0 {
		return defaultInterval
	}
	return min(max(time.Duration(milliseconds)*time.Millisecond, minInterval), maxInterval)
}

// Watch sends a report at once, one each interval, one whenever the worker's status changes, and one when its load jumps, for
// which it looks each minInterval: so no more than one in that time is for a jump. What of
// prompts has no room in a report comes in the next one at once. A change just before reports end is told.
func (s *Server) Watch(q *workerv1.WatchRequest, stream grpc.ServerStreamingServer[workerv1.Report]) error {
	ticker, looks := s.clock.NewTicker(interval(q.GetIntervalMilliseconds())), s.clock.NewTicker(minInterval)
	defer ticker.Stop()
	defer looks.Stop()
	var told telling
	for ends := false; ; {
		now, changed := s.worker.Status()
		r, load := report(s.worker.Identity(), now)
		r.Sequence = s.reports.next()
		more := s.prompts(r, now.Engine, &told)
		if err := stream.Send(r); err != nil || ends && !more {
			return err
		}
		if more {
			continue
		}
		if s.due(stream.Context(), ticker.C(), looks.C(), changed, func() bool { return leapt(now, &load) }) {
			continue
		}
		select {
		case <-changed:
			ends = true
		default:
			return stream.Context().Err()
		}
	}
}

// due waits for the next report. It returns false when there is none to come.
func (s *Server) due(ctx context.Context, tick, look <-chan time.Time, changed <-chan struct{}, leapt func() bool) bool {
	for {
		select {
		case <-tick:
			return true
		case <-changed:
			return true
		case <-look:
			if leapt() {
				return true
			}
		case <-s.stop:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// leapt reports whether the load has jumped since told.
func leapt(now Status, told *engine.Stats) bool {
	if now.Engine == nil {
		return false
	}
	load := now.Engine.Stats()
	return jumped(told, &load)
}
