package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/gpu"
	"github.com/ringfleet/ringfleet/worker/scheduler"
)

func TestADeviceHasStalledWhenOneCallTakesTheStallTimeForEachStepThatItIsWorth(t *testing.T) {
	for name, c := range map[string]struct {
		steps         int
		usual, silent time.Duration
		want          bool
	}{
		"a step that has just begun":       {1, 0, 0, false},
		"a step just before the time":      {1, 0, time.Minute - 1, false},
		"a step at the time":               {1, 0, time.Minute, true},
		"a step far beyond it":             {1, 0, time.Hour, true},
		"an input worth seven, before":     {7, 0, 7*time.Minute - 1, false},
		"an input worth seven, at its end": {7, 0, 7 * time.Minute, true},
		"a fast device":                    {1, time.Second, time.Minute, true},
		"a slow device, before":            {1, 10 * time.Second, 200*time.Second - 1, false},
		"a slow device, at its end":        {1, 10 * time.Second, 200 * time.Second, true},
		"a slow device, two steps":         {2, 10 * time.Second, 400*time.Second - 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := stall(scheduler.Work{Steps: c.steps, Usual: c.usual}, c.silent, time.Minute)
			if (err != nil) != c.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

// halt is a device whose steps wait from the n-th on until the test lets them go on.
func halt(from int) (o sim.Options, halted <-chan struct{}, let func()) {
	at, going, n := make(chan struct{}), make(chan struct{}), 0
	o = sim.Options{Text: "hello", Before: func(*engine.Batch) error {
		if n++; n == from {
			close(at)
		}
		if n >= from {
			<-going
		}
		return nil
	}}
	return o, at, func() { close(going) }
}

// probe asks the worker's own handler, as its listener may have been closed.
func (p *process) probe(path string) *httptest.ResponseRecorder {
	r := httptest.NewRecorder()
	p.a.handler().ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
	return r
}

func TestAStepThatNeverEndsIsReportedAndEndsTheWorker(t *testing.T) {
	o, halted, let := halt(3)
	p := start(t, device(o), nil)
	defer let()
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	c := p.router()
	watch, err := c.Watch(within(t), &workerv1.WatchRequest{IntervalMilliseconds: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || !r.GetModelLoaded() {
		t.Fatalf("before: %v, %v", r, err)
	}
	running := make(chan answer, 1)
	go func() { running <- generate(within(t), c, "hi", 10) }()
	<-halted
	p.clock.Step(p.a.o.Server.Stall)
	waitFor(t, "the stall is seen", func() bool {
		p.clock.Step(stallLook)
		return p.stage() == workerv1.Stage_STAGE_FAILED
	})
	for {
		r, err := watch.Recv()
		if err != nil {
			t.Fatalf("the stall was not reported: %v", err)
		}
		if r.GetModelLoaded() {
			continue // a jump in load, or an interval
		}
		if r.GetReason() != "EngineStalled" || !strings.Contains(r.GetMessage(), "--engine-stall") {
			t.Errorf("the report is %v", r)
		}
		break
	}
	if r := p.probe("/health"); !strings.Contains(r.Body.String(), `"model_loaded":false`) || !strings.Contains(r.Body.String(), `"reason":"EngineStalled"`) {
		t.Errorf("/health says %s", r.Body)
	}
	for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		if r := p.probe(path); r.Code != want {
			t.Errorf("%s is %d, want %d", path, r.Code, want)
		}
	}
	var stalled *stalledError
	if err := p.end(); !errors.As(err, &stalled) {
		t.Errorf("it ended with %v", err)
	}
	if a := <-running; grpcstatus.Code(a.err) != codes.Unavailable {
		t.Errorf("the request ended with %v", a.err)
	}
}

func TestAStepThatNeverEndsEndsADrain(t *testing.T) {
	o, halted, let := halt(3)
	p := start(t, device(o), nil)
	defer let()
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	c := p.router()
	running := make(chan answer, 1)
	go func() { running <- generate(within(t), c, "hi", 10) }()
	<-halted
	p.kill()
	before := p.clock.Now()
	var stalled *stalledError
	if err := p.end(); !errors.As(err, &stalled) {
		t.Errorf("it ended with %v", err)
	}
	if took := p.clock.Since(before); took >= p.a.o.DrainTimeout {
		t.Errorf("it drained for %s", took)
	}
	<-running
}

// unclosable is a device that can't be closed before the test lets it.
type unclosable struct {
	engine.Executor
	going chan struct{}
}

func (u *unclosable) Close() error {
	<-u.going
	return u.Executor.Close()
}

func TestADeviceThatCanNotBeClosedIsLeftToTheEndOfTheProcess(t *testing.T) {
	going := make(chan struct{})
	defer close(going)
	load := device(sim.Options{})
	p := start(t, func(path string, progress func(int)) (*engine.Loaded, error) {
		m, err := load(path, progress)
		m.Executor = &unclosable{m.Executor, going}
		return m, err
	}, nil)
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	p.kill()
	var stalled *stalledError
	if err := p.end(); !errors.As(err, &stalled) {
		t.Errorf("it ended with %v", err)
	}
}

func TestAnEngineThatBreaksInADrainEndsTheWorkerWithItsError(t *testing.T) {
	may := make(chan struct{})
	p := start(t, device(sim.Options{Text: "x", Before: func(*engine.Batch) error {
		<-may
		return fmt.Errorf("lost: %w", engine.ErrFatal)
	}}), nil)
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	c := p.router()
	running := make(chan answer, 1)
	go func() { running <- generate(within(t), c, "hi", 10) }()
	waitFor(t, "the request runs", func() bool { return p.a.state.metrics().Stats.Running == 1 })
	p.kill()
	waitFor(t, "draining", func() bool { now, _ := p.a.state.Status(); return now.Draining })
	close(may)
	if a := <-running; grpcstatus.Code(a.err) != codes.Internal {
		t.Errorf("the request ended with %v", a.err)
	}
	if err := p.end(); !errors.Is(err, engine.ErrFatal) {
		t.Errorf("the worker ended with %v", err)
	}
}

func TestAGPUThatBreaksInADrainEndsItThoughAStepHangs(t *testing.T) {
	o, halted, let := halt(3)
	g := &breaking{}
	p := startBy(t, device(o), func(o *Options) { o.GPU.Layers = -1 }, func(a *agent, ctx context.Context) error { return a.runOn(ctx, g) })
	defer let()
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	c := p.router()
	running := make(chan answer, 1)
	go func() { running <- generate(within(t), c, "hi", 10) }()
	<-halted
	p.kill()
	waitFor(t, "draining", func() bool { now, _ := p.a.state.Status(); return now.Draining })
	g.broken.Store(true)
	var sick *gpu.UnhealthyError
	if err := p.end(); !errors.As(err, &sick) {
		t.Errorf("the worker ended with %v", err)
	}
	<-running
}

func TestAFailureJustBeforeTheEndOfADrainCounts(t *testing.T) {
	p := start(t, device(sim.Options{}), nil)
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	lost := errors.New("lost")
	p.a.engineLost(lost) // with which the engine is gone, too, so that there is nothing to wait for
	p.kill()
	if err := p.end(); !errors.Is(err, lost) {
		t.Errorf("the worker ended with %v", err)
	}
}

func TestAWorkerNeedsAStallTime(t *testing.T) {
	o := parse(t, nil, "--model=m", "--namespace=n", "--engine-stall=0s")
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "--engine-stall 0s") {
		t.Errorf("got %v", err)
	}
}
