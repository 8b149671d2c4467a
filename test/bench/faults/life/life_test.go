package life

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
)

func TestNewConnectionsGoOnlyToRoutersThatAreReady(t *testing.T) {
	s := &service{ready: map[string]string{}}
	a, b := &rig.Router{Name: "a", URL: "http://127.0.0.1:1"}, &rig.Router{Name: "b", URL: "http://127.0.0.1:2"}
	if _, err := s.dial(t.Context(), "", ""); !errors.Is(err, errNobody) {
		t.Errorf("without a router: %v", err)
	}
	s.set(a, true)
	s.set(b, true)
	s.set(a, false)
	if s.has(a) || !s.has(b) || s.count() != 1 || s.ready["b"] != "127.0.0.1:2" {
		t.Errorf("ready: %v", s.ready)
	}
}

func TestAnswersBeforeTheModelsAreKnownAreJudgedByTheirStatus(t *testing.T) {
	var c cold
	for status, ready := range map[int]bool{0: false, 200: true, 404: false, -1: false, 500: false} {
		c.count(status, ready)
	}
	c.count(503, false)
	c.count(503, true)
	if c.missing != 1 || c.later != 1 || c.early != 1 || c.other != 2 {
		t.Errorf("counted: %+v", c)
	}
}

func TestTheShareIsOfAnswersThatAreWhole(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	all := []history.Client{{Status: 200, End: now}, {Status: 503, End: now}}
	if got := share(all); got != 50 {
		t.Errorf("%g %%", got)
	}
	if got := share(nil); !math.IsNaN(got) {
		t.Errorf("of none: %g %%", got)
	}
}
