package fetch

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// reports collects what a meter says.
type reports struct{ got chan Progress }

func (r reports) next(t *testing.T) Progress {
	t.Helper()
	select {
	case p := <-r.got:
		return p
	case <-time.After(time.Minute):
		t.Fatal("no report")
		return Progress{}
	}
}

func TestProgressIsReportedAtIntervalsWithRateAndTime(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	r := reports{make(chan Progress, 100)}
	m := newMeter(c, func(p Progress) { r.got <- p })
	if p := r.next(t); p.Stage != Listing || p.Total != 0 {
		t.Errorf("the first report is %+v", p)
	}
	m.begin(Fetching, 10_000)
	m.file(Fetching, "m.gguf", 0)
	for range 1000 {
		m.add(1) // a thousand changes, and one report
	}
	c.Step(every)
	if p := r.next(t); p.Done != 1000 || p.Total != 10_000 || p.BytesPerSecond != 4000 || p.Left != 2*time.Second || p.File != "m.gguf" {
		t.Errorf("got %+v", p)
	}
	for range 8 {
		m.add(500)
		c.Step(every)
		r.next(t)
	}
	m.add(1000)
	c.Step(every)
	if p := r.next(t); p.Done != 6000 || p.BytesPerSecond != 2400 || p.Left != 2*time.Second {
		t.Errorf("after two seconds and a half: %+v", p)
	}
	m.stop(true)
	if p := r.next(t); p.Stage != Ready || p.Done != 10_000 || p.BytesPerSecond != 0 || p.Left != 0 {
		t.Errorf("the last report is %+v", p)
	}
	if len(r.got) != 0 {
		t.Errorf("%d reports too many", len(r.got))
	}
}

func TestAFailureIsTheLastReportThatItCameTo(t *testing.T) {
	r := reports{make(chan Progress, 100)}
	m := newMeter(clocktesting.NewFakeClock(time.Unix(0, 0)), func(p Progress) { r.got <- p })
	r.next(t)
	m.begin(Fetching, 100)
	m.add(40)
	m.stop(false)
	if p := r.next(t); p.Stage != Fetching || p.Done != 40 || p.Total != 100 {
		t.Errorf("got %+v", p)
	}
}

func TestAFileThatBeginsAnewHasNoNegativeRate(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	m := newMeter(c, nil)
	defer m.stop(false)
	m.begin(Fetching, 100)
	m.add(80)
	m.now()
	m.add(-80)
	c.Step(time.Second)
	if p := m.now(); p.BytesPerSecond != 0 || p.Done != 0 {
		t.Errorf("got %+v", p)
	}
}
