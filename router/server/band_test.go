package server

import (
	"strings"
	"testing"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/discovery"
)

func TestTheFiguresSayInWhichBandAModelIs(t *testing.T) {
	r := start(t, func(*Options) {})
	for _, w := range r.workers {
		w.mu.Lock()
		w.load = &workerv1.Load{KvBlocksTotal: new(uint64(100)), KvBlocksUsed: new(uint64(70)), KvBlockTokens: 16}
		w.mu.Unlock()
	}
	r.ready()
	band := func(want string) {
		r.eventually("the band is "+want, func() bool {
			_, figures := r.get(2, "/metrics")
			return strings.Contains(figures, `ringfleet_router_admission_band{model="m"} `+want+"\n")
		})
	}
	band("0")
	for want, a := range map[string]discovery.Admission{
		"1": {WatchPercent: 70, ScaleOutPercent: 71, AdmitPercent: 90, RefusePercent: 95},
		"2": {WatchPercent: 60, ScaleOutPercent: 70, AdmitPercent: 90, RefusePercent: 95},
		"3": {WatchPercent: 50, ScaleOutPercent: 60, AdmitPercent: 70, RefusePercent: 95},
		"4": {WatchPercent: 40, ScaleOutPercent: 50, AdmitPercent: 60, RefusePercent: 70},
	} {
		state := r.fleetState()
		state.Settings.Admission = a
		r.states <- state
		band(want)
	}
}
