package server

import (
	"errors"
	"testing"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/placement"
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
	g := &generator{state: func(string) workersState {
		return workersState{candidates: 1, stage: workerv1.Stage_STAGE_LOADED}
	}}
	for name, c := range map[string]struct {
		err     placement.NoWorkerError
		kind    gateway.Kind
		message string
	}{
		"nobody is in the ring": {placement.NoWorkerError{Candidates: 1, Loaded: 1}, gateway.Loading,
			"None of the model's 1 workers takes requests yet; the furthest is about to be admitted."},
		"the only one in the ring was asked": {placement.NoWorkerError{Candidates: 1, Loaded: 1, InRing: 1, Excluded: 1}, gateway.NoCapacity,
			"No worker of the model took the request."},
	} {
		t.Run(name, func(t *testing.T) {
			var f *gateway.Fault
			if err := g.fault(&gateway.Call{}, &c.err); !errors.As(err, &f) || f.Kind != c.kind || f.Message != c.message {
				t.Errorf("got %+v", f)
			}
		})
	}
}
