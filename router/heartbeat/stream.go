package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// What a connection for reports may take, in bytes. Reports are few and small: with a fixed window no ping is sent to measure
// the line each time that one comes, and a small buffer is enough.
const (
	// maxReport is the longest report that is read.
	maxReport    = 1 << 20
	reportWindow = 64 << 10
	reportBuffer = 4 << 10
)

// event is a report, or why there will be none.
type event struct {
	report *workerv1.Report
	err    error
}

// open starts a stream on a connection of its own: after a partition, a connection that was there before may stay
// silent much longer than a new one takes. stop ends it and waits for its reader.
func (w *watcher) open(interval time.Duration) (events <-chan event, stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	out := make(chan event)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := read(ctx, w.address, interval, w.table.options, out)
		select {
		case out <- event{err: err}:
		case <-ctx.Done():
		}
	}()
	return out, func() { cancel(); <-done }
}

// read sends every report of a new stream to out, until the stream or ctx ends.
func read(ctx context.Context, address string, interval time.Duration, o Options, out chan<- event) error {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(o.Credentials),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithStaticStreamWindowSize(reportWindow), grpc.WithStaticConnWindowSize(reportWindow),
		grpc.WithReadBufferSize(reportBuffer),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReport)))
	if err != nil {
		return fmt.Errorf("watch %s: %w", address, err)
	}
	defer func() { _ = conn.Close() }()
	stream, err := workerv1.NewWorkerClient(conn).Watch(ctx, &workerv1.WatchRequest{
		IntervalMilliseconds: uint32(interval.Milliseconds()),
	})
	for err == nil {
		var r *workerv1.Report
		if r, err = stream.Recv(); err == nil {
			select {
			case out <- event{report: r}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return err
}

// explain is the one line that people see.
func explain(err error) string {
	if errors.Is(err, io.EOF) {
		return "the worker ended the stream of reports"
	}
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}
