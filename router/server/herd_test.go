package server

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/api/identity"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/router/heartbeat"
)

// beat is the interval of a herd's heartbeats.
const beat = time.Second

// reporter is a worker that reports when it is told to, and answers requests at once.
type reporter struct {
	workerv1.UnimplementedWorkerServer
	pod, address string
	serving      sync.WaitGroup

	mu       sync.Mutex // guards what follows
	server   *grpc.Server
	uid      string
	instance int
	weight   uint32
	sequence uint64
	said     uint64 // the sequence of its latest word to all
	draining bool
	loading  bool   // it has not loaded its model
	script   script // nil: it answers
	embed    func() error
	calls    int
	inside   int                            // calls that have not ended
	silent   bool                           // nothing comes on any stream
	streams  map[chan *workerv1.Report]bool // those that are open
	breaks   chan struct{}                  // closed when the streams break
}

func (w *reporter) id() string { return fmt.Sprint(w.pod, "-", w.instance) }

// report is the worker's next one. The caller holds the lock.
func (w *reporter) report() *workerv1.Report {
	w.sequence++
	return &workerv1.Report{InstanceId: w.id(), Model: "m", ModelUid: "uid-m", Revision: "r1", PodName: w.pod, PodUid: w.uid,
		ModelLoaded: !w.loading, Stage: w.stage(), Sequence: w.sequence, Draining: w.draining, RingWeightPercent: w.weight}
}

func (w *reporter) stage() workerv1.Stage {
	if w.loading {
		return workerv1.Stage_STAGE_LOADING
	}
	return workerv1.Stage_STAGE_LOADED
}

func (w *reporter) Watch(_ *workerv1.WatchRequest, s grpc.ServerStreamingServer[workerv1.Report]) error {
	c := make(chan *workerv1.Report, 64)
	w.mu.Lock()
	if !w.silent {
		c <- w.report()
	}
	w.streams[c] = true
	breaks := w.breaks
	w.mu.Unlock()
	defer func() { w.mu.Lock(); delete(w.streams, c); w.mu.Unlock() }()
	for {
		select {
		case r := <-c:
			if err := s.Send(r); err != nil {
				return err
			}
		case <-breaks:
			return status.Error(codes.Unavailable, "the line broke")
		case <-s.Context().Done():
			return nil
		}
	}
}

func (w *reporter) Generate(q *workerv1.GenerateRequest, s out) error {
	w.mu.Lock()
	is, script := w.id(), w.script
	w.calls++
	w.inside++
	w.mu.Unlock()
	defer w.change(func() { w.inside-- })
	if q.GetExpectedInstanceId() != is {
		return status.Error(codes.FailedPrecondition, "another instance")
	}
	if script != nil {
		return script(q, s)
	}
	return send(s, accepted, hello, &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Finish{Finish: &workerv1.Finish{
		Reason: workerv1.FinishReason_FINISH_REASON_STOP, Usage: &workerv1.Usage{PromptTokens: 4, CompletionTokens: 1}}}})
}

func (w *reporter) Embed(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	w.mu.Lock()
	embed := w.embed
	w.calls++
	w.mu.Unlock()
	if embed != nil {
		return nil, embed()
	}
	return &workerv1.EmbedResponse{PromptTokens: 3, Vectors: []*workerv1.Vector{{Values: []float32{1}}}}, nil
}

var (
	accepted = &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Accepted{Accepted: &workerv1.Accepted{PromptTokens: 4}}}
	hello    = &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{Text: "Hello", Tokens: []uint32{1}}}}
)

func send(s out, events ...*workerv1.GenerateResponse) error {
	for _, e := range events {
		if err := s.Send(e); err != nil {
			return err
		}
	}
	return nil
}

// out is what a worker writes its answer to, and a script how.
type (
	out    = grpc.ServerStreamingServer[workerv1.GenerateResponse]
	script = func(*workerv1.GenerateRequest, out) error
)

// stay is the script of a worker that sends events and makes no end of it.
func stay(events ...*workerv1.GenerateResponse) script {
	return func(_ *workerv1.GenerateRequest, s out) error {
		if err := send(s, events...); err != nil {
			return err
		}
		<-s.Context().Done()
		return s.Context().Err()
	}
}

// count is how many calls there were, and how many have not ended.
func (w *reporter) count() (calls, inside int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls, w.inside
}

// say sends a report on every stream, unless the worker is silent.
func (w *reporter) say() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent {
		return
	}
	w.said = w.sequence + 1
	for c := range w.streams {
		select {
		case c <- w.report():
		default: // nobody reads that stream any more
		}
	}
}

