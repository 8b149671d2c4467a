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

// stalledError is a device in this process that is at one call for too long. Nothing can stop what the library does but the
// end of the process.
type stalledError struct{ silent, most time.Duration }

func (e *stalledError) Error() string {
	return fmt.Sprintf("the engine has been in one call of its library for %s; at most %s are allowed (--engine-stall for each step): "+
		"the process ends, to be started again", e.silent.Round(time.Second), e.most)
}

// stall returns why a device that is at w counts as stalled, or nil. Each step that w is worth may take the stall time.
func stall(w scheduler.Work, now time.Time, most time.Duration) error {
	most *= time.Duration(w.Steps)
	if silent := now.Sub(w.Since); silent >= most {
		return &stalledError{silent, most}
	}
	return nil
}

// watchSteps reports a loaded model's device that has stalled, and ends the process. It returns then, or when ctx ends.
func (a *agent) watchSteps(ctx context.Context) {
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
		if err := stall(w, a.clock.Now(), a.o.Server.Stall); err != nil {
			a.state.failed(string(openai.Stalled), err.Error())
			a.fail(err)
			close(a.stalled)
			return
		}
	}
}
