package heartbeat

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

func TestFiveFailuresEjectAWorkerForThirtySecondsAndItStaysInTheRing(t *testing.T) {
	p := newPack(t, 4)
	p.ends(1, 4, Failed)
	if m := p.member(t, 1); m.Ejected {
		t.Fatalf("four failures ejected it: %+v", m)
	}
	p.ends(1, 1, Failed)
	for i := range 4 {
		if m := p.member(t, i); m.State != Up || m.Ejected != (i == 1) {
			t.Errorf("%s is %s, ejected: %v", m.Pod, m.State, m.Ejected)
		}
	}
	for second := 1; second < 30; second++ {
		p.beat(t) // a heartbeat that passes proves nothing
		p.ends(1, 1, Good)
		if m := p.member(t, 1); !m.Ejected || m.State != Up {
			t.Fatalf("after %d s it is %s, ejected: %v", second, m.State, m.Ejected)
		}
	}
	p.beat(t)
	p.becomes(t, 1, "came back", func(m Member) bool { return !m.Ejected && m.State == Up })
	p.until(t, podOf(1), "was told to be back", func(Worker) bool { _, e, _ := p.told(); return len(e) == 2 })
	_, e, _ := p.told()
	if e[0].Change != Ejected || e[0].Cause != CauseFailures || e[0].For != 30*time.Second || e[0].ModelUID != "uid-1" || e[1].Change != Returned {
		t.Errorf("told %+v", e)
	}
}

func TestAnEjectionEndsByItselfWhereReportsAreRare(t *testing.T) {
	p := newPack(t, 2)
	c := DefaultConfig()
	c.Interval = time.Minute
	p.SetConfig(c)
	for i := range 2 {
		p.until(t, podOf(i), "asked for another interval", func(Worker) bool {
			p.workers[i].mu.Lock()
			defer p.workers[i].mu.Unlock()
			for _, ms := range p.workers[i].streams {
				if ms != 60_000 {
					return false
				}
			}
			return len(p.workers[i].streams) == 1
		})
	}
	for i := range 2 {
		p.heardAt(t, podOf(i))
	}
	p.until(t, podOf(0), "waited for silence, and for nothing else", func(Worker) bool {
		for _, w := range p.roster.Load().ordered {
			if len(w.changed) > 0 {
				return false
			}
		}
		return p.clock.Waiters() == 2
	})
	p.ends(0, 5, Failed)
	if m := p.member(t, 0); !m.Ejected {
		t.Fatal("five failures ejected nobody")
	}
	for range 30 {
		pause()
		p.clock.Step(time.Second)
	}
	p.until(t, podOf(0), "was told to be back", func(Worker) bool { _, e, _ := p.told(); return len(e) == 2 })
	_, e, _ := p.told()
	if m := p.member(t, 0); m.Ejected || m.State != Up || e[1].Cause != CauseOver {
		t.Errorf("got %+v, told %+v", m, e[1])
	}
	p.until(t, podOf(0), "was known", func(w Worker) bool {
		if w.LastError != "" {
			t.Fatalf("what ended it is that something else was heard of the worker: %s", w.LastError)
		}
		return true
	})
}

func TestAWorkerThatIsNoCandidateAnyMoreIsForgottenWithItsEjection(t *testing.T) {
	p := newPack(t, 2)
	p.ends(0, 5, Failed)
	old := p.roster.Load().byPod[podOf(0)]
	p.SetCandidates(p.candidates[1:])
	if _, e, _ := p.told(); len(e) != 2 || e[1].Change != Returned || e[1].Cause != CauseInstance {
		t.Errorf("told %+v", e)
	}
	p.SetCandidates(p.candidates)
	old.hear(good("a")) // of the one that listened before
	old.outcome("a", Failed)
	if until, _ := old.judge.verdict(podOf(0)); !until.IsZero() || old.judge.ejector.workers[podOf(0)] != nil && old.judge.ejector.workers[podOf(0)].failures > 0 {
		t.Error("something of the old one is left")
	}
	p.heardAt(t, podOf(0))
	p.beat(t)
	p.becomes(t, 0, "came in", func(m Member) bool { return !m.Ejected && m.State == Up })
}

func TestAnEjectionIsVoidForAnotherInstance(t *testing.T) {
	p := newPack(t, 2)
	p.ends(0, 5, Failed)
	p.reports[0] = good("b")
	p.beat(t)
	p.becomes(t, 0, "was another", func(m Member) bool { return !m.Ejected && m.State == Down && m.Instance == "b" })
	p.beat(t)
	p.becomes(t, 0, "came in", func(m Member) bool { return !m.Ejected && m.State == Up })
	p.ends(0, 50, Failed) // of the old one
	if m := p.member(t, 0); m.Ejected {
		t.Errorf("ejected for what the old instance did: %+v", m)
	}
}

