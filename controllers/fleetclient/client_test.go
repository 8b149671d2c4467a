package fleetclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/ringfleet/ringfleet/api/identity"
	routerv1 "github.com/ringfleet/ringfleet/api/router/v1"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/controllers/pki"
)

// hangs bounds a wait that should be short.
const hangs = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is routers and workers on the loopback, with certificates of one authority.
type fleet struct {
	t         *testing.T
	clock     *clocktesting.FakePassiveClock
	authority *pki.Authority
	client    *Client

	mu   sync.Mutex // guards pods
	pods Pods
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).Build()
	f := &fleet{t: t, clock: clocktesting.NewFakePassiveClock(time.Now())}
	f.authority = pki.NewAuthority(api, api, api, types.NamespacedName{Namespace: "ringfleet-system", Name: "ringfleet-ca"}, f.clock)
	source := pki.NewSource(f.authority, f.clock)
	find := func(context.Context, string) (Pods, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.pods, nil
	}
	f.client = New(find, func(ns string) (credentials.TransportCredentials, error) {
		return identity.ClientCredentials(source.Provider(ns), identity.In(ns, identity.Router, identity.Worker))
	}, f.clock)
	t.Cleanup(f.client.Close)
	return f
}

// files writes what a pod of that role has in its Secret.
func (f *fleet) credentials(id identity.ID, allow identity.Allows) credentials.TransportCredentials {
	f.t.Helper()
	ca, err := f.authority.Get(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	data, err := pki.IssueRole(ca, id, f.clock.Now())
	if err != nil {
		f.t.Fatal(err)
	}
	dir := f.t.TempDir()
	for name, text := range data {
		writeFile(f.t, dir, name, text)
	}
	provider, err := identity.Files(dir)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(provider.Close)
	creds, err := identity.ServerCredentials(provider, allow)
	if err != nil {
		f.t.Fatal(err)
	}
	return creds
}

// serve starts a server of that identity and returns its pod.
func (f *fleet) serve(name string, id identity.ID, register func(*grpc.Server)) (Pod, *grpc.Server) {
	f.t.Helper()
	server := grpc.NewServer(grpc.Creds(f.credentials(id, identity.In("team-a", identity.Manager))))
	register(server)
	listener, err := (&net.ListenConfig{}).Listen(f.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with Stop
	}()
	f.t.Cleanup(func() { server.Stop(); <-done })
	return Pod{Name: name, UID: name + "-uid", Address: listener.Addr().String()}, server
}

func (f *fleet) set(p Pods) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods = p
}

func (f *fleet) look() View {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), hangs)
	defer cancel()
	v, err := f.client.Look(ctx, "team-a")
	if err != nil {
		f.t.Fatal(err)
	}
	return v
}

// later makes the last look too old to be used again.
func (f *fleet) later(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }

type router struct {
	routerv1.UnimplementedRouterServer
	calls  atomic.Int32
	gate   chan struct{} // a call waits for it when set
	knows  []string      // pod UIDs of workers with a report
	silent atomic.Bool
}

func (r *router) Status(ctx context.Context, _ *routerv1.StatusRequest) (*routerv1.StatusResponse, error) {
	r.calls.Add(1)
	if r.gate != nil {
		<-r.gate
	}
	if r.silent.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	model := &routerv1.ModelStatus{ModelUid: "m"}
	for _, uid := range r.knows {
		model.Workers = append(model.Workers, &routerv1.WorkerStatus{PodUid: uid, Report: &workerv1.Report{InstanceId: "i"}})
	}
	return &routerv1.StatusResponse{Router: "r", Synced: true, Models: []*routerv1.ModelStatus{model}}, nil
}

type worker struct {
	workerv1.UnimplementedWorkerServer
	asked atomic.Int32
}

