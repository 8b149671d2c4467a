// Package life does to routers what happens in the course of their lives: they are rolled, killed and started before they know the
// cluster, and models come from no workers and go back to none. Each is a trial; what its clients see of it is in its figures.
package life

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// Trials are all faults of this package, in the order of their ids.
func Trials() []trial.Trial {
	return slices.Concat(rollingRestart(), killedRouter(), fromZero(), zeroAndOne(), coldStart())
}

// chat is a request for a scripted answer.
func chat(words int, stream bool) client.Request {
	return client.Request{Model: rig.ModelName, Words: words, Stream: stream}
}

// well reports whether an answer is whole.
func well(c *history.Client) bool { return c.Outcome() == history.Completed }

// share is the per cent of the answers that are whole; NaN without any.
func share(all []history.Client) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	n := 0
	for i := range all {
		if well(&all[i]) {
			n++
		}
	}
	return 100 * float64(n) / float64(len(all))
}

// among are the answers that f holds for.
func among(all []history.Client, f func(*history.Client) bool) (some []history.Client) {
	for i := range all {
		if f(&all[i]) {
			some = append(some, all[i])
		}
	}
	return some
}

// tellFailed prints an answer that is not whole.
func tellFailed(r *rig.Rig, id string, all []history.Client) {
	bad := among(all, func(c *history.Client) bool { return !well(c) })
	for i := range bad[:min(len(bad), 5)] {
		c := &bad[i]
		fmt.Fprintf(r.Shared.Out, "  %s: a request to %q failed after %s: status %d, code %q, %s\n", id, c.Router,
			c.End.Sub(c.Start).Round(time.Millisecond), c.Status, c.Code, c.Broken)
	}
}