func TestMoreThanHalfOfARingIsNeverOutAndThatIsLogged(t *testing.T) {
	var mu sync.Mutex
	lines := 0
	log := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(args, "panic: ") && strings.Contains(args, `"worker"="w1"`) {
			lines++
		}
	}, funcr.Options{})
	p := newPackBehind(t, log, 2, func(_ int, address string) string { return address })
	p.ends(0, 5, Failed)
	p.ends(1, 50, Failed)
	if a, b := p.member(t, 0), p.member(t, 1); !a.Ejected || b.Ejected {
		t.Errorf("ejected: %v and %v", a.Ejected, b.Ejected)
	}
	mu.Lock()
	if lines != 1 {
		t.Errorf("%d log lines of panic", lines)
	}
	mu.Unlock()
	p.reports[1].Draining = true
	p.beat(t)
	p.becomes(t, 0, "came back as the last of the ring", func(m Member) bool { return !m.Ejected && m.State == Up })
}

func TestAWorkerThatHasRequestsAndMakesNoProgressIsEjectedAfterAMinute(t *testing.T) {
	p := newPack(t, 2)
	stuck, busy := uint64(7), uint64(7)
	for i := range 61 {
		p.reports[0].Load, p.reports[1].Load = load(3, &stuck), load(3, &busy)
		busy += 100
		if m := p.member(t, 0); m.Ejected {
			t.Fatalf("ejected after %d reports", i)
		}
		p.beat(t)
	}
	p.until(t, podOf(0), "was ejected", func(w Worker) bool { return w.Ejected })
	if m := p.member(t, 1); m.Ejected {
		t.Error("the one that makes progress is ejected")
	}
	p.until(t, podOf(0), "was told to be out", func(Worker) bool { _, e, _ := p.told(); return len(e) > 0 })
	_, e, _ := p.told()
	if len(e) != 1 || e[0].Cause != CauseNoProgress {
		t.Errorf("told %+v", e)
	}
}

func TestTheTimeWithoutProgressIsThatOfTheLatestConfig(t *testing.T) {
	p := newPack(t, 2)
	c := DefaultConfig()
	c.Stall = 90 * time.Second
	p.SetConfig(c)
	stuck := uint64(7)
	p.reports[0].Load = load(3, &stuck)
	for i := range 91 {
		if m := p.member(t, 0); m.Ejected {
			t.Fatalf("ejected after %d reports", i)
		}
		p.beat(t)
	}
	p.until(t, podOf(0), "was ejected", func(w Worker) bool { return w.Ejected })
}

// load is that of a worker with running requests that has computed tokens.
func load(running uint32, tokens *uint64) *workerv1.Load {
	return &workerv1.Load{Running: running, ProgressTokens: tokens}
}

func TestReportsAreHandedOnInOrderAndAfterTheSnapshotTheyChange(t *testing.T) {
	f, w := newFixture(t), newFakeWorker(t, good("a"))
	f.SetCandidates([]Candidate{candidate(w)})
	f.heardAt(t, "smollm2-0")
	for i := range 15 {
		f.clock.Step(time.Second)
		r := good("a")
		r.Sequence = uint64(i + 1)
		w.say(r)
		f.heardAt(t, "smollm2-0")
	}
	f.until(t, "smollm2-0", "was told of", func(Worker) bool { r, _, _ := f.told(); return len(r) == 16 })
	reports, _, _ := f.told()
	for i, r := range reports {
		want := Up
		if i == 0 {
			want = Down
		}
		at := epoch.Add(time.Duration(i) * time.Second)
		if r.sequence != uint64(i) || r.member.State != want || r.in != want || !r.at.Equal(at) || r.member.Pod != "smollm2-0" {
			t.Errorf("call %d: %+v", i, r)
		}
	}
}

