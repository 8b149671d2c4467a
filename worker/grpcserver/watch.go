package grpcserver

import (
	"time"

	"google.golang.org/grpc"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
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

// Watch sends a report at once, one each interval, and one whenever the worker's status changes.
func (s *Server) Watch(q *workerv1.WatchRequest, stream grpc.ServerStreamingServer[workerv1.Report]) error {
	ticker := s.clock.NewTicker(interval(q.GetIntervalMilliseconds()))
	defer ticker.Stop()
	for {
		now, changed := s.worker.Status()
		r := report(s.worker.Identity(), now)
		r.Sequence = s.reports.next()
		if err := stream.Send(r); err != nil {
			return err
		}
		select {
		case <-ticker.C():
		case <-changed:
		case <-s.stop:
			return nil
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
