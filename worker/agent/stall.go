package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine/openai"
	"github.com/ringfleet/ringfleet/worker/scheduler"
)

// stallLook is how often the agent looks whether the device has moved on.
const stallLook = time.Second

// stallSteps is how many times as long a step may take as the one that was timed when the model was loaded, where that is more
// than the stall time. That one has fewer tokens and no context before them.
const stallSteps = 20

// stalledError is a device in this process that is at one call for too long. Nothing can stop what the library does but the
// end of the process.
type stalledError struct{ silent, most time.Duration }

func (e *stalledError) Error() string {
	return fmt.Sprintf("the engine has been in one call of its library for %s; at most %s are allowed (for each step --engine-stall, or "+
		"%d times what one took at the load where that is more): "+
		"the process ends, to be started again", e.silent.Round(time.Second), e.most, stallSteps)
}

// stall returns why a device that has been at w for a time counts as stalled, or nil. Each step that w is worth may take the
// stall time, and more on a device that is known to be slow.
func stall(w scheduler.Work, silent, most time.Duration) error {
	most = max(most, stallSteps*w.Usual) * time.Duration(w.Steps)
	if silent >= most {
		return &stalledError{silent, most}
	}
	return nil
}

// stopwatch measures the call under way from look to look. Where the whole process stood still, as in a frozen control group
// or a paused machine, the device did too: between two looks no more counts than twice their interval.
type stopwatch struct {
	since, looked time.Time
	silent        time.Duration
}

// look returns how long the device has been at w.
func (s *stopwatch) look(w scheduler.Work, now time.Time) time.Duration {
	if !s.since.Equal(w.Since) {
		*s = stopwatch{since: w.Since, looked: w.Since}
	}
	s.silent += min(max(now.Sub(s.looked), 0), 2*stallLook)
	s.looked = now
	return s.silent
}

// watchSteps reports a loaded model's device that has stalled, and ends the process. It returns then, or when ctx ends.
func (a *agent) watchSteps(ctx context.Context) {
	var watch stopwatch
	ticker := a.clock.NewTicker(stallLook)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
		w, busy := a.progress.Now()
		if !busy || !a.holds() {
			continue // adapters are loaded before the model counts as loaded, from whatever disk
		}
		if err := stall(w, watch.look(w, a.clock.Now()), a.o.Server.Stall); err != nil {
			a.state.failed(string(openai.Stalled), err.Error())
			a.fail(err)
			close(a.stalled)
			return
		}
	}
}
