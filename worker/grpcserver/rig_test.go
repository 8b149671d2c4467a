package grpcserver

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/tls/certprovider"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/identity"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/grpcserver/tlstest"
	"github.com/ringfleet/ringfleet/worker/metrics"
	choosing "github.com/ringfleet/ringfleet/worker/sampling"
	"github.com/ringfleet/ringfleet/worker/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hang bounds a test that is stuck.
const hang = 60 * time.Second

// fake is a process whose status a test sets.
type fake struct {
	mu      sync.Mutex // guards the rest
	status  Status
	changed chan struct{}
}

func (f *fake) Identity() Identity {
	return Identity{Instance: "i1", Model: "org/m", ModelUID: "u1", Revision: "r1", PodName: "p", PodUID: "pu", RingWeightPercent: 150}
}

func (f *fake) Status() (Status, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status, f.changed
}

func (f *fake) Drain() { f.set(func(s *Status) { s.Draining = true }) }

func (f *fake) set(change func(*Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.status)
	close(f.changed)
	f.changed = make(chan struct{})
}

// rig is a served worker.
type rig struct {
	t       *testing.T
	worker  *fake
	ca      *tlstest.Authority
	address string
	set     *metrics.Set
	log     *lines
	engine  engine.Engine
}

type lines struct {
	mu   sync.Mutex // guards text
	text []string
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text = append(l.text, args)
	}, funcr.Options{})
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.text...)
}

type greedy struct{}

func (greedy) Next(logits []float32) (choosing.Choice, error) {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return choosing.Choice{Token: engine.Token(best)}, nil
}

func (greedy) Accept(engine.Token) {}

func newRig(t *testing.T, device sim.Options) *rig {
	t.Helper()
	device.ContextTokens, device.Sequences, device.KVTokens, device.Clock = 256, 2, 512, clock.RealClock{}
	e, err := scheduler.New(sim.New(device), scheduler.Options{
		MaxSequences: 2, MaxWaiting: 2, StepTokens: 32, Clock: clock.RealClock{}, Log: logr.Discard(),
		Sampler: func(engine.Sampling, choosing.Options) scheduler.Sampler { return greedy{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, engine: e, ca: tlstest.New(t), log: &lines{}, worker: &fake{
		status: Status{Stage: workerv1.Stage_STAGE_LOADED, Engine: e}, changed: make(chan struct{}),
	}}
	r.set = metrics.New("org/m", func() metrics.Now { return metrics.Now{Loaded: true, Stats: e.Stats()} })

	files, err := r.files(identity.ID{Namespace: "team", Role: identity.Worker})
	if err != nil {
		t.Fatal(err)
	}
	creds, err := identity.ServerCredentials(files, identity.In("team", identity.Router, identity.Manager))
	if err != nil {
		t.Fatal(err)
	}
	s := New(r.worker, r.set, r.log.logger(), clock.RealClock{})
	g := grpc.NewServer(Options(creds)...)
	workerv1.RegisterWorkerServer(g, s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = l.Addr().String()
	var served sync.WaitGroup
	served.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() {
		s.StopStreams()
		g.Stop()
		served.Wait()
		files.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// files are the credentials of id.
func (r *rig) files(id identity.ID) (certprovider.Provider, error) {
	dir := r.t.TempDir()
	r.ca.Folder(r.t, dir, id)
	return identity.Files(dir)
}

// dial connects as id.
func (r *rig) dial(id identity.ID) workerv1.WorkerClient {
	r.t.Helper()
	files, err := r.files(id)
	if err != nil {
		r.t.Fatal(err)
	}
	creds, err := identity.ClientCredentials(files, identity.In("team", identity.Worker))
	if err != nil {
		r.t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+r.address, grpc.WithTransportCredentials(creds))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = conn.Close()
		files.Close()
	})
	return workerv1.NewWorkerClient(conn)
}

func (r *rig) router() workerv1.WorkerClient {
	return r.dial(identity.ID{Namespace: "team", Role: identity.Router})
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	t.Cleanup(cancel)
	return ctx
}
