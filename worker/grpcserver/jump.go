package grpcserver

import "github.com/ringfleet/ringfleet/worker/engine"

// jumpPercent is how many points of KV use are a jump.
const jumpPercent = 10

// jumped reports whether a router had better hear of the load at once: the worker has become busy, idle, full or no longer
// full, or its KV use has moved by jumpPercent points or more. before is the load that was reported last. Use that is
// unknown has not moved.
func jumped(before, now *engine.Stats) bool {
	if idle(before) != idle(now) || full(before) != full(now) {
		return true
	}
	if before.KVBlocksUsed == nil || before.KVBlocksTotal == nil || now.KVBlocksUsed == nil || now.KVBlocksTotal == nil {
		return false
	}
	// As fractions: used/total of both, over the one denominator.
	a, b := *before.KVBlocksUsed**now.KVBlocksTotal, *now.KVBlocksUsed**before.KVBlocksTotal
	all := *before.KVBlocksTotal * *now.KVBlocksTotal
	return all > 0 && 100*max(a-b, b-a) >= jumpPercent*all
}

func idle(s *engine.Stats) bool { return s.Running+s.Waiting == 0 }

func full(s *engine.Stats) bool { return s.MaxSequences > 0 && s.Running+s.Waiting >= s.MaxSequences }
