package scheduler

import "time"

// quiet is the part of the window after whose silence the first step starts: a tenth.
const quiet = 10

// gather decides how long the first step after idle time waits for requests that come together, so that they are batched
// from the first token on, and a prefix that they share is computed for all. It waits for the whole window only while
// other calls are seen to come, and for a tenth of it (2 of 20 ms) after each arrival otherwise, which is what a request
// pays that comes alone. While something runs nobody waits: newcomers join at the next step.
type gather struct {
	window      time.Duration
	open        bool
	since, last time.Time
}

// arrive tells of a request that was queued; idle says that it found nothing else inside.
func (g *gather) arrive(now time.Time, idle bool) {
	if idle && g.window > 0 {
		g.open, g.since = true, now
	}
	g.last = now
}

// left returns how long the first step still waits. ready says that more requests could not join it, coming that others are
// on their way.
func (g *gather) left(now time.Time, ready, coming bool) time.Duration {
	if !g.open {
		return 0
	}
	end := g.since.Add(g.window)
	if silent := g.last.Add(g.window / quiet); !coming && silent.Before(end) {
		end = silent
	}
	if ready || !now.Before(end) {
		g.open = false
		return 0
	}
	return end.Sub(now)
}
