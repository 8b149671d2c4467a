package main

import (
	"strings"
	"testing"
	"time"
)

// at is a repetition whose moments lie one unit apart.
func at(unit time.Duration) repetition {
	t := time.Unix(1000, 0)
	next := func() time.Time { t = t.Add(unit); return t }
	return repetition{deleted: next(), created: next(), scheduled: next(), pulled: next(), began: next(), loaded: next(), token: next(), inRing: next(), answered: next(), refused: 3}
}

func TestFiguresAreMediansAndSayWhetherTheirGoalHolds(t *testing.T) {
	got := map[string]struct {
		value float64
		holds bool
	}{}
	for _, f := range figures([]repetition{at(3 * time.Second), at(time.Second), at(2 * time.Second)}) {
		got[f.Name] = struct {
			value float64
			holds bool
		}{f.Value, f.Holds}
	}
	for name, want := range map[string]struct {
		value float64
		holds bool
	}{
		"worker deleted by force → successor in the ring":          {14, false},
		"worker deleted by force → successor in the ring, slowest": {21, true},
		"process start → first token, straight from the worker":    {4, false},
		"created → scheduled":                                      {2, true},
		"worker deleted → first token through the router":          {16, true},
		"requests without an answer meanwhile, one at a time":      {3, true},
	} {
		if got[name] != want {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
	if f := figures([]repetition{at(time.Second / 2)}); !f[0].Holds || !f[1].Holds {
		t.Errorf("a quick start breaks its goals: %+v", f[:2])
	}
}

func TestAMedianOfAnEvenNumberLiesBetweenTheTwoInTheMiddle(t *testing.T) {
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Errorf("%v", m)
	}
}

func TestAWorkersLogTellsWhenItStartedAndWhomItServed(t *testing.T) {
	r := read(`llama: not ours
{"time":"2026-01-02T03:04:05.5Z","level":"INFO","msg":"The worker starts","model":"cold"}
{"time":"2026-01-02T03:04:06Z","level":"INFO","msg":"The model is loaded"}
{"time":"2026-01-02T03:04:07Z","level":"INFO","msg":"A generate call ended","request":"a","code":"Unavailable"}
{"time":"2026-01-02T03:04:08Z","level":"INFO","msg":"A generate call ended","request":"b"}
{"time":"2026-01-02T03:04:09Z","level":"INFO","msg":"The model is loaded"}
`)
	if d := r.loaded.Sub(r.starts); d != 500*time.Millisecond || r.served["a"] || !r.served["b"] {
		t.Errorf("%+v", r)
	}
}

func TestAMomentThatWasNotSeenIsNamed(t *testing.T) {
	r := at(time.Second)
	if err := r.lacks(); err != nil {
		t.Error(err)
	}
	r.pulled = time.Time{}
	if err := r.lacks(); err == nil || !strings.HasSuffix(err.Error(), ": its images") {
		t.Errorf("%v", err)
	}
}