func TestAStrangerAtTheAddressNeverComesInAndItsReportsAreNotHandedOn(t *testing.T) {
	strangers := map[string]func() (id, model, pod string){
		"of another model":    func() (string, string, string) { return "b", "uid-2", "pod-1" },
		"in another pod":      func() (string, string, string) { return "b", "uid-1", "pod-2" },
		"without an instance": func() (string, string, string) { return "", "uid-1", "pod-1" },
	}
	for name, who := range strangers {
		t.Run(name, func(t *testing.T) {
			f, w := admitted(t)
			f.until(t, "smollm2-0", "was told of", func(Worker) bool { r, _, _ := f.told(); return len(r) == 2 })
			for range 10 {
				f.clock.Step(time.Second)
				r := good("a")
				r.InstanceId, r.ModelUid, r.PodUid = who()
				w.say(r)
				if got := f.heardAt(t, "smollm2-0"); got.State != Down || got.Loaded {
					t.Fatalf("got %+v", got.Member)
				}
				f.until(t, "smollm2-0", "left the snapshot's ring", func(Worker) bool {
					return f.Snapshot().Models["uid-1"][0].State == Down
				})
			}
			f.Close()
			if r, _, _ := f.told(); len(r) != 2 {
				t.Errorf("%d reports were handed on", len(r)-2)
			}
		})
	}
}

func TestWeightAndResumeComeFromReports(t *testing.T) {
	f, w := admitted(t)
	if m := f.Snapshot().Models["uid-1"][0]; m.Weight != 100 || m.Resumes {
		t.Errorf("got %+v", m)
	}
	for says, want := range map[uint32]int{1: 1, 50: 50, 1000: 1000, 1001: 1000, 4_000_000_000: 1000, 0: 100} {
		t.Run(fmt.Sprint(says), func(t *testing.T) {
			f.clock.Step(time.Second)
			r := good("a")
			r.RingWeightPercent, r.Resumes = says, says == 50
			w.say(r)
			f.heardAt(t, "smollm2-0")
			f.until(t, "smollm2-0", "changed its weight", func(Worker) bool {
				m := f.Snapshot().Models["uid-1"][0]
				return m.Weight == want && m.Resumes == (says == 50) && m.State == Up
			})
		})
	}
}

func TestSinceIsWhenAnInstanceFirstCameIn(t *testing.T) {
	f, w := admitted(t)
	first := f.clock.Now()
	if m := f.state(t, "smollm2-0", Up); !m.Since.Equal(first) {
		t.Errorf("in since %s, want %s", m.Since, first)
	}
	loading := good("a")
	loading.ModelLoaded = false
	f.clock.Step(time.Second)
	w.say(loading)
	f.state(t, "smollm2-0", Down)
	for range 2 {
		f.clock.Step(time.Second)
		w.say(good("a"))
		f.heardAt(t, "smollm2-0")
	}
	if m := f.state(t, "smollm2-0", Up); !m.Since.Equal(first) {
		t.Errorf("the same instance is in since %s, want %s", m.Since, first)
	}
	f.clock.Step(time.Second)
	w.say(good("b"))
	if m := f.state(t, "smollm2-0", Down); !m.Since.IsZero() {
		t.Errorf("another instance is in since %s before it is in", m.Since)
	}
	f.clock.Step(time.Second)
	w.say(good("b"))
	if m := f.state(t, "smollm2-0", Up); !m.Since.Equal(f.clock.Now()) {
		t.Errorf("another instance is in since %s, want %s", m.Since, f.clock.Now())
	}
}

func TestAnAnomalyIsShownAndToldWithoutAnotherSnapshot(t *testing.T) {
	p := newPack(t, 4)
	before := p.Snapshot()
	for i := range 16 * 14 { // 400 ms apart, so that 16 samples are a point
		p.clock.Step(400 * time.Millisecond)
		for j := range 4 {
			p.Measured(podOf(j), "a", BetweenTokens, 0.02*float64(1+9*(j/3)))
			p.Measured(podOf(j), "b", BetweenTokens, 1000)
			p.Measured(podOf(j), "a", BetweenTokens, -1)
			p.Measured(podOf(j), "a", signalCount, 1)
		}
		if i%2 == 0 {
			p.report(t)
		}
	}
	if p.Snapshot() != before {
		t.Error("there is another snapshot")
	}
	for _, w := range p.Workers() {
		want := ""
		if w.Pod == podOf(3) {
			want = "BetweenTokens"
		}
		if w.Anomaly != want {
			t.Errorf("%s has anomaly %q", w.Pod, w.Anomaly)
		}
	}
	p.Suspect(podOf(0), "a") // something that makes one
	for i, m := range p.Snapshot().Models["uid-1"] {
		if m.Anomaly != "" || m.Suspect != (i == 0) || p.Snapshot() == before {
			t.Errorf("the snapshot has %+v", m)
		}
	}
	if _, _, a := p.told(); len(a) != 1 || !a[0].On || a[0].Against != Peers || a[0].Pod != podOf(3) || a[0].ModelUID != "uid-1" {
		t.Errorf("told %+v", a)
	}
}
