package heartbeat

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hang is how long a test waits for what must come; it only ends tests that would never end.
const hang = 60 * time.Second

// fakeWorker is a worker's Watch service on loopback whose reports the test writes.
type fakeWorker struct {
	workerv1.UnimplementedWorkerServer
	address string

	mu      sync.Mutex
	server  *grpc.Server
	serving sync.WaitGroup
	current *workerv1.Report
	streams map[chan *workerv1.Report]uint32 // and the interval each asked for
	opened  chan uint32                      // the interval of every stream, in order
}

func newFakeWorker(t *testing.T, first *workerv1.Report, opts ...grpc.ServerOption) *fakeWorker {
	t.Helper()
	f := &fakeWorker{current: first, streams: map[chan *workerv1.Report]uint32{}, opened: make(chan uint32, 100)}
	f.start(t, "127.0.0.1:0", opts...)
	t.Cleanup(f.kill)
	return f
}

func (f *fakeWorker) start(t *testing.T, address string, opts ...grpc.ServerOption) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(opts...)
	workerv1.RegisterWorkerServer(s, f)
	f.mu.Lock()
	f.address, f.server = l.Addr().String(), s
	f.mu.Unlock()
	f.serving.Go(func() { _ = s.Serve(l) })
}

// kill closes the listener and every connection, as the end of the process does.
func (f *fakeWorker) kill() {
	f.mu.Lock()
	s := f.server
	f.mu.Unlock()
	s.Stop()
	f.serving.Wait()
}

func (f *fakeWorker) Watch(in *workerv1.WatchRequest, out grpc.ServerStreamingServer[workerv1.Report]) error {
	c := make(chan *workerv1.Report, 16)
	f.mu.Lock()
	first := f.current
	f.streams[c] = in.IntervalMilliseconds
	f.mu.Unlock()
	defer func() { f.mu.Lock(); delete(f.streams, c); f.mu.Unlock() }()
	if err := out.Send(first); err != nil {
		return err
	}
	f.opened <- in.IntervalMilliseconds
	for {
		select {
		case <-out.Context().Done():
			return nil
		case r := <-c:
			if err := out.Send(r); err != nil {
				return err
			}
		}
	}
}

// say sends a report on every stream, and makes it the first of streams to come.
func (f *fakeWorker) say(r *workerv1.Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current = r
	for c := range f.streams {
		c <- r
	}
}

// fixture is a table on a fake clock and what it publishes and tells.
type fixture struct {
	*Table
	clock *clocktesting.FakeClock
	seen  chan *Snapshot

	telling   sync.Mutex // guards what follows
	reports   []heard
	ejections []Ejection
	anomalies []Anomaly
}

// heard is a call of OnReport.
type heard struct {
	member   Member
	sequence uint64
	at       time.Time
	in       State // of the worker in the snapshot at the time
}

// told is what was told so far.
func (f *fixture) told() ([]heard, []Ejection, []Anomaly) {
	f.telling.Lock()
	defer f.telling.Unlock()
	return slices.Clone(f.reports), slices.Clone(f.ejections), slices.Clone(f.anomalies)
}

func (f *fixture) onReport(m Member, r *workerv1.Report, at time.Time) {
	f.telling.Lock()
	defer f.telling.Unlock()
	h := heard{member: m, sequence: r.GetSequence(), at: at}
	for _, in := range f.Snapshot().Models[m.ModelUID] {
		if in.Pod == m.Pod {
			h.in = in.State
		}
	}
	f.reports = append(f.reports, h)
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureWithLog(t, testr.New(t))
}

func newFixtureWithLog(t *testing.T, log logr.Logger) *fixture {
	t.Helper()
	f := &fixture{clock: clocktesting.NewFakeClock(epoch), seen: make(chan *Snapshot, 1000)}
	f.Table = NewTable(Options{
		Credentials: insecure.NewCredentials(), Clock: f.clock, Log: log,
		OnChange: func(s *Snapshot) { f.seen <- s },
		OnReport: f.onReport,
		OnEject: func(e Ejection) {
			f.telling.Lock()
			defer f.telling.Unlock()
			f.ejections = append(f.ejections, e)
		},
		OnAnomaly: func(a Anomaly) {
			f.telling.Lock()
			defer f.telling.Unlock()
			f.anomalies = append(f.anomalies, a)
		},
	}, DefaultConfig())
	t.Cleanup(f.Close)
	return f
}

