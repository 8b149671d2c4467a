//go:build !conformance

package conformance

import "github.com/ringfleet/ringfleet/worker/engine/enginetest"

// publish writes nothing: without the other engines there is no table.
func publish([]enginetest.Report) int { return 0 }
