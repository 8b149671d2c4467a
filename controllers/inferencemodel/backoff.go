package inferencemodel

import "time"

// Delays before the replacement of a pod that ended: none for the first, then doubling.
const (
	backoffBase = time.Second
	backoffMax  = 5 * time.Minute
	// backoffForget is how long after the last replacement the count starts anew.
	backoffForget = 10 * time.Minute
)

// backoff counts the generations of pods of one revision that ended and were replaced. The zero value has counted none.
type backoff struct {
	revision string
	failures int
	last     time.Time
}

// at returns b as it counts at now for the given revision: another revision, a long time, or a worker that became
// available after the last replacement start anew.
func (b backoff) at(now time.Time, revision string, workers []worker) backoff {
	if b.revision != revision || now.Sub(b.last) > backoffForget {
		return backoff{revision: revision}
	}
	for _, w := range workers {
		if w.available && w.revision == revision && !w.created.Before(b.last.Truncate(time.Second)) {
			return backoff{revision: revision}
		}
	}
	return b
}

// delay is how long after the last replacement, or its own creation, a pod that ended is replaced.
func (b backoff) delay() time.Duration {
	if b.failures == 0 {
		return 0
	}
	return min(backoffBase<<min(b.failures-1, 20), backoffMax)
}

// counts reports whether a pod that was created then and ended is a further failure. One that is older than the last
// replacement is not: it ended with the pod that was replaced, as all pods of a node do.
func (b backoff) counts(created time.Time) bool {
	return b.failures == 0 || !created.Before(b.last.Truncate(time.Second)) // Kubernetes writes whole seconds
}

// due is when a pod that was created then may be replaced.
func (b backoff) due(created time.Time) time.Time {
	if b.failures == 0 || !b.counts(created) {
		return created
	}
	if b.last.After(created) {
		created = b.last
	}
	return created.Add(b.delay())
}

// replaced notes the replacement of a pod that was created then.
func (b backoff) replaced(created, now time.Time) backoff {
	if b.counts(created) {
		b.failures, b.last = b.failures+1, now
	}
	return b
}