// change changes the worker under its lock.
func (w *reporter) change(f func()) { w.mu.Lock(); defer w.mu.Unlock(); f() }

// herd is three routers that listen to the same workers on one clock.
type herd struct {
	t       *testing.T
	creds   credentials.TransportCredentials // of the workers
	clock   *clocktesting.FakeClock
	chance  *rand.Rand
	routers []*listener
	workers map[string]*worker // by pod
	round   int
}

// worker is one pod, as it is.
type worker struct {
	*reporter
	listed bool                // the cluster has it
	is     discovery.Candidate // as the cluster has it
	spoke  int                 // the round in which it was heard again after silence
	broke  int                 // the round in which its streams broke
	began  int                 // the round in which its process did
}

// listener is one router, and what it knows of each pod.
type listener struct {
	*rig
	orders chan order
	told   map[string]discovery.Candidate
	fresh  map[string]int    // the round in which it began to listen
	heard  map[string]int    // the round of the last report, or in which it began to listen
	wrong  map[string]string // what was wrong when the streams broke
}

// order is a state of the cluster; done is closed when the router has it.
type order struct {
	state discovery.State
	done  chan struct{}
}

// Run is a source.
func (l *listener) Run(ctx context.Context, tell func(discovery.State)) error {
	for {
		select {
		case o := <-l.orders:
			tell(o.state)
			close(o.done)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// newHerd starts routers and as many workers, which no router knows yet.
func newHerd(t *testing.T, seed uint64, routers, workers int) *herd {
	t.Helper()
	ca := newAuthority(t)
	h := &herd{t: t, creds: ca.as(identity.Worker, serverSide), clock: clocktesting.NewFakeClock(time.Now()), chance: rand.New(rand.NewPCG(seed, 0)), workers: map[string]*worker{}}
	for i := range routers {
		l := &listener{rig: &rig{t: t, ca: ca}, orders: make(chan order), told: map[string]discovery.Candidate{},
			fresh: map[string]int{}, heard: map[string]int{}, wrong: map[string]string{}}
		l.launch(surroundings{source: l, heart: h.clock}, func(o *Options) { o.PodName = fmt.Sprintf("router-%d", i) })
		h.routers = append(h.routers, l)
	}
	for i := range workers {
		w := &worker{reporter: &reporter{pod: fmt.Sprintf("w-%d", i), weight: 100, streams: map[chan *workerv1.Report]bool{}, breaks: make(chan struct{})},
			spoke: never, broke: never, began: never}
		h.workers[w.pod] = w
		t.Cleanup(func() { w.stop(); w.serving.Wait() })
		h.list(w)
	}
	return h
}

// settle makes every router know every worker, so that those that can are in the ring.
func (h *herd) settle() {
	h.t.Helper()
	for _, l := range h.routers {
		h.learn(l, h.pods()...)
	}
	h.pass(nothing)
	h.pass(nothing)
}

func nothing() {}

// never is a round long ago.
const never = -100

// pods are the names of all pods, in order.
func (h *herd) pods() []string { return slices.Sorted(maps.Keys(h.workers)) }

// list brings a pod into the cluster, with a new process at a new address.
func (h *herd) list(w *worker) {
	h.t.Helper()
	h.serve(w, "127.0.0.1:0")
	w.change(func() { w.silent, w.uid = false, "uid-of-"+w.id() })
	w.listed, w.is = true, discovery.Candidate{PodName: w.pod, PodUID: w.uid, Address: w.address}
}

// restart replaces the worker's process, and its pod where it is another one that has the name and the address.
func (h *herd) restart(w *worker, anotherPod bool) {
	h.t.Helper()
	h.remember(w)
	w.stop()
	if anotherPod {
		w.change(func() { w.uid = fmt.Sprint(w.uid, "+") })
		w.is.PodUID, w.is.Terminating = w.uid, false
	}
	h.serve(w, w.address)
	w.broke, w.began = h.round, h.round
}

// fall breaks the worker's streams and silences it.
func (h *herd) fall(w *worker) {
	h.remember(w)
	w.change(func() { w.silent = true; close(w.breaks); w.breaks = make(chan struct{}) })
	w.broke = h.round
}

// remember keeps what is wrong with a worker before its streams break.
func (h *herd) remember(w *worker) {
	for _, l := range h.routers {
		l.wrong[w.pod] = l.look(w.pod).LastError
	}
}

// serve starts a process of the worker.
func (h *herd) serve(w *worker, address string) {
	h.t.Helper()
	w.stop()
	l, err := net.Listen("tcp", address)
	if err != nil {
		h.t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(h.creds), asWorkersPing)
	workerv1.RegisterWorkerServer(s, w.reporter)
	w.change(func() { w.instance++; w.draining, w.server, w.address = false, s, l.Addr().String() })
	w.serving.Go(func() { _ = s.Serve(l) })
}

// stop ends the process.
func (w *reporter) stop() {
	w.mu.Lock()
	s := w.server
	w.mu.Unlock()
	if s != nil {
		s.Stop()
	}
}

// tell gives a router the pods that it is to know, in an order of chance.
func (h *herd) tell(l *listener) {
	m := discovery.Model{UID: "uid-m", Object: "m", Name: "m", ServedNames: []string{"m"}, Created: time.Unix(1e9, 0)}
	for _, pod := range slices.Sorted(maps.Keys(l.told)) {
		m.Candidates = append(m.Candidates, l.told[pod])
	}
	h.chance.Shuffle(len(m.Candidates), func(i, j int) { m.Candidates[i], m.Candidates[j] = m.Candidates[j], m.Candidates[i] })
	s := discovery.State{Synced: true, Models: []discovery.Model{m}, Settings: discovery.DefaultSettings()}
	s.Settings.Policy, s.Settings.MaxLoadPercent = "ConsistentHash", 1e6 // each key at its owner
	o := order{s, make(chan struct{})}
	l.orders <- o
	<-o.done
}

// behind are the pods of which a router does not know what the cluster has.
func (h *herd) behind(l *listener) (out []string) {
	for _, pod := range h.pods() {
		w := h.workers[pod]
		if is, known := l.told[pod]; known != w.listed || known && is != w.is {
			out = append(out, pod)
		}
	}
	return out
}

// learn tells a router of pods, one after the other.
func (h *herd) learn(l *listener, pods ...string) {
	for _, pod := range pods {
		w, before := h.workers[pod], l.told[pod]
		if delete(l.told, pod); w.listed {
			l.told[pod] = w.is
		}
		if before.PodUID != w.is.PodUID || before.Address != w.is.Address || !w.listed {
			l.heard[pod], l.fresh[pod] = h.round, h.round
		}
		h.tell(l)
	}
}

// pass lets a heartbeat pass. In it happens what f does; then every worker reports that does, and every router notices.
func (h *herd) pass(f func()) {
	h.t.Helper()
	h.round++
	h.clock.Step(beat)
	f()
	for _, pod := range h.pods() {
		h.workers[pod].say()
	}
	for _, l := range h.routers {
		for pod := range l.told {
			l.eventually(fmt.Sprintf("round %d: what %s does reaches %s", h.round, pod, l.options.PodName),
				func() bool { return h.noticed(l, h.workers[pod]) && l.placed(pod) })
		}
	}
	h.routers[0].eventually("all wait for the clock", func() bool {
		listens := 0
		for _, l := range h.routers {
			listens += len(l.told)
		}
		return h.clock.Waiters() == listens
	})
}

// look is what a router's table has of a pod; nothing where it does not know it.
func (l *listener) look(pod string) heartbeat.Worker {
	for _, w := range l.fleet.table.Workers() {
		if w.Pod == pod {
			return w
		}
	}
	return heartbeat.Worker{}
}

// placed reports whether placement has what the table has of a pod.
func (l *listener) placed(pod string) bool {
	is := l.look(pod)
	has, known := l.fleet.board.View("uid-m").Worker(pod)
	return known && has.InRing == (is.State == heartbeat.Up) && has.Instance == is.Instance && has.Weight == is.Weight
}

// noticed reports whether a router's table knows what the worker has done until now.
func (h *herd) noticed(l *listener, w *worker) bool {
	is, silence := l.look(w.pod), h.round-l.heard[w.pod]
	switch {
	case w.broke == h.round && l.fresh[w.pod] != h.round: // it listens again when the clock goes on
		return is.LastError != l.wrong[w.pod]
	case !w.silent:
		if !is.ReportedAt.Equal(h.clock.Now()) || is.Report.GetSequence() < w.said {
			return false
		}
		l.heard[w.pod] = h.round
		return true
	case silence < 2: // the first failure is due an interval and a half after the last report
		return true
	}
	return strings.HasPrefix(is.LastError, "no report for "+(time.Duration(silence)*beat).String())
}
