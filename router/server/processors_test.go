package server

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/api/cputime"
)

var update = flag.Bool("update", false, "rewrite transcripts")

func TestProcessorsTranscripts(t *testing.T) {
	if *update {
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}
	datadriven.Walk(t, "testdata/processors", func(t *testing.T, path string) {
		var w useWatch
		have, available := 1, 1
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			switch td.Cmd {
			case "new":
				w = useWatch{}
				td.ScanArgs(t, "have", &have)
				td.ScanArgs(t, "available", &available)
			case "available":
				if _, err := fmt.Sscan(td.CmdArgs[0].Key, &available); err != nil {
					t.Fatal(err)
				}
			case "work":
				var out string
				have, out = work(t, &w, have, available, td.Input)
				return out
			default:
				t.Fatalf("unknown command %q", td.Cmd)
			}
			return ""
		})
	})
}

// work has samples taken of work that is so many processors' and lasts so long, a kind a line. Of more than there are, there is
// only what they do. It is late where it waits for a processor longer than it should. What changes is told with the time since the kind began.
func work(t *testing.T, w *useWatch, have, available int, input string) (int, string) {
	var out strings.Builder
	for line := range strings.SplitSeq(input, "\n") {
		of, lasts, _ := strings.Cut(line, " for ")
		of, late := strings.CutSuffix(of, " late")
		need, err := strconv.ParseFloat(of, 64)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := time.ParseDuration(lasts)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s:", line)
		for at := sampleEvery; at <= whole; at += sampleEvery {
			used := time.Duration(min(need, float64(have)) * float64(sampleEvery))
			if n := w.step(have, available, use{used, sampleEvery, late}); n != have {
				have = n
				fmt.Fprintf(&out, " %d after %s,", n, at)
			}
		}
		fmt.Fprintf(&out, " has %d\n", have)
	}
	return have, out.String()
}

// machine is processors that are only thought of.
type machine struct {
	have, limit, asked int
	used               time.Duration
	late               bool
}

func (m *machine) all() int {
	m.asked++
	m.have = m.limit
	return m.limit
}

// on returns the processors of a machine, which has a tenth of a second of its clock between samples.
func (m *machine) on(clock *clocktesting.FakeClock) *processors {
	p := &processors{clock: clock, used: func() time.Duration { return m.used }, have: func() int { return m.have }, late: func() bool { return m.late },
		set: func(n int) { m.have = n }, all: m.all}
	p.at = clock.Now()
	return p
}

// spend has so many samples taken while so many processors are busy.
func (m *machine) spend(p *processors, clock *clocktesting.FakeClock, samples int, busy float64) {
	for range samples {
		clock.Step(sampleEvery)
		m.used += time.Duration(min(busy, float64(m.have)) * float64(sampleEvery))
		p.sample(clock.Now())
	}
}

func TestProcessorsThatRestAreGivenBackAndTakenAgain(t *testing.T) {
	clock, m := clocktesting.NewFakeClock(time.Unix(1e9, 0)), &machine{have: 4, limit: 4}
	p := m.on(clock)
	m.spend(p, clock, 30, 0)
	if m.have != 1 {
		t.Fatalf("%d processors after 3 s without work, want 1", m.have)
	}
	m.spend(p, clock, 1, 9)
	if m.have != 2 {
		t.Errorf("%d processors 100 ms after more work than for one, want 2", m.have)
	}
	m.spend(p, clock, 1, 9)
	if m.have != 4 || p.fewer {
		t.Errorf("%d processors 200 ms after more work than for all, want 4 and Go's own to follow (%v)", m.have, !p.fewer)
	}
}

func TestWorkThatWaitsGetsAProcessorMore(t *testing.T) {
	clock, m := clocktesting.NewFakeClock(time.Unix(1e9, 0)), &machine{have: 4, limit: 4}
	p := m.on(clock)
	m.spend(p, clock, 30, 0)
	m.late = true
	if m.spend(p, clock, 1, .1); m.have != 2 {
		t.Errorf("%d processors, want one more than 1", m.have)
	}
}

