package gateway

import (
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

func TestTokensAreCountedWhetherTheClientAsksForThemOrNot(t *testing.T) {
	for options, told := range map[string]int{
		``:                       0,
		`"stream_options":null,`: 0,
		`"stream_options":{},`:   0,
		`"stream_options":{"include_usage":null},`:  0,
		`"stream_options":{"include_usage":false},`: 0,
		`"stream_options":{"include_usage":true},`:  1,
	} {
		r := newRig(clock.RealClock{}, says("Hel", "lo"))
		wire := r.do("POST", pathChat, strings.Replace(askStream, "{", "{"+options, 1)).Body.String()
		if strings.Count(wire, `"usage":{`) != told || strings.Count(wire, `"choices":[]`) != told || !strings.HasSuffix(wire, "data: [DONE]\n\n") {
			t.Errorf("%s: the client was told of its tokens %d times, want %d: %s", options, strings.Count(wire, `"usage":{`), told, wire)
		}
		if log := r.logged.String(); !strings.Contains(log, `"prompt_tokens":9,"completion_tokens":2,"cached_tokens":4`) {
			t.Errorf("%s: logged %s", options, log)
		}
	}
}

func TestNewTimeoutsHoldFromTheNextRequestOn(t *testing.T) {
	r := newRig(clock.RealClock{}, says("Hi"))
	r.do("POST", pathChat, ask)
	r.SetState(NewState([]Model{{UID: "u1", Name: "small", ServedNames: []string{"small"}}}, Settings{FirstByte: 3 * time.Minute, Idle: time.Hour}))
	r.do("POST", pathChat, ask)
	before, after := r.script.calls[0], r.script.calls[1]
	if before.FirstByte != 2*time.Minute || before.Idle != time.Minute || after.FirstByte != 3*time.Minute || after.Idle != time.Hour {
		t.Errorf("%v and %v, then %v and %v", before.FirstByte, before.Idle, after.FirstByte, after.Idle)
	}
}