// until waits until the details of the worker of pod fulfil cond, and are those that the snapshot has: that follows a moment
// after them.
func (f *fixture) until(t *testing.T, pod, what string, cond func(Worker) bool) Worker {
	t.Helper()
	deadline := time.Now().Add(hang)
	for {
		var last Worker
		for _, w := range f.Workers() {
			if w.Pod == pod {
				if last = w; cond(w) && slices.Contains(f.Snapshot().Models[w.ModelUID], w.placing()) {
					return w
				}
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s never %s: %+v", pod, what, last)
		}
		pause()
	}
}

// pause lets other goroutines go on.
func pause() { <-time.After(time.Millisecond) }

// heardAt waits until a report that arrived at the clock's time has been taken.
func (f *fixture) heardAt(t *testing.T, pod string) Worker {
	t.Helper()
	now := f.clock.Now()
	return f.until(t, pod, "heard now", func(w Worker) bool { return w.ReportedAt.Equal(now) })
}

func (f *fixture) state(t *testing.T, pod string, want State) Worker {
	t.Helper()
	return f.until(t, pod, "became "+want.String(), func(w Worker) bool { return w.State == want })
}

func candidate(f *fakeWorker) Candidate {
	return Candidate{Pod: "smollm2-0", PodUID: "pod-1", Address: f.address, ModelUID: "uid-1", Model: "smollm2"}
}

// admitted brings a worker of instance a into the ring.
func admitted(t *testing.T) (*fixture, *fakeWorker) {
	t.Helper()
	f, w := newFixture(t), newFakeWorker(t, good("a"))
	f.SetCandidates([]Candidate{candidate(w)})
	f.heardAt(t, "smollm2-0")
	f.clock.Step(time.Second)
	w.say(good("a"))
	f.state(t, "smollm2-0", Up)
	return f, w
}

func TestTwoReportsAnIntervalApartBringAWorkerIn(t *testing.T) {
	f, w := newFixture(t), newFakeWorker(t, good("a"))
	f.SetCandidates([]Candidate{candidate(w)})
	if got := f.heardAt(t, "smollm2-0"); got.State != Down || !got.Loaded {
		t.Errorf("after one report: %+v", got.Member)
	}
	f.clock.Step(time.Second)
	w.say(good("a"))
	got := f.state(t, "smollm2-0", Up)
	if got.Instance != "a" || got.Revision != "r1" || got.Report.GetPodName() != "smollm2-0" || got.LastError != "" {
		t.Errorf("got %+v", got)
	}
	members := f.Snapshot().Models["uid-1"]
	if len(members) != 1 || members[0] != got.Member {
		t.Errorf("the snapshot has %+v", members)
	}
}

func TestASilentStreamIsGivenUpForANewOne(t *testing.T) {
	f, w := admitted(t)
	<-w.opened
	f.clock.Step(1500 * time.Millisecond)
	select {
	case <-w.opened:
	case <-time.After(hang):
		t.Fatal("no second stream")
	}
	// The worker answers there, which is a success: nothing has happened to its place in the ring.
	if got := f.heardAt(t, "smollm2-0"); got.State != Up || got.LastError != "" {
		t.Errorf("got %+v", got)
	}
}

func TestAKilledWorkerIsLostAfterThreeFailuresAndBackAfterTwoReports(t *testing.T) {
	f, w := admitted(t)
	last := f.clock.Now()
	w.kill()
	f.until(t, "smollm2-0", "failed", func(w Worker) bool { return w.LastError != "" })
	f.advance(t, "was lost", func() bool { return f.Workers()[0].State == Lost })
	if took := f.clock.Now().Sub(last); took < 2*time.Second || took > 3500*time.Millisecond {
		t.Errorf("lost %s after the last report", took)
	}
	w.start(t, w.address)
	back := f.clock.Now()
	f.advance(t, "was heard", func() bool { return f.Workers()[0].State == Down })
	f.clock.Step(time.Second)
	w.say(good("a"))
	f.state(t, "smollm2-0", Up)
	if took := f.clock.Now().Sub(back); took > 2500*time.Millisecond {
		t.Errorf("up %s after its return", took)
	}
}

// advance moves the clock in small steps, and lets the network catch up between them, until cond holds.
func (f *fixture) advance(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hang); !cond(); pause() {
		if time.Now().After(deadline) {
			t.Fatalf("never %s", what)
		}
		for range 20 { // time for a refused connection to be noticed before the clock goes on
			if pause(); cond() {
				return
			}
		}
		if f.clock.HasWaiters() { // else the watcher has yet to do what is due
			f.clock.Step(50 * time.Millisecond)
		}
	}
}

