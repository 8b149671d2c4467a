package agent

import (
	"testing"
	"time"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/scheduler"
)

func TestTimeInWhichTheProcessStoodStillIsNoStepsTime(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	step := scheduler.Work{Since: began}
	var s stopwatch
	for _, c := range []struct {
		name string
		work scheduler.Work
		at   time.Duration // after began
		want time.Duration
	}{
		{"it has just begun", step, 0, 0},
		{"half a look later", step, stallLook / 2, stallLook / 2},
		{"a look later", step, 3 * stallLook / 2, 3 * stallLook / 2},
		{"after an hour in which nothing ran", step, time.Hour, 7 * stallLook / 2},
		{"a look after that", step, time.Hour + stallLook, 9 * stallLook / 2},
		{"the clock was set back", step, 0, 9 * stallLook / 2},
		{"another step", scheduler.Work{Since: began.Add(time.Hour)}, time.Hour + stallLook/2, stallLook / 2},
		{"one that began long before it is looked at", scheduler.Work{Since: began.Add(2 * time.Hour)}, 3 * time.Hour, 2 * stallLook},
	} {
		if got := s.look(c.work, began.Add(c.at)); got != c.want {
			t.Errorf("%s: it took %s, want %s", c.name, got, c.want)
		}
	}
}

func TestAStepOnADeviceThatWasSlowAtTheLoadMayTakeLongerThanTheStallTime(t *testing.T) {
	o, halted, let := halt(1)
	load := device(o)
	p := start(t, func(path string, progress func(int)) (*engine.Loaded, error) {
		m, err := load(path, progress)
		m.Warm = time.Minute
		return m, err
	}, nil)
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	running := make(chan answer, 1)
	go func() { running <- generate(within(t), p.router(), "hi", 2) }()
	<-halted
	w, busy := p.a.progress.Now()
	if err := stall(w, 10*p.a.o.Server.Stall-1, p.a.o.Server.Stall); !busy || err != nil {
		t.Errorf("at work %t: %v", busy, err)
	}
	let()
	if a := <-running; a.err != nil {
		t.Error(a.err)
	}
}
