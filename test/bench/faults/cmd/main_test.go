package main

import (
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/command"
)

func TestAPartDoesNotReplaceAWholeRun(t *testing.T) {
	for want, all := range map[string][]options{"faults": {{}, {command.Flags{Update: true}}}, "faults-partial": {{command.Flags{Only: "F01"}}, {command.Flags{Quick: true}}}} {
		for _, o := range all {
			if got := o.file(); got != want {
				t.Errorf("%+v writes %s, want %s", o, got, want)
			}
		}
	}
}

func TestAWholeRunFitsIntoFifteenMinutes(t *testing.T) {
	var all time.Duration
	for _, x := range trials() {
		if x.Takes <= 0 {
			t.Errorf("%s %s does not say how long it takes", x.ID, x.Kind)
		}
		all += x.Takes
	}
	if all > 15*time.Minute {
		t.Errorf("all take %s", all)
	}
}