func TestADrainingReportTakesAWorkerOutAtOnce(t *testing.T) {
	f, w := admitted(t)
	r := good("a")
	r.Draining = true
	w.say(r)
	f.state(t, "smollm2-0", Draining)
}

func TestATerminatingPodLeavesBeforeSetCandidatesReturns(t *testing.T) {
	f, w := admitted(t)
	c := candidate(w)
	c.Terminating = true
	f.SetCandidates([]Candidate{c})
	if got := f.Snapshot().Models["uid-1"][0]; got.State != Draining || got.Instance != "a" {
		t.Errorf("snapshot has %+v", got)
	}
}

func TestANewInstanceStartsFromNothing(t *testing.T) {
	f, w := admitted(t)
	f.Suspect("smollm2-0", "a")
	loading := good("b")
	loading.ModelLoaded = false
	w.say(loading)
	f.until(t, "smollm2-0", "changed its instance", func(w Worker) bool {
		return w.Instance == "b" && w.State == Down && !w.Suspect
	})
	w.say(good("b"))
	f.until(t, "smollm2-0", "loaded", func(w Worker) bool { return w.LastError == "" })
	f.clock.Step(time.Second)
	w.say(good("b"))
	f.state(t, "smollm2-0", Up)
}

func TestASuspectIsMarkedAtOnceAndClearedByItsNextGoodReport(t *testing.T) {
	f, w := admitted(t)
	f.Suspect("smollm2-0", "other")
	f.Suspect("nobody", "a")
	if f.Snapshot().Models["uid-1"][0].Suspect {
		t.Error("an instance that is not this one made it suspect")
	}
	f.Suspect("smollm2-0", "a")
	if got := f.Snapshot().Models["uid-1"][0]; !got.Suspect || got.State != Up {
		t.Errorf("snapshot has %+v", got)
	}
	w.say(good("a"))
	f.until(t, "smollm2-0", "cleared", func(w Worker) bool { return !w.Suspect && w.State == Up })
}

func TestACandidateThatIsGoneOrOtherIsForgotten(t *testing.T) {
	f, w := admitted(t)
	c := candidate(w)
	c.PodUID = "pod-2"
	f.SetCandidates([]Candidate{c})
	f.until(t, "smollm2-0", "named the wrong pod", func(w Worker) bool {
		return w.LastError == `is the pod with UID "pod-1", expected "pod-2"`
	})
	f.SetCandidates(nil)
	if got := f.Snapshot().Models; len(got) != 0 || len(f.Workers()) != 0 {
		t.Errorf("snapshot has %+v", got)
	}
}

func TestAModelThatIsRenamedKeepsItsWorkers(t *testing.T) {
	f, w := admitted(t)
	c := candidate(w)
	c.Model = "another-name"
	f.SetCandidates([]Candidate{c})
	if got := f.Snapshot().Models["uid-1"]; len(got) != 1 || got[0].State != Up || got[0].Model != "another-name" {
		t.Errorf("snapshot has %+v", got)
	}
}

func TestOfTwoCandidatesWithOneNameTheFirstCounts(t *testing.T) {
	f, w := admitted(t)
	other := candidate(w)
	other.PodUID = "pod-2"
	f.SetCandidates([]Candidate{candidate(w), other})
	if got := f.Snapshot().Models["uid-1"]; len(got) != 1 || got[0].PodUID != "pod-1" || got[0].State != Up {
		t.Errorf("snapshot has %+v", got)
	}
}