func (w *worker) Watch(_ *workerv1.WatchRequest, stream grpc.ServerStreamingServer[workerv1.Report]) error {
	w.asked.Add(1)
	if err := stream.Send(&workerv1.Report{InstanceId: "own", Stage: workerv1.Stage_STAGE_LOADING}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func inTeamA(role identity.Role) identity.ID { return identity.ID{Namespace: "team-a", Role: role} }

func (f *fleet) router(name string, r *router) (Pod, *grpc.Server) {
	return f.serve(name, inTeamA(identity.Router), func(s *grpc.Server) { routerv1.RegisterRouterServer(s, r) })
}

func TestCallersThatComeTogetherShareALook(t *testing.T) {
	f, r := newFleet(t), &router{gate: make(chan struct{})}
	pod, _ := f.router("a", r)
	f.set(Pods{Routers: []Pod{pod}})
	const callers = 20
	results := make(chan error, callers)
	var started sync.WaitGroup
	for range callers {
		started.Add(1)
		go func() {
			l, err := f.client.join("team-a")
			started.Done()
			if err == nil {
				<-l.done
				err = l.err
			}
			results <- err
		}()
	}
	started.Wait()
	close(r.gate)
	for range callers {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	f.look()
	if n := r.calls.Load(); n != 1 {
		t.Errorf("the router was asked %d times, want once", n)
	}
	f.later(keep)
	f.look()
	if n := r.calls.Load(); n != 2 {
		t.Errorf("after 300 ms the router was asked %d times in all, want twice", n)
	}
}

func TestAWorkerIsAskedItselfOnlyWhenNoRouterHasItsReport(t *testing.T) {
	f, r := newFleet(t), &router{knows: []string{"known-uid"}}
	pod, _ := f.router("a", r)
	known, unknown := &worker{}, &worker{}
	serve := func(name string, w *worker) Pod {
		p, _ := f.serve(name, inTeamA(identity.Worker), func(s *grpc.Server) { workerv1.RegisterWorkerServer(s, w) })
		return p
	}
	f.set(Pods{Routers: []Pod{pod}, Workers: []Pod{serve("known", known), serve("unknown", unknown), {Name: "gone", UID: "gone-uid", Address: "127.0.0.1:1"}}})
	v := f.look()
	if len(v.Workers) != 1 || v.Workers["unknown-uid"].GetInstanceId() != "own" {
		t.Errorf("own reports %v, want that of the unknown worker", v.Workers)
	}
	if known.asked.Load() != 0 || unknown.asked.Load() != 1 {
		t.Errorf("asked the known worker %d times and the unknown one %d times", known.asked.Load(), unknown.asked.Load())
	}
}

func TestARouterCountsAsSilentFromTheFirstCallThatFailsToTheNextAnswer(t *testing.T) {
	const after = 10 * time.Second
	f, good, bad := newFleet(t), &router{}, &router{}
	a, _ := f.router("a", good)
	b, _ := f.router("b", bad)
	f.set(Pods{Routers: []Pod{a, b}})
	bad.silent.Store(true)
	for _, want := range []struct {
		more   time.Duration
		silent bool
	}{{0, false}, {9 * time.Second, false}, {time.Second, true}} {
		f.later(want.more)
		v := f.look()
		if v.Routers[0].Status == nil || v.Routers[1].Status != nil || v.Routers[1].Error == "" {
			t.Fatalf("after %s more: %+v", want.more, v.Routers)
		}
		if (v.Routers[1].Silence >= after) != want.silent || (f.client.Silent(after) == 1) != want.silent {
			t.Errorf("after %s more: silent for %s, %d counted, want %t", want.more, v.Routers[1].Silence, f.client.Silent(after), want.silent)
		}
	}
	bad.silent.Store(false)
	f.later(keep)
	if v := f.look(); v.Routers[1].Status == nil || v.Routers[1].Silence != 0 || f.client.Silent(after) != 0 {
		t.Errorf("after an answer: %+v", v.Routers[1])
	}
}

func TestConnectionsAreKeptAndClosedWithTheirPods(t *testing.T) {
	f := newFleet(t)
	a, _ := f.router("a", &router{})
	b, stopped := f.router("b", &router{})
	f.set(Pods{Routers: []Pod{a, b}})
	f.look()
	n := f.client.namespaces["team-a"]
	first := n.conns[a.UID]
	stopped.Stop()
	f.later(keep)
	if v := f.look(); v.Routers[1].Status != nil || n.conns[a.UID] != first {
		t.Errorf("a stopped router answered, or the other's connection was not kept: %+v", v.Routers)
	}
	f.set(Pods{Routers: []Pod{a}})
	f.later(keep)
	f.look()
	if len(n.conns) != 1 || len(n.failing) != 0 {
		t.Errorf("%d connections and %d failing routers are left, want 1 and 0", len(n.conns), len(n.failing))
	}
	f.client.Forget("team-a")
	if len(n.conns) != 0 {
		t.Error("a forgotten namespace keeps connections")
	}
	f.look()
}

func TestAnImpostorIsNotListenedTo(t *testing.T) {
	f := newFleet(t)
	for name, id := range map[string]identity.ID{
		"of another namespace": {Namespace: "team-b", Role: identity.Router},
		"another manager":      inTeamA(identity.Manager),
	} {
		pod, _ := f.serve(name, id, func(s *grpc.Server) { routerv1.RegisterRouterServer(s, &router{}) })
		f.set(Pods{Routers: []Pod{pod}})
		f.later(keep)
		v := f.look()
		if v.Routers[0].Status != nil || !strings.Contains(v.Routers[0].Error, "may not talk") {
			t.Errorf("%s: %+v", name, v.Routers[0])
		}
	}
}

func TestAClosedClientAndAFailedSearchAreErrors(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	c := New(func(context.Context, string) (Pods, error) { return Pods{}, errors.New("no cache") }, nil, clk)
	if _, err := c.Look(t.Context(), "team-a"); err == nil || !strings.Contains(err.Error(), "find the pods of namespace team-a: no cache") {
		t.Errorf("error %v", err)
	}
	c.Close()
	if _, err := c.Look(t.Context(), "team-a"); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("error %v", err)
	}
}

func TestManyRoutersAreAskedAtOnceAndInOrder(t *testing.T) {
	f := newFleet(t)
	var pods []Pod
	for i := range 5 {
		p, _ := f.router(fmt.Sprintf("r%d", i), &router{})
		pods = append(pods, p)
	}
	f.set(Pods{Routers: pods})
	for i, r := range f.look().Routers {
		if r.Pod != pods[i].Name || r.Status == nil {
			t.Errorf("router %d: %+v", i, r)
		}
	}
}
