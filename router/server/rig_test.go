package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/api/identity"
	"github.com/ringfleet/ringfleet/api/identity/identitytest"
	"github.com/ringfleet/ringfleet/api/worker/many"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hangs bounds what would otherwise never end.
const hangs = 60 * time.Second

// authority issues the certificates of a fleet.
type authority struct {
	t  *testing.T
	of *identitytest.Authority
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	of, err := identitytest.New()
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t: t, of: of}
}

// folder returns a folder of credentials, as a Secret mounts it.
func (a *authority) folder(id identity.ID) string {
	a.t.Helper()
	dir := a.t.TempDir()
	if err := a.of.Folder(dir, id); err != nil {
		a.t.Fatal(err)
	}
	return dir
}

// as returns credentials of a role in namespace ns for its client or server side.
func (a *authority) as(role identity.Role, side func(dir string) (credentials.TransportCredentials, func(), error)) credentials.TransportCredentials {
	a.t.Helper()
	creds, end, err := side(a.folder(identity.ID{Namespace: "ns", Role: role}))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(end)
	return creds
}

func serverSide(dir string) (credentials.TransportCredentials, func(), error) {
	p, err := identity.Files(dir)
	if err != nil {
		return nil, nil, err
	}
	c, err := identity.ServerCredentials(p, identity.In("ns", identity.Router))
	return c, p.Close, err
}

func clientSide(dir string) (credentials.TransportCredentials, func(), error) {
	p, err := identity.Files(dir)
	if err != nil {
		return nil, nil, err
	}
	c, err := identity.ClientCredentials(p, identity.In("ns", identity.Router))
	return c, p.Close, err
}

// fakeWorker reports that it has loaded its model, and answers "Hello" once it may.
type fakeWorker struct {
	workerv1.UnimplementedWorkerServer
	name, address string
	mayAnswer     <-chan struct{}
	single        atomic.Bool  // it reports that it takes calls of Generate only
	streams       atomic.Int32 // calls of GenerateMany

	mu    sync.Mutex
	calls []*workerv1.GenerateRequest
	embed func(*workerv1.EmbedRequest) (*workerv1.EmbedResponse, error)
	fails func() error // nil: never
	load  *workerv1.Load
	stop  func() // ends the process
}

func (w *fakeWorker) Watch(r *workerv1.WatchRequest, s grpc.ServerStreamingServer[workerv1.Report]) error {
	tick := time.NewTicker(time.Duration(r.GetIntervalMilliseconds()) * time.Millisecond)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		w.mu.Lock()
		load := w.load
		w.mu.Unlock()
		if err := s.Send(&workerv1.Report{InstanceId: w.name + "-a", Model: "m", ModelUid: "uid-m", Revision: "r1", PodName: w.name,
			PodUid: w.name + "-uid", ModelLoaded: true, Stage: workerv1.Stage_STAGE_LOADED, Sequence: n, Resumes: true, GeneratesMany: !w.single.Load(), Load: load}); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-s.Context().Done():
			return nil
		}
	}
}

func (w *fakeWorker) GenerateMany(s many.Stream) error {
	w.streams.Add(1)
	return many.Serve(s, nil, w.Generate)
}

func (w *fakeWorker) Generate(r *workerv1.GenerateRequest, s grpc.ServerStreamingServer[workerv1.GenerateResponse]) error {
	w.mu.Lock()
	w.calls = append(w.calls, r)
	fails := w.fails
	w.mu.Unlock()
	if fails != nil {
		if err := fails(); err != nil {
			return err
		}
	}
	send := func(e *workerv1.GenerateResponse) { _ = s.Send(e) }
	send(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Accepted{Accepted: &workerv1.Accepted{PromptTokens: 4}}})
	if len(r.GetResumeTokens()) == 0 {
		send(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{Text: "Hel", Tokens: []uint32{1}}}})
	}
	select {
	case <-w.mayAnswer:
	case <-s.Context().Done():
		return s.Context().Err()
	}
	send(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{Text: "lo", Tokens: []uint32{2}}}})
	send(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Finish{Finish: &workerv1.Finish{
		Reason: workerv1.FinishReason_FINISH_REASON_LENGTH, Usage: &workerv1.Usage{PromptTokens: 4, CompletionTokens: 2}}}})
	return nil
}

func (w *fakeWorker) Embed(_ context.Context, r *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.embed(r)
}

func (w *fakeWorker) seen() []*workerv1.GenerateRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*workerv1.GenerateRequest(nil), w.calls...)
}

// states is a source.
type states chan discovery.State

