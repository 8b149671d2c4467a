package grpcserver

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	clocktesting "k8s.io/utils/clock/testing"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
)

func TestAJumpInLoadIsAChangeThatARouterActsOn(t *testing.T) {
	load := func(running, waiting int) engine.Stats {
		return engine.Stats{Running: running, Waiting: waiting, MaxSequences: 4}
	}
	blocks := func(used, total int64) engine.Stats {
		s := load(1, 0)
		s.KVBlocksUsed, s.KVBlocksTotal = &used, &total
		return s
	}
	for name, c := range map[string]struct {
		before, now engine.Stats
		want        bool
	}{
		"nothing":                                {load(0, 0), load(0, 0), false},
		"idle to busy":                           {load(0, 0), load(1, 0), true},
		"idle to waiting":                        {load(0, 0), load(0, 1), true},
		"busy to idle":                           {load(1, 0), load(0, 0), true},
		"one more of four":                       {load(1, 0), load(2, 0), false},
		"from waiting to running":                {load(1, 1), load(2, 0), false},
		"one less than full":                     {load(1, 0), load(3, 0), false},
		"full":                                   {load(3, 0), load(4, 0), true},
		"as many inside as may run":              {load(3, 0), load(3, 1), true},
		"more waiting than before":               {load(4, 0), load(4, 9), false},
		"a place is free again":                  {load(4, 0), load(3, 0), true},
		"no known limit":                         {engine.Stats{Running: 1}, engine.Stats{Running: 9}, false},
		"blocks up by just under ten points":     {blocks(100, 1000), blocks(199, 1000), false},
		"blocks up by ten points":                {blocks(100, 1000), blocks(200, 1000), true},
		"blocks down by ten points":              {blocks(200, 1000), blocks(100, 1000), true},
		"blocks of two sizes, under ten points":  {blocks(1, 7), blocks(24, 100), false},
		"blocks of two sizes, ten points":        {blocks(1, 10), blocks(200, 1000), true},
		"blocks that were not known":             {load(1, 0), blocks(900, 1000), false},
		"blocks that are not known":              {blocks(900, 1000), load(1, 0), false},
		"no blocks at all":                       {blocks(0, 0), blocks(0, 0), false},
		"more blocks than anybody has, unmoved":  {blocks(1<<27, 1<<28), blocks(1<<27, 1<<28), false},
		"more blocks than anybody has, all used": {blocks(0, 1<<28), blocks(1<<28, 1<<28), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := jumped(&c.before, &c.now); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// loaded is an engine whose figures a test sets. Each look at them is told.
type loaded struct {
	engine.Engine
	looked chan struct{}

	mu    sync.Mutex // guards stats
	stats engine.Stats
}

func (l *loaded) Stats() engine.Stats {
	l.looked <- struct{}{}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

func (l *loaded) Info() engine.Info { return engine.Info{} }

func (l *loaded) run(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Running = n
}

// reports is a stream that hands on what is sent.
type reports struct {
	grpc.ServerStream
	ctx  context.Context
	sent chan *workerv1.Report
}

func (r *reports) Context() context.Context { return r.ctx }

func (r *reports) Send(m *workerv1.Report) error {
	r.sent <- m
	return nil
}

// watching is a Watch on a clock that stands still unless the test moves it.
type watching struct {
	*Server
	worker *fake
	engine *loaded
	clock  *clocktesting.FakeClock
	sent   chan *workerv1.Report
	ended  chan error
}

// startWatch returns after the first report.
func startWatch(t *testing.T) *watching {
	t.Helper()
	w := &watching{engine: &loaded{looked: make(chan struct{})}, clock: clocktesting.NewFakeClock(time.Now()),
		sent: make(chan *workerv1.Report, 8), ended: make(chan error, 1)}
	w.engine.stats.MaxSequences = 4
	w.worker = &fake{status: Status{Stage: workerv1.Stage_STAGE_LOADED, Engine: w.engine}, changed: make(chan struct{})}
	w.Server = New(w.worker, nil, logr.Discard(), w.clock)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.ended <- w.Watch(&workerv1.WatchRequest{IntervalMilliseconds: 60_000}, &reports{ctx: ctx, sent: w.sent})
	}()
	t.Cleanup(func() {
		cancel()
		<-over
	})
	<-w.engine.looked
	<-w.sent
	return w
}

// look lets so much time pass that the load is looked at.
func (w *watching) look() {
	w.clock.Step(minInterval)
	<-w.engine.looked
}

func TestWatchReportsAJumpInLoadWithoutWaitingForTheInterval(t *testing.T) {
	w := startWatch(t)
	for range 5 {
		w.look() // nothing has happened
	}
	w.engine.run(1)
	w.look()
	<-w.engine.looked // for the report
	if r := <-w.sent; r.GetSequence() != 2 || r.GetLoad().GetRunning() != 1 {
		t.Errorf("report %d says that %d run; want the second, of one that runs", r.GetSequence(), r.GetLoad().GetRunning())
	}
	w.engine.run(2)
	w.look() // which is no jump
	w.engine.run(0)
	w.look()
	<-w.engine.looked
	if r := <-w.sent; r.GetSequence() != 3 || r.GetLoad().GetRunning() != 0 {
		t.Errorf("report %d says that %d run; want the third, of an idle worker", r.GetSequence(), r.GetLoad().GetRunning())
	}
}

func TestALoadThatJumpsAllTheTimeIsReportedOnceInATenthOfASecond(t *testing.T) {
	w := startWatch(t)
	for i := range 20 {
		for range 50 { // which nobody sees while no time passes
			w.engine.run(1)
			w.engine.run(0)
		}
		w.engine.run((i + 1) % 2)
		w.look()
		<-w.engine.looked
		if r := <-w.sent; r.GetSequence() != uint64(i+2) {
			t.Fatalf("after %d tenths of a second report %d is sent", i+1, r.GetSequence())
		}
	}
}

func TestTheLastReportTellsOfAChangeJustBeforeReportsEnd(t *testing.T) {
	for range 20 { // as which of two things is seen first is chance
		w := startWatch(t)
		w.worker.set(func(s *Status) { s.Stage, s.Reason, s.Engine = workerv1.Stage_STAGE_FAILED, "EngineStalled", nil })
		w.StopStreams()
		if err := <-w.ended; err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-w.sent:
			if r.GetModelLoaded() || r.GetReason() != "EngineStalled" {
				t.Fatalf("the last report is %v", r)
			}
		default:
			t.Fatal("the change was never reported")
		}
	}
}
