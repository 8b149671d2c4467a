// Package clients does to a router what clients do that are idle, slow, gone, hostile or too many. Each is a trial: what becomes
// of them, and of well-behaved clients beside them, is in its figures. It judges no figure: the figure's goal does.
package clients

import (
	"slices"

	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
)

// Trials are all faults of this package, in the order of their ids.
func Trials() []trial.Trial {
	return slices.Concat(idleStreams(), goneClients(), slowReaders(), slowHeaders(), slowBodies(), largeHeaders(), largeBodies(),
		oddJSON(), frames(), overload(), comeBack())
}

// trialOf is one trial.
type trialOf = trial.Trial

// quick reports whether a trial is only to be seen to work.
func quick(times int) bool { return times <= 1 }
