package openai

import (
	"fmt"
	"math"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// Reason is why a server does not serve its model.
type Reason string

// The reasons; the empty one means that it does.
const (
	// Starting: it has not been loaded since the worker began to watch it.
	Starting Reason = "EngineStarting"
	// Gone: nobody listens, so its process has ended.
	Gone Reason = "EngineGone"
	// Restarted: another process has taken its place.
	Restarted Reason = "EngineRestarted"
	// Unhealthy: its health check failed three times in a row.
	Unhealthy Reason = "EngineUnhealthy"
	// Stalled: requests run, and it made no token for the stall time.
	Stalled Reason = "EngineStalled"
)

// State says whether a server serves its model.
type State struct {
	Loaded bool
	// Epoch counts the server's processes as far as they can be told apart, from 1 with the first that was loaded. Another
	// epoch means that everything known of the old one is void: its caches, adapters and counters.
	Epoch   uint64
	Reason  Reason
	Message string // for people; it holds nothing of a request
}

func (s State) err() error {
	if s.Loaded {
		return nil
	}
	return fmt.Errorf("%w: %s: %s", engine.ErrNotLoaded, s.Reason, s.Message)
}

// maxMisses is how many health checks in a row may fail.
const maxMisses = 3

// watch judges a server by what is seen of it. It does nothing and reads no clock.
type watch struct {
	stall time.Duration
	state State

	misses   int
	gone     bool // since it was loaded, its process is known to have ended
	started  *float64
	made     *float64  // tokens that it has computed or generated, by its own count
	progress time.Time // when it last made progress, or had nothing to do
}

// loaded books a server that has passed every check.
func (w *watch) loaded(now time.Time, f *figures) {
	if w.state.Epoch == 0 || w.gone || f.started == nil || !same(w.started, f.started) {
		w.state.Epoch++
	}
	w.state = State{Loaded: true, Epoch: w.state.Epoch}
	w.misses, w.gone, w.started, w.made, w.progress = 0, false, f.started, f.work(), now
}

// failed books a server that is not loaded yet, or again.
func (w *watch) failed(err error) {
	if refused(err) {
		w.gone = true
	}
	w.state.Message = err.Error()
}

// unhealthy books a health check that failed.
func (w *watch) unhealthy(err error) {
	w.misses++
	switch {
	case refused(err):
		w.gone = true
		w.lose(Gone, "nobody listens at its address")
	case w.misses >= maxMisses:
		w.lose(Unhealthy, fmt.Sprintf("its health check failed %d times in a row; the last time: %v", w.misses, err))
	}
}

// healthy books a health check that passed, with the metrics of the same moment and the number of our requests inside.
func (w *watch) healthy(now time.Time, f *figures, inside int) {
	w.misses = 0
	made := f.work()
	switch {
	case w.started != nil && f.started != nil && !same(w.started, f.started):
		w.gone = true
		w.lose(Restarted, "its process is a younger one than before")
		return
	case w.made != nil && made != nil && *made < *w.made:
		w.gone = true
		w.lose(Restarted, "its counters began anew")
		return
	case inside == 0, w.made != nil && made != nil && *made > *w.made:
		w.progressed(now)
	}
	if made != nil {
		w.made = made
	}
	if silent := now.Sub(w.progress); silent >= w.stall {
		w.lose(Stalled, fmt.Sprintf("%d requests run, and it made no token for %s", inside, silent.Round(time.Second)))
	}
}

// progressed books a token or another sign of work.
func (w *watch) progressed(now time.Time) {
	if now.After(w.progress) {
		w.progress = now
	}
}

func (w *watch) lose(why Reason, message string) {
	w.state = State{Epoch: w.state.Epoch, Reason: why, Message: message}
}

// same compares two start times; servers compute them from the clock, which may be set by a little.
func same(a, b *float64) bool {
	return a != nil && b != nil && math.Abs(*a-*b) < 1
}
