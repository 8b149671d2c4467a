package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hang is how long a test waits for what must come; it only ends tests that would never end.
const hang = 60 * time.Second

// out is what a fake worker writes its answer to.
type out = grpc.ServerStreamingServer[workerv1.GenerateResponse]

// fakeWorker answers Generate on loopback as its script says.
type fakeWorker struct {
	workerv1.UnimplementedWorkerServer
	placement.Worker
	server *grpc.Server
	serve  sync.WaitGroup

	mu     sync.Mutex
	script func(*workerv1.GenerateRequest, out) error
	calls  []*workerv1.GenerateRequest
	embed  func(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error)
	asked  []*workerv1.EmbedRequest
	ends   chan error // of each call: its context's error when the script was done
}

func (w *fakeWorker) Generate(r *workerv1.GenerateRequest, o out) error {
	w.mu.Lock()
	w.calls = append(w.calls, r)
	script := w.script
	w.mu.Unlock()
	err := script(r, o)
	w.ends <- o.Context().Err()
	return err
}

func (w *fakeWorker) seen() []*workerv1.GenerateRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func (w *fakeWorker) Embed(ctx context.Context, r *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	w.mu.Lock()
	w.asked = append(w.asked, r)
	embed := w.embed
	w.mu.Unlock()
	out, err := embed(ctx, r)
	w.ends <- ctx.Err()
	return out, err
}

func (w *fakeWorker) embedded() []*workerv1.EmbedRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

// kill closes the listener and every connection, as the end of the process does.
func (w *fakeWorker) kill() { w.server.Stop() }

// fleet is some workers of the model uid-1, in the order in which they are asked for the key.
type fleet struct {
	*Client
	board   placement.Board
	clock   *clocktesting.FakeClock
	workers []*fakeWorker

	mu       sync.Mutex
	suspects []string
	retries  []Retry
}

var key = []byte("session-1")

// newFleet starts n workers that all answer by script.
func newFleet(t *testing.T, n int, script func(*workerv1.GenerateRequest, out) error) *fleet {
	t.Helper()
	f := &fleet{clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	f.build(t, n, f.clock, script)
	return f
}

func (f *fleet) build(t *testing.T, n int, c clock.WithDelayedExecution, script func(*workerv1.GenerateRequest, out) error) {
	t.Helper()
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w := &fakeWorker{script: script, server: grpc.NewServer(), ends: make(chan error, 1000)}
		w.Worker = placement.Worker{
			Pod: "w" + strconv.Itoa(i), Address: l.Addr().String(), Instance: fmt.Sprintf("w%d-a", i), Revision: "r1",
			Loaded: true, InRing: true,
		}
		workerv1.RegisterWorkerServer(w.server, w)
		w.serve.Go(func() { _ = w.server.Serve(l) })
		t.Cleanup(func() { w.server.Stop(); w.serve.Wait() })
		f.workers = append(f.workers, w)
	}
	f.publish()
	var order []*fakeWorker
	var tried []string
	for range n {
		next, err := f.board.Place("uid-1", key, tried...)
		if err != nil {
			t.Fatal(err)
		}
		tried = append(tried, next.Pod)
		i := slices.IndexFunc(f.workers, func(w *fakeWorker) bool { return w.Pod == next.Pod })
		order = append(order, f.workers[i])
	}
	f.workers = order
	f.Client = New(Options{
		Credentials: insecure.NewCredentials(), Placer: &f.board, Clock: c,
		Suspect: func(pod, instance string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.suspects = append(f.suspects, pod+" "+instance)
		},
		Retried: func(r Retry) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.retries = append(f.retries, r)
		},
	})
	t.Cleanup(f.Close)
}

func (f *fleet) publish() {
	var all []placement.Worker
	for _, w := range f.workers {
		all = append(all, w.Worker)
	}
	f.board.Set(map[string][]placement.Worker{"uid-1": all}, 150)
}

func (f *fleet) suspected(w *fakeWorker) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.suspects, w.Pod+" "+w.Instance)
}

// expectRetry holds that one retry was told, from the first worker to the second.
func (f *fleet) expectRetry(t *testing.T, why error) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	want := []Retry{{ModelUID: "uid-1", RequestID: "req-1", From: f.workers[0].Pod, To: f.workers[1].Pod, Why: why.Error()}}
	if !slices.Equal(f.retries, want) {
		t.Errorf("told of %+v, want %+v", f.retries, want)
	}
}

func request() Request {
	return Request{
		ModelUID: "uid-1", Key: key, RequestID: "req-1",
		Proto:     &workerv1.GenerateRequest{MaxTokens: 7, Stop: []string{"\n"}},
		FirstByte: 2 * time.Minute, Idle: time.Minute,
	}
}

func accepted() *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Accepted{Accepted: &workerv1.Accepted{PromptTokens: 5}}}
}

func delta(text string) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{Text: text}}}
}

func finish() *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Finish{Finish: &workerv1.Finish{
		Reason: workerv1.FinishReason_FINISH_REASON_STOP,
	}}}
}

// answer sends events and ends the call with err.
func answer(err error, events ...*workerv1.GenerateResponse) func(*workerv1.GenerateRequest, out) error {
	return func(_ *workerv1.GenerateRequest, o out) error {
		for _, e := range events {
			if err := o.Send(e); err != nil {
				return err
			}
		}
		return err
	}
}

// hold sends events and then waits until the call is cancelled.
func hold(events ...*workerv1.GenerateResponse) func(*workerv1.GenerateRequest, out) error {
	return func(r *workerv1.GenerateRequest, o out) error {
		if err := answer(nil, events...)(r, o); err != nil {
			return err
		}
		<-o.Context().Done()
		return o.Context().Err()
	}
}

var whole = answer(nil, accepted(), delta("a"), delta("b"), finish())

// drain reads s to its end and returns the text, whether it finished, and what ended it.
func drain(s *Stream) (text string, finished bool, err error) {
	for {
		e, err := s.Next()
		if err != nil {
			return text, finished, err
		}
		text += e.GetDelta().GetText()
		finished = finished || e.GetFinish() != nil
	}
}

// ended waits until a call on w has ended, and returns its context's error at that time.
func (w *fakeWorker) ended(t *testing.T) error {
	t.Helper()
	select {
	case err := <-w.ends:
		return err
	case <-time.After(hang):
		t.Fatalf("the call on %s never ended", w.Pod)
		return nil
	}
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hang); !cond(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never %s", what)
		}
	}
}

// generate calls Generate and expects a whole answer from w.
func (f *fleet) expectWhole(t *testing.T, ctx context.Context, w *fakeWorker) {
	t.Helper()
	s, err := f.Generate(ctx, request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Worker() != w.Pod {
		t.Errorf("%s answers, want %s", s.Worker(), w.Pod)
	}
	if text, finished, err := drain(s); text != "ab" || !finished || !errors.Is(err, io.EOF) {
		t.Errorf("got %q, finished %v, %v", text, finished, err)
	}
}