func TestALimitThatChangesIsHeeded(t *testing.T) {
	for name, c := range map[string]struct {
		busy   float64 // at first, of 8 processors
		limit  int     // that comes then
		after  int     // samples
		before int
		later  float64
		want   int
	}{
		"one that falls, by fewer than all":         {busy: 2.5, before: 4, limit: 2, after: 300, later: 1.9, want: 2},
		"one that falls, by all":                    {busy: 7, before: 8, limit: 2, after: 1, later: 1.9, want: 2},
		"one that rises, by one processor":          {busy: 0, before: 1, limit: 16, after: 5, later: 16, want: 16},
		"one that rises, by all":                    {busy: 7, before: 8, limit: 16, after: 2, later: 16, want: 16},
		"one that falls to what there is, by fewer": {busy: 2.5, before: 4, limit: 4, after: 300, later: 2.5, want: 4},
	} {
		t.Run(name, func(t *testing.T) {
			clock, m := clocktesting.NewFakeClock(time.Unix(1e9, 0)), &machine{have: 8, limit: 8}
			p := m.on(clock)
			m.spend(p, clock, 30, c.busy)
			if m.have != c.before {
				t.Fatalf("%d processors of 8, want %d", m.have, c.before)
			}
			m.limit = c.limit
			if !p.fewer {
				m.have = c.limit // Go's own doing
			}
			m.spend(p, clock, c.after, c.later)
			if m.have != c.want {
				t.Errorf("%d processors, want %d", m.have, c.want)
			}
		})
	}
}

func TestAProcessorThatRestsAsksForNothing(t *testing.T) {
	clock, m := clocktesting.NewFakeClock(time.Unix(1e9, 0)), &machine{have: 2, limit: 2}
	p := m.on(clock)
	m.spend(p, clock, 30, 0)
	m.asked = 0
	m.spend(p, clock, 1000, 0)
	if m.asked != 0 {
		t.Errorf("the limit is looked at %d times", m.asked)
	}
}

func TestProcessorsAreSampledUntilTheRouterEnds(t *testing.T) {
	clock, m := clocktesting.NewFakeClock(time.Unix(1e9, 0)), &machine{have: 2, limit: 2}
	p, sampled := m.on(clock), make(chan struct{})
	begun := false
	p.used = func() time.Duration {
		if begun {
			sampled <- struct{}{}
		}
		begun = true
		return 0
	}
	stop := p.start()
	for range 30 {
		clock.Step(sampleEvery)
		<-sampled
	}
	stop()
	if m.have != 1 {
		t.Errorf("%d processors after 3 s without work, want 1", m.have)
	}
}

func TestWorkIsLateWhereManyWaitedAndNotWhereFewDid(t *testing.T) {
	w := &waits{all: 1000, tardy: 100}
	for _, c := range []struct {
		more, tardy uint64
		want        bool
	}{{0, 0, false}, {3, 3, false}, {4, 4, true}, {80, 4, true}, {100, 4, false}, {100, 5, true}, {1000, 49, false}, {1000, 50, true}} {
		if got := w.count(w.all+c.more, w.tardy+c.tardy); got != c.want {
			t.Errorf("late where %d of %d waited: %v, want %v", c.tardy, c.more, got, c.want)
		}
	}
}

func TestAWaitIsLateFromTheBucketOfTwoMillisecondsOn(t *testing.T) {
	w := newWaits()
	if b := w.sample[0].Value.Float64Histogram().Buckets; w.first == 0 || b[w.first-1] >= lateAfter || b[w.first] < lateAfter {
		t.Errorf("bucket %d of %d is the first", w.first, len(b))
	}
}

func BenchmarkASampleOfProcessors(b *testing.B) {
	w := newWaits()
	for b.Loop() {
		w.late()
		cputime.Used()
	}
}

func TestGOMAXPROCSInTheEnvironmentIsLeftAlone(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent()) // what would follow the load has a goroutine
	t.Setenv("GOMAXPROCS", "3")
	followLoad()
}
