package server

import (
	"strings"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/router/heartbeat"
	"github.com/ringfleet/ringfleet/router/upstream"
)

func TestLongPromptsDoNotMakeAWorkerSlow(t *testing.T) {
	const pace = 250 * time.Microsecond // a token
	overhead := 20 * time.Millisecond
	for _, tokens := range []time.Duration{1, 100, 1000, 10_000, 100_000} {
		usual := tokens * pace
		got := samples(upstream.Measure{FirstToken: usual + overhead, Usual: usual})
		if len(got) != 1 || got[0].signal != heartbeat.FirstToken || got[0].value < 0.9 || got[0].value > 1.25 {
			t.Errorf("a prompt of %d tokens that took as long as expected makes %v", tokens, got)
		}
	}
	got := samples(upstream.Measure{FirstToken: 10 * time.Second, Usual: time.Second, BetweenTokens: 20 * time.Millisecond})
	if got[0].value < 9 || got[1] != (sample{heartbeat.BetweenTokens, 0.02}) {
		t.Errorf("ten times as long as expected makes %v", got)
	}
}

func TestAWorkerThatBecomesSlowIsCountedAndOneThatGetsLongPromptsIsNot(t *testing.T) {
	h := newHerd(t, 1, 1, 1)
	h.settle()
	r, w := h.routers[0], h.workers["w-0"]
	figure := func() string {
		t.Helper()
		_, text := r.get(2, "/metrics")
		for line := range strings.SplitSeq(text, "\n") {
			if strings.HasPrefix(line, "ringfleet_router_anomalies_total{") {
				return line
			}
		}
		return ""
	}
	calls := func(n int, first, usual time.Duration) {
		for range n {
			h.clock.Step(400 * time.Millisecond) // 16 samples are a point
			r.fleet.measured(w.pod, w.id(), upstream.Measure{FirstToken: first, Usual: usual})
		}
	}
	calls(16*10, time.Second, time.Second)
	calls(16*6, 10*time.Second, 10*time.Second)
	if got := figure(); got != "" {
		t.Errorf("after longer prompts there is %s", got)
	}
	calls(16*6, 10*time.Second, time.Second)
	if got, want := figure(), `ringfleet_router_anomalies_total{model="m",signal="FirstToken"} 1`; got != want {
		t.Errorf("of a slow worker there is %q, want %q", got, want)
	}
}
