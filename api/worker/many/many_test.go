package many_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ringfleet/ringfleet/api/worker/many"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hang bounds a test that is stuck.
const hang = 60 * time.Second

type out = grpc.ServerStreamingServer[workerv1.GenerateResponse]

// worker serves GenerateMany with run.
type worker struct {
	workerv1.UnimplementedWorkerServer
	stop  chan struct{}
	run   many.One
	ended chan error // what each stream ended with
}

func (w *worker) GenerateMany(s many.Stream) error {
	err := many.Serve(s, w.stop, w.run)
	w.ended <- err
	return err
}

// stream is a caller's side of one.
type stream = grpc.BidiStreamingClient[workerv1.GenerateRequest, workerv1.GenerateResponse]

// open serves run on loopback and opens a stream. The context is the stream's.
func open(t *testing.T, run many.One) (*worker, stream, context.CancelFunc) {
	t.Helper()
	w := &worker{run: run, stop: make(chan struct{}), ended: make(chan error, 10)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.MaxRecvMsgSize(1 << 10))
	workerv1.RegisterWorkerServer(g, w)
	var served sync.WaitGroup
	served.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() { g.Stop(); served.Wait() })
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	s, err := workerv1.NewWorkerClient(conn).GenerateMany(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return w, s, cancel
}

func send(t *testing.T, s stream, attempt string) {
	t.Helper()
	if err := s.Send(&workerv1.GenerateRequest{AttemptId: attempt}); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, s stream) *workerv1.GenerateResponse {
	t.Helper()
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// end expects the end of an attempt, and returns what it ended with.
func end(t *testing.T, s stream, attempt string) error {
	t.Helper()
	e := receive(t, s).GetEnded()
	if e == nil || e.GetAttemptId() != attempt {
		t.Fatalf("there came %v, want the end of %s", e, attempt)
	}
	return many.Err(e)
}

func accepted() *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Accepted{Accepted: &workerv1.Accepted{PromptTokens: 3}}}
}

func TestRequestsFollowOneAnotherOnAStream(t *testing.T) {
	same := accepted() // for all, as a worker may
	w, s, _ := open(t, func(_ *workerv1.GenerateRequest, o out) error { return o.Send(same) })
	for _, id := range []string{"one", "two", "three"} {
		send(t, s, id)
		if a := receive(t, s).GetAccepted(); a.GetAttemptId() != id || a.GetPromptTokens() != 3 {
			t.Errorf("%s is accepted as %v", id, a)
		}
		if err := end(t, s, id); err != nil {
			t.Error(err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	if err := <-w.ended; err != nil {
		t.Errorf("the worker's side ends with %v", err)
	}
	if same.GetAccepted().GetAttemptId() != "" {
		t.Error("what was sent was changed")
	}
}

func TestARequestThatFailsLeavesTheStreamForTheNext(t *testing.T) {
	why, err := status.New(codes.Unavailable, "EOF").WithDetails(&errdetails.ErrorInfo{Reason: workerv1.ReasonEngineLost})
	if err != nil {
		t.Fatal(err)
	}
	_, s, _ := open(t, func(q *workerv1.GenerateRequest, _ out) error {
		switch q.GetAttemptId() {
		case "bad":
			return why.Err()
		case "plain":
			return errors.New("no status")
		case "gone":
			return context.Canceled
		case "bytes":
			return status.Error(codes.Internal, "\xff")
		}
		return nil
	})
	send(t, s, "bad")
	if got, _ := status.FromError(end(t, s, "bad")); got.Code() != codes.Unavailable || got.Message() != "EOF" || len(got.Details()) != 1 {
		t.Errorf("it ends with %v", got)
	}
	send(t, s, "plain")
	if got, _ := status.FromError(end(t, s, "plain")); got.Code() != codes.Unknown || got.Message() != "no status" {
		t.Errorf("it ends with %v", got)
	}
	send(t, s, "gone")
	if got := end(t, s, "gone"); status.Code(got) != codes.Canceled {
		t.Errorf("it ends with %v", got)
	}
	send(t, s, "bytes")
	if got, _ := status.FromError(end(t, s, "bytes")); got.Code() != codes.Internal {
		t.Errorf("it ends with %v", got)
	}
	send(t, s, "good")
	if err := end(t, s, "good"); err != nil {
		t.Errorf("it ends with %v", err)
	}
}

func TestAStreamThatRestsEndsWhenTheWorkerStops(t *testing.T) {
	w, s, _ := open(t, func(*workerv1.GenerateRequest, out) error { return nil })
	send(t, s, "one")
	if err := end(t, s, "one"); err != nil {
		t.Fatal(err)
	}
	close(w.stop)
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("it ends with %v", err)
	}
}

func TestARequestThatRunsWhenTheWorkerStopsComesToItsEnd(t *testing.T) {
	runs, finish := make(chan struct{}), make(chan struct{})
	w, s, _ := open(t, func(_ *workerv1.GenerateRequest, o out) error {
		close(runs)
		<-finish
		return o.Send(accepted())
	})
	send(t, s, "one")
	<-runs
	close(w.stop)
	close(finish)
	if a := receive(t, s).GetAccepted(); a == nil {
		t.Error("its answer did not come")
	}
	if err := end(t, s, "one"); err != nil {
		t.Error(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

func TestTheEndOfTheCallCancelsTheRequestThatRuns(t *testing.T) {
	runs, cancelled := make(chan struct{}), make(chan error, 1)
	w, s, cancel := open(t, func(_ *workerv1.GenerateRequest, o out) error {
		close(runs)
		<-o.Context().Done()
		cancelled <- o.Send(accepted())
		return nil
	})
	send(t, s, "one")
	<-runs
	cancel()
	if err := <-cancelled; status.Code(err) != codes.Canceled {
		t.Errorf("what it sends then ends with %v", err)
	}
	if err := <-w.ended; status.Code(err) != codes.Canceled {
		t.Errorf("the stream ends with %v", err)
	}
}

func TestNothingOfARequestIsSentAfterItsEnd(t *testing.T) {
	var first out
	_, s, _ := open(t, func(q *workerv1.GenerateRequest, o out) error {
		if q.GetAttemptId() == "one" {
			first = o
			return nil
		}
		if err := first.Send(accepted()); status.Code(err) != codes.Canceled {
			t.Errorf("what is late ends with %v", err)
		}
		return nil
	})
	for _, id := range []string{"one", "two"} {
		send(t, s, id)
		if err := end(t, s, id); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatIsSentAheadWaitsAndDoesNotDisturbTheRequestThatRuns(t *testing.T) {
	runs, finish := make(chan struct{}), make(chan struct{})
	_, s, _ := open(t, func(*workerv1.GenerateRequest, out) error {
		close(runs)
		<-finish
		return nil
	})
	send(t, s, "one")
	<-runs
	send(t, s, string(make([]byte, 2<<10))) // more than the worker takes
	close(finish)
	if err := end(t, s, "one"); err != nil {
		t.Error(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the stream ends with %v", err)
	}
}

func TestARequestThatIsTooLargeEndsTheStreamWithThat(t *testing.T) {
	_, s, _ := open(t, func(*workerv1.GenerateRequest, out) error { return nil })
	send(t, s, string(make([]byte, 2<<10)))
	if _, err := s.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("it ends with %v", err)
	}
}

func TestAStatusThatCannotBeReadIsUnknown(t *testing.T) {
	if err := many.Err(&workerv1.Ended{Status: []byte{0xff}}); status.Code(err) != codes.Unknown {
		t.Errorf("it is %v", err)
	}
}
