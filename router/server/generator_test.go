package server

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/queue"
	"github.com/ringfleet/ringfleet/router/upstream"
)

func TestEveryErrorOfACallHasAKind(t *testing.T) {
	for err, want := range map[error]gateway.Kind{
		upstream.ErrRefused: gateway.NoCapacity, upstream.ErrBusy: gateway.Busy, upstream.ErrLost: gateway.Lost, upstream.ErrFailed: gateway.Lost,
		upstream.ErrFirstByte: gateway.NoFirstByte, upstream.ErrIdle: gateway.Silent, upstream.ErrSlowReader: gateway.SlowReader,
		upstream.ErrNoAdapter: gateway.NoAdapter, upstream.ErrNoEmbeddings: gateway.Invalid,
		upstream.ErrTooLarge: gateway.TooLarge,
	} {
		var f *gateway.Fault
		got := (&generator{}).fault(&gateway.Call{}, &upstream.Error{Kind: err, Worker: "w"})
		if !errors.As(got, &f) || f.Kind != want || f.Worker != "w" {
			t.Errorf("%v became %+v, want kind %d", err, got, want)
		}
	}
}

func TestWhyNobodyTookARequest(t *testing.T) {
	for name, c := range map[string]struct {
		state   workersState
		kind    gateway.Kind
		message string
		waits   string
	}{
		"there is none": {workersState{}, gateway.NoCapacity, "The model has no worker now.", "waiting for a worker"},
		"none can load it": {workersState{candidates: 2, failed: 2}, gateway.NoCapacity,
			"None of the model's 2 workers can load it; their InferenceModel says why.", "waiting for a worker: stage=starting"},
		"nobody is in the ring": {workersState{candidates: 1, stage: workerv1.Stage_STAGE_LOADED}, gateway.Loading,
			"None of the model's 1 workers takes requests yet; the furthest is about to be admitted.", "waiting for a worker: stage=loaded"},
		"one is on its way": {workersState{candidates: 1, stage: workerv1.Stage_STAGE_FETCHING, percent: new(uint32(40)), left: 1500 * time.Millisecond}, gateway.Loading,
			"None of the model's 1 workers takes requests yet; the furthest is fetching the weights, 40 % done, some 2 s left.",
			"waiting for a worker: stage=fetching percent=40 eta=2s"},
		"somebody serves": {workersState{sound: 1, candidates: 1, stage: workerv1.Stage_STAGE_LOADED}, gateway.Loading,
			"None of the model's 1 workers takes requests yet; the furthest is about to be admitted.", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if kind, message := c.state.say(); kind != c.kind || message != c.message {
				t.Errorf("%d %q", kind, message)
			}
			if got := c.state.waits(); got != c.waits {
				t.Errorf("waits: %q", got)
			}
		})
	}
}

func TestAWorkerThatWasAskedAndRefusedIsNoWantOfWorkers(t *testing.T) {
	var f *gateway.Fault
	err := (&generator{}).fault(&gateway.Call{}, &placement.NoWorkerError{Candidates: 1, Loaded: 1, InRing: 1, Excluded: 1})
	if !errors.As(err, &f) || f.Kind != gateway.NoCapacity || f.Message != "No worker of the model took the request." {
		t.Errorf("got %+v", f)
	}
}

func TestWhatTheQueueSaysBecomesWhatClientsGet(t *testing.T) {
	for code, c := range map[string]struct {
		err  error
		kind gateway.Kind
	}{
		"queue_full":       {&queue.FullError{Of: "model", What: "requests", Waiting: 3, Limit: 3, RetryAfter: 2 * time.Second}, gateway.Busy},
		"refused_for_tier": {&queue.RefusedError{Tier: "free", Percent: 91, RetryAfter: 2 * time.Second}, gateway.Busy},
		"queue_timeout":    {&queue.TimeoutError{Waited: time.Second, RetryAfter: 2 * time.Second}, gateway.Busy},
	} {
		var f *gateway.Fault
		if err := (&generator{}).fault(&gateway.Call{}, c.err); !errors.As(err, &f) || f.Kind != c.kind || f.Code != code || f.RetryAfter != 2*time.Second || !f.Spread {
			t.Errorf("%s: %+v", code, f)
		}
	}
	var gone *gateway.Fault
	if err := (&generator{}).fault(&gateway.Call{}, queue.ErrGone); !errors.As(err, &gone) || gone.Code != "model_not_found" || gone.Kind != gateway.NoAdapter {
		t.Errorf("a model that is gone: %+v", gone)
	}
	if err := (&generator{}).fault(&gateway.Call{}, queue.ErrClosed); !errors.Is(err, gateway.ErrShutdown) {
		t.Errorf("a closed queue: %v", err)
	}
}

