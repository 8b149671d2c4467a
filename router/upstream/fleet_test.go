package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/api/worker/many"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
)

// lanes says whether the workers of tests serve GenerateMany.
var lanes bool

// TestMain runs every test twice: with a call for each request, and with lanes.
func TestMain(m *testing.M) { goleak.VerifyTestMain(both{m}) }

type both struct{ *testing.M }

func (b both) Run() int {
	worst := 0
	for _, lanes = range []bool{false, true} {
		fmt.Printf("with lanes: %t\n", lanes)
		worst = max(worst, b.M.Run())
	}
	return worst
}

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
	stop   chan struct{} // ends the lanes that rest; set before the first call

	mu     sync.Mutex
	script func(*workerv1.GenerateRequest, out) error
	calls  []*workerv1.GenerateRequest
	embed  func(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error)
	asked  []*workerv1.EmbedRequest
	ends   chan error // of each call: its context's error when the script was done
	mute   bool       // nothing is kept of calls; set before the first
}

func (w *fakeWorker) Generate(r *workerv1.GenerateRequest, o out) error {
	if w.mute {
		return w.script(r, o)
	}
	w.mu.Lock()
	w.calls = append(w.calls, r)
	script := w.script
	w.mu.Unlock()
	err := script(r, o)
	w.ends <- o.Context().Err()
	return err
}

func (w *fakeWorker) GenerateMany(s many.Stream) error { return many.Serve(s, w.stop, w.Generate) }

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
	board   *placement.Board
	clock   *clocktesting.FakeClock
	workers []*fakeWorker
	serving []grpc.ServerOption              // of the workers; set before build
	creds   credentials.TransportCredentials // of the client; set before build, else insecure ones

	mu          sync.Mutex
	suspects    []string
	outcomes    []string
	measures    []Measure
	retries     []Retry
	resumes     []Retry
	quarantines []Quarantine
	forgot      []string
	tickets     []*recorded
}

// recorded is a ticket, and what it was told.
type recorded struct {
	ticket
	fleet  *fleet
	told   []string // guarded by fleet.mu
	result placement.Result
}

func (r *recorded) tell(what string) {
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	r.told = append(r.told, what)
}

func (r *recorded) Numbered(n uint64) { r.ticket.Numbered(n) }

func (r *recorded) Accepted(promptTokens uint32, now time.Time) {
	r.tell("accepted")
	r.ticket.Accepted(promptTokens, now)
}

func (r *recorded) FirstToken(now time.Time) {
	r.tell("first token")
	r.ticket.FirstToken(now)
}

func (r *recorded) Ended(result placement.Result, now time.Time) {
	r.tell("ended")
	r.result = result
	r.ticket.Ended(result, now)
}

var key = []byte("session-1")

// newFleet starts n workers that all answer by script.
func newFleet(t testing.TB, n int, script func(*workerv1.GenerateRequest, out) error) *fleet {
	t.Helper()
	f := &fleet{clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	f.build(t, n, f.clock, script)
	return f
}

func (f *fleet) build(t testing.TB, n int, c clock.WithDelayedExecution, script func(*workerv1.GenerateRequest, out) error) {
	t.Helper()
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w := &fakeWorker{script: script, server: grpc.NewServer(f.serving...), ends: make(chan error, 1000)}
		w.Worker = placement.Worker{
			Pod: "w" + strconv.Itoa(i), Address: l.Addr().String(), Instance: fmt.Sprintf("w%d-a", i), Revision: "r1",
			Loaded: true, InRing: true, Resumes: true,
		}
		workerv1.RegisterWorkerServer(w.server, w)
		w.serve.Go(func() { _ = w.server.Serve(l) })
		t.Cleanup(func() { w.server.Stop(); w.serve.Wait() })
		f.workers = append(f.workers, w)
	}
	f.board = placement.NewBoard(placement.Options{Policy: hashed(t), MaxLoadPercent: 1e6})
	f.publish(c.Now())
	defer f.sync(func(int, *Worker) {})
	f.sort(t, c.Now())
	if f.creds == nil {
		f.creds = insecure.NewCredentials()
	}
	list := func(add func()) {
		f.mu.Lock()
		defer f.mu.Unlock()
		add()
	}
	f.Client = New(Options{
		Credentials: f.creds, Placer: f.board, Clock: c,
		Suspect: func(pod, instance string) { list(func() { f.suspects = append(f.suspects, pod+" "+instance) }) },
		Outcome: func(pod, _ string, o Outcome) {
			list(func() { f.outcomes = append(f.outcomes, pod+[...]string{"", " good", " failed", " no first byte"}[o]) })
		},
		Measured:    func(_, _ string, m Measure) { list(func() { f.measures = append(f.measures, m) }) },
		Retried:     func(r Retry) { list(func() { f.retries = append(f.retries, r) }) },
		Resumed:     func(r Retry) { list(func() { f.resumes = append(f.resumes, r) }) },
		Quarantined: func(q Quarantine) { list(func() { f.quarantines = append(f.quarantines, q) }) },
	})
	place := f.place
	f.place = func(q *placement.Request, now time.Time) (ticket, error) {
		t, err := place(q, now)
		if err != nil {
			return nil, err
		}
		return f.record(t), nil
	}
	t.Cleanup(func() { f.checkRest(t) })
	t.Cleanup(f.Close)
}