func (s states) Run(ctx context.Context, tell func(discovery.State)) error {
	for {
		select {
		case state := <-s:
			tell(state)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rig is a running router with two workers.
type rig struct {
	*router
	t       *testing.T
	ca      *authority
	states  states
	workers []*fakeWorker
	answer  chan struct{}           // close it and the workers finish their answers
	clock   *clocktesting.FakeClock // of the drain, where it isn't nil
	stop    context.CancelFunc
	ended   chan error
	written *testLog
}

// start runs a router. It is stopped and waited for at the end of the test.
func start(t *testing.T, change func(*Options)) *rig { return startWith(t, nil, change) }

// startWith runs a router that drains by a clock of its own, unless that is nil.
func startWith(t *testing.T, c *clocktesting.FakeClock, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, clock: c, ca: newAuthority(t), states: make(states), answer: make(chan struct{})}
	for i := range 2 {
		r.worker(fmt.Sprintf("w-%d", i))
	}
	r.launch(surroundings{source: r.states}, change)
	return r
}

// launch runs the router.
func (r *rig) launch(around surroundings, change func(*Options)) {
	r.t.Helper()
	o := Defaults()
	o.Namespace, o.PodName = "ns", "router-0"
	o.HTTPAddress, o.GRPCAddress, o.OpsAddress = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	o.TLSDir = r.ca.folder(identity.ID{Namespace: "ns", Role: identity.Router})
	o.DrainSettle, o.DrainTimeout, o.MaxBodyBytes = 0, hangs, 1<<20
	change(&o)
	ctx, stop := context.WithCancel(context.Background())
	r.stop, r.ended = stop, make(chan error, 1)
	started := make(chan *router, 1)
	around.started = func(x *router) {
		if r.clock != nil {
			x.clock = r.clock
		}
		started <- x
	}
	r.written = &testLog{t: r.t}
	log := slog.New(slog.NewTextHandler(r.written, nil))
	go func() { r.ended <- run(ctx, o, log, around) }()
	select {
	case r.router = <-started:
	case err := <-r.ended:
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		stop()
		r.wait()
		http.DefaultClient.CloseIdleConnections()
	})
}

// testLog keeps what the router logs for a test that fails.
type testLog struct {
	t  *testing.T
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() == 0 {
		l.t.Cleanup(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.t.Failed() {
				l.t.Log(l.b.String())
			}
		})
	}
	return l.b.Write(p)
}

func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// wait waits for the router's end and keeps its error for the next caller.
func (r *rig) wait() error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		r.ended <- err
		return err
	case <-time.After(hangs):
		r.t.Fatal("hangs: the router's end")
		return nil
	}
}

func (r *rig) worker(name string) {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	w := &fakeWorker{name: name, address: l.Addr().String(), mayAnswer: r.answer}
	s := grpc.NewServer(grpc.Creds(r.ca.as(identity.Worker, serverSide)), asWorkersPing)
	workerv1.RegisterWorkerServer(s, w)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	w.stop = s.Stop
	r.t.Cleanup(func() { s.Stop(); <-done })
	r.workers = append(r.workers, w)
}

// fleetState is the cluster with model m and both workers.
func (r *rig) fleetState() discovery.State {
	m := discovery.Model{UID: "uid-m", Object: "m", Name: "m", ServedNames: []string{"m", "alias/of-m", "tuned"}, Adapters: []string{"tuned"}, Created: time.Unix(1e9, 0)}
	for _, w := range r.workers {
		m.Candidates = append(m.Candidates, discovery.Candidate{PodName: w.name, PodUID: w.name + "-uid", Address: w.address})
	}
	s := discovery.State{Synced: true, Models: []discovery.Model{m}, Settings: discovery.DefaultSettings()}
	s.Settings.Heartbeat.Interval, s.Settings.Heartbeat.Timeout = 100*time.Millisecond, hangs // a busy machine is no dead worker
	return s
}

func (r *rig) url(listener int, path string) string {
	return "http://" + r.listeners[listener].Addr().String() + path
}

// get returns the status and body of a GET.
func (r *rig) get(listener int, path string) (int, string) {
	resp, err := http.Get(r.url(listener, path))
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// eventually polls until ok.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(hangs)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			r.t.Fatal("hangs: " + what)
		}
	}
}

func (r *rig) ready() {
	r.t.Helper()
	r.states <- r.fleetState()
	r.eventually("readiness", func() bool { status, _ := r.get(2, "/readyz"); return status == 200 })
	r.eventually("both workers in the ring", func() bool {
		v := r.fleet.board.View("uid-m")
		return v != nil && v.InRing() == len(r.workers)
	})
}

// dial connects to the router as the manager would, in a role.
func (r *rig) dial(role identity.Role) *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient(r.listeners[1].Addr().String(), grpc.WithTransportCredentials(r.ca.as(role, clientSide)))
	if err != nil {
		r.t.Fatal(err)
	}
	return conn
}

const (
	ask       = `{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"x"}]}`
	askStream = `{"model":"alias/of-m","stream":true,"messages":[{"role":"user","content":"x"}]}`
)

func (r *rig) chat(body string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodPost, r.url(0, "/v1/chat/completions"), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return http.DefaultClient.Do(req)
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// asWorkersPing takes the pings of routers as a worker does. gRPC's own default ends a connection that is idle for half a
// minute, and a slow machine makes a test last that long.
var asWorkersPing = grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true})