func TestANewIntervalReopensTheStreamAndKeepsTheVerdict(t *testing.T) {
	f, w := admitted(t)
	if got := <-w.opened; got != 1000 {
		t.Errorf("the first stream asks for %d ms", got)
	}
	c := DefaultConfig()
	c.Interval, c.FailuresToDrop = 200*time.Millisecond, 5
	f.SetConfig(c)
	select {
	case got := <-w.opened:
		if got != 200 {
			t.Errorf("the second stream asks for %d ms", got)
		}
	case <-time.After(hang):
		t.Fatal("no second stream")
	}
	if got := f.heardAt(t, "smollm2-0"); got.State != Up {
		t.Errorf("state is %s", got.State)
	}
}

func TestSnapshotsComeInOrderAndOnlyWhenTheyDiffer(t *testing.T) {
	f, w := admitted(t)
	for range 20 {
		f.SetCandidates([]Candidate{candidate(w)})
		w.say(good("a"))
	}
	f.Suspect("smollm2-0", "a")
	w.say(good("a"))
	f.until(t, "smollm2-0", "cleared", func(w Worker) bool { return !w.Suspect })
	f.Close()
	close(f.seen)
	var got []string
	for s := range f.seen {
		m := s.Models["uid-1"][0]
		got = append(got, fmt.Sprintf("%s %s %v", m.State, m.Instance, m.Suspect))
	}
	for i := 1; i < len(got); i++ {
		if got[i] == got[i-1] {
			t.Errorf("snapshot %d repeats %s", i, got[i])
		}
	}
	if !strings.HasPrefix(got[0], "Down ") || !slices.Contains(got, "Up a false") || !slices.Contains(got, "Up a true") {
		t.Errorf("snapshots are %v", got)
	}
}

func TestOnTheRealClockAKilledWorkerIsLostAndBackAfterItsReturn(t *testing.T) {
	w := newFakeWorker(t, good("a"))
	c := Config{Interval: 100 * time.Millisecond, Timeout: 50 * time.Millisecond, FailuresToDrop: 3, SuccessesToAdmit: 2}
	table := NewTable(Options{Credentials: insecure.NewCredentials(), Clock: clock.RealClock{}, Log: logr.Discard()}, c)
	defer table.Close()
	f := &fixture{Table: table}
	stop := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() {
		for tick := time.NewTicker(c.Interval); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				w.mu.Lock()
				r := w.current
				w.mu.Unlock()
				w.say(r)
			}
		}
	})
	defer beats.Wait()
	defer close(stop)
	table.SetCandidates([]Candidate{candidate(w)})
	f.state(t, "smollm2-0", Up)
	w.kill()
	f.state(t, "smollm2-0", Lost)
	w.mu.Lock()
	w.current = good("b")
	w.mu.Unlock()
	w.start(t, w.address)
	if got := f.state(t, "smollm2-0", Up); got.Instance != "b" {
		t.Errorf("instance is %q", got.Instance)
	}
}

func TestChangesFromEverySideAtOnceRaceNobody(t *testing.T) {
	f, w := admitted(t)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 25 {
				switch (i + j) % 6 {
				case 0:
					c := candidate(w)
					c.Terminating = j%2 == 0
					f.SetCandidates([]Candidate{c})
				case 1:
					f.Suspect("smollm2-0", "a")
				case 3:
					f.Outcome("smollm2-0", "a", Outcome(j%3))
				case 4:
					f.Measured("smollm2-0", "a", BetweenTokens, 0.02)
				case 2:
					c := DefaultConfig()
					c.FailuresToDrop = 1 + j%3
					f.SetConfig(c)
				default:
					f.clock.Step(10 * time.Millisecond)
					_ = f.Snapshot().Models["uid-1"]
				}
			}
		})
	}
	all.Wait()
	f.Close()
	if n := len(f.Workers()); n != 0 {
		t.Errorf("%d workers after Close", n)
	}
}
