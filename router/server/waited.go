package server

import (
	"errors"
	"fmt"
	"time"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/queue"
)

// waited puts an error of the queue into the gateway's words; nil for any other.
func (g *generator) waited(c *gateway.Call, err error) error {
	var full *queue.FullError
	var refused *queue.RefusedError
	var late *queue.TimeoutError
	var held *queue.HoldFullError
	f := &gateway.Fault{Kind: gateway.Busy, Err: err, Spread: true} // the queue has spread them
	switch {
	case errors.As(err, &full):
		f.Code, f.RetryAfter = "queue_full", full.RetryAfter
		f.Message = fmt.Sprintf("The model is busy and as much waits for it as may: %d of %d %s of the %s.", full.Waiting, full.Limit, full.What, full.Of)
		if full.What == "seconds" {
			f.Message = fmt.Sprintf("The model is busy: the request would wait for some %d seconds, and may for %d.", full.Waiting, full.Limit)
		}
	case errors.As(err, &refused):
		f.Code, f.RetryAfter = "refused_for_tier", refused.RetryAfter
		f.Message = fmt.Sprintf("The model is too busy for the tier %q: its workers are %.0f %% full, and %d requests go first.", refused.Tier, refused.Percent, refused.Ahead)
	case errors.As(err, &late) && late.Holding:
		hold(f, g.fleet.state(c.ModelUID), late.RetryAfter)
		f.Message += fmt.Sprintf(" The request has waited %s for one.", late.Waited.Round(time.Second))
	case errors.As(err, &late):
		f.Code, f.RetryAfter = "queue_timeout", late.RetryAfter
		f.Message = fmt.Sprintf("The request has waited %s for room on the model's workers, and %d others go first.", late.Waited.Round(time.Second), late.Ahead)
	case errors.As(err, &held):
		hold(f, g.fleet.state(c.ModelUID), held.RetryAfter)
		f.Code = "hold_full"
		f.Message += fmt.Sprintf(" As much waits for one as may: %d of %d %s of the %s.", held.Held, held.Limit, held.What, held.Of)
	case errors.Is(err, queue.ErrGone):
		f.Kind, f.Code, f.Message = gateway.NoAdapter, "model_not_found", "The model has been removed while the request waited."
	case errors.Is(err, queue.ErrClosed):
		return gateway.ErrShutdown
	default:
		return nil
	}
	return f
}

// mostRetry is the latest that a client is told to come back, with what the gateway adds by chance.
const mostRetry = 50 * time.Second

// hold says what f's request waits for, and to come back when the worker may be there, if that can be told.
func hold(f *gateway.Fault, w workersState, after time.Duration) {
	f.Kind, f.Message = w.say()
	if left := min(w.left, mostRetry); left > after {
		after, f.Spread = left, false
	}
	f.RetryAfter = after
}

// workersState is what a model's workers do while none of them takes requests.
type workersState struct {
	sound, candidates, failed int            // sound ones are in the ring and not suspect
	stage                     workerv1.Stage // of the one that is furthest
	percent                   *uint32
	left                      time.Duration // until the stage is done; 0: unknown
}

// say tells a client what it waits for.
func (w workersState) say() (gateway.Kind, string) {
	switch {
	case w.candidates == 0:
		return gateway.NoCapacity, "The model has no worker now."
	case w.failed == w.candidates:
		return gateway.NoCapacity, fmt.Sprintf("None of the model's %d workers can load it; their InferenceModel says why.", w.candidates)
	}
	doing := map[workerv1.Stage]string{
		workerv1.Stage_STAGE_FETCHING: "fetching the weights",
		workerv1.Stage_STAGE_LOADING:  "loading the model",
		workerv1.Stage_STAGE_LOADED:   "about to be admitted",
		workerv1.Stage_STAGE_DRAINING: "going away",
	}[w.stage]
	if doing == "" {
		doing = "not heard yet"
	}
	if w.percent != nil {
		doing += fmt.Sprintf(", %d %% done", *w.percent)
	}
	if w.left > 0 {
		doing += fmt.Sprintf(", some %d s left", int((w.left+time.Second-1)/time.Second))
	}
	return gateway.Loading, fmt.Sprintf("None of the model's %d workers takes requests yet; the furthest is %s.", w.candidates, doing)
}
