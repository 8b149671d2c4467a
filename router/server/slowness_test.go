package server

import (
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