func TestWhoWaitsForAWorkerIsSpreadByTheQueueUnlessTheWorkerComesLater(t *testing.T) {
	for left, want := range map[time.Duration]gateway.Fault{
		0:                {RetryAfter: 6 * time.Second, Spread: true},
		6 * time.Second:  {RetryAfter: 6 * time.Second, Spread: true},
		30 * time.Second: {RetryAfter: 30 * time.Second},
		time.Hour:        {RetryAfter: mostRetry},
	} {
		f := gateway.Fault{Spread: true}
		hold(&f, workersState{candidates: 1, left: left}, 6*time.Second)
		if f.RetryAfter != want.RetryAfter || f.Spread != want.Spread {
			t.Errorf("the worker comes in %s: %s, spread %v", left, f.RetryAfter, f.Spread)
		}
	}
}

func TestTheTimeThatAStageNeedsIsThatOfItsSpeed(t *testing.T) {
	t0 := time.Unix(1_700_000_000, 0)
	at := func(seconds int, stage workerv1.Stage, percent uint32) (time.Time, *workerv1.Report) {
		return t0.Add(time.Duration(seconds) * time.Second), &workerv1.Report{InstanceId: "a", Stage: stage, ProgressPercent: &percent}
	}
	var p progress
	hear := func(now time.Time, r *workerv1.Report) { p.hear(r, now) }
	hear(at(0, workerv1.Stage_STAGE_FETCHING, 10))
	if left := p.left(t0); left != 0 {
		t.Errorf("after one report %s are left, which nobody can know", left)
	}
	hear(at(10, workerv1.Stage_STAGE_FETCHING, 30))
	if left := p.left(t0.Add(12 * time.Second)); left != 33*time.Second {
		t.Errorf("%s are left, want 33 s: 70 %% at 2 %% a second, 2 s ago", left)
	}
	hear(at(40, workerv1.Stage_STAGE_LOADING, 0))
	if left := p.left(t0.Add(40 * time.Second)); left != 0 {
		t.Errorf("a stage that has just begun needs %s", left)
	}
}

func TestARequestThatTakesSeveralTurnsIsCountedOnceWithAllThatItWaited(t *testing.T) {
	r := start(t, func(*Options) {})
	r.ready()
	g, c := &generator{r.fleet}, &gateway.Call{RequestID: "q", ModelUID: "uid-m"}
	q := placement.Request{ModelUID: "uid-m", RequestID: "q", Key: []byte("k")}
	w := way{waited: time.Hour, held: true}
	first, err := g.turn(t.Context(), c, &q, &w, func(*placement.Ticket, int) error { return placement.ErrNoRoom })
	if !errors.Is(err, placement.ErrNoRoom) || w.waited != time.Hour || !w.held {
		t.Fatalf("%v, %v, remembered are %+v", first, err, w)
	}
	var told []int
	pass, err := g.run(t.Context(), c, &q, func(ticket *placement.Ticket, lost int) error {
		if told = append(told, lost); len(told) == 1 {
			return errors.Join(placement.ErrNoRoom, &upstream.Error{Kind: upstream.ErrLost, Lost: 1})
		}
		ticket.Ended(placement.Result{}, time.Now())
		return nil
	})
	if err != nil || !slices.Equal(told, []int{0, 1}) {
		t.Fatalf("%v, told of %v losses", err, told)
	}
	pass.Done(unknown)
	if _, figures := r.get(2, "/metrics"); !strings.Contains(figures, `ringfleet_router_queue_wait_seconds_count{model="m"} 1`) {
		t.Errorf("counted otherwise: %s", figures)
	}
}