// hashed places requests on the ring's walk from their keys, whatever the load.
func hashed(t testing.TB) placement.Policy {
	t.Helper()
	p, ok := placement.ByName("ConsistentHash")
	if !ok {
		t.Fatal("there is no policy ConsistentHash")
	}
	return p
}

func (f *fleet) record(t ticket) *recorded {
	r := &recorded{ticket: t, fleet: f}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tickets = append(f.tickets, r)
	return r
}

// sort brings the workers into the order in which they are asked for the key.
func (f *fleet) sort(t testing.TB, now time.Time) {
	t.Helper()
	var order []*fakeWorker
	q := placement.Request{ModelUID: "uid-1", RequestID: "order", Key: key}
	for range f.workers {
		next, err := f.board.Place(&q, now)
		if err != nil {
			t.Fatal(err)
		}
		next.Ended(placement.Result{}, now)
		pod := next.Worker().Pod
		q.Exclude = append(q.Exclude, placement.Process{Pod: pod})
		order = append(order, f.workers[slices.IndexFunc(f.workers, func(w *fakeWorker) bool { return w.Pod == pod })])
	}
	f.workers = order
}

// checkRest holds that when all is over, every place was given back once, and nothing is counted.
func (f *fleet) checkRest(t testing.TB) {
	t.Helper()
	f.Client.mu.Lock()
	if b := f.budget; b.active != 0 || b.retries != 0 {
		t.Errorf("%d calls and %d paid retries are counted in the end", b.active, b.retries)
	}
	f.Client.mu.Unlock()
	if n := f.Kept(); n != 0 {
		t.Errorf("%d bytes of answers are kept in the end", n)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.tickets {
		told := strings.Join(r.told, ", ")
		switch told {
		case "ended", "accepted, ended", "accepted, first token, ended", "first token, ended":
		default:
			t.Errorf("the ticket for %s was told %s", r.Worker().Pod, told)
		}
	}
}

func (f *fleet) publish(now time.Time) {
	var all []placement.Worker
	for _, w := range f.workers {
		all = append(all, w.Worker)
	}
	f.board.Set(map[string][]placement.Worker{"uid-1": all}, 150, now)
}

// sync tells the client of the workers, each as change makes it.
func (f *fleet) sync(change func(i int, w *Worker)) {
	var all []Worker
	for i, w := range f.workers {
		told := Worker{Pod: w.Pod, Instance: w.Instance, Address: w.Address, Many: lanes}
		change(i, &told)
		all = append(all, told)
	}
	f.Sync(all)
}

// lose tells the client that some workers are lost, and that the others are there.
func (f *fleet) lose(which ...int) {
	f.sync(func(i int, w *Worker) { w.Lost = slices.Contains(which, i) })
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
		Place:     placement.Request{ModelUID: "uid-1", RequestID: "req-1", Key: key},
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

// engineGone is what a worker says when the engine beside it was lost at work.
func engineGone(t testing.TB) error {
	t.Helper()
	s, err := status.New(codes.Unavailable, "EOF").WithDetails(&errdetails.ErrorInfo{Reason: workerv1.ReasonEngineLost})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

// stay sends events and then waits until the call is cancelled.
func stay(events ...*workerv1.GenerateResponse) func(*workerv1.GenerateRequest, out) error {
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
