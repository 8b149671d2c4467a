package queue

import "time"

const (
	// latest is the longest time that a client has to wait. It may be told a fifth more, which makes 60 seconds.
	latest = 50 * time.Second
	// earliest is the shortest time that a client is told when its own would be longer than latest: those are spread.
	earliest = 10 * time.Second
	// holdRetry is what a client is told at least while the model has no worker.
	holdRetry = 5 * time.Second
	// spacing is the time between two who come back, where no rate is known.
	spacing = 50 * time.Millisecond
	// mostLines bounds the memory; tenants beyond it share a line.
	mostLines = 4096
)

// returns spreads those who were refused over the time to come, so that they do not come back together, nor faster than
// the model can take them. Each tenant has a line of its own, which moves at its share of the model's rate: one that
// floods makes only its own line long.
type returns struct {
	lines   map[string]*line
	byTime  heap[line]
	seconds comebacks
}

// line is the time at which the last one of a tenant who was refused comes back.
type line struct {
	tenant string
	last   time.Time
	at     int
}

func newReturns() returns {
	return returns{
		lines: map[string]*line{},
		byTime: heap[line]{
			at:   func(l *line) *int { return &l.at },
			less: func(a, b *line) bool { return a.last.Before(b.last) },
		},
	}
}

// next is when one of the tenant is to come back, in whole seconds: when the work that waits is done (after) and those of
// its line have had their turns, or up to a fifth later, where fewer of any tenant come. Each takes the time each at the
// model's full rate. chance in [0, 1) spreads those for whom that is later than any client may be told.
func (r *returns) next(tenant string, after, each time.Duration, now time.Time, chance func() float64) time.Duration {
	wait := r.wait(tenant, after, each, now)
	if wait > latest {
		return r.seconds.spread(each, now, chance)
	}
	return r.seconds.book(wait, each, now)
}

// wait is how long it has to wait at least, and moves the tenant's line.
func (r *returns) wait(tenant string, after, each time.Duration, now time.Time) time.Duration {
	for l := r.byTime.top(); l != nil && !l.last.After(now); l = r.byTime.top() {
		r.byTime.remove(l)
		delete(r.lines, l.tenant)
	}
	l := r.lines[tenant]
	if l == nil && len(r.lines) >= mostLines {
		tenant = ""
		l = r.lines[tenant]
	}
	if l == nil {
		l = &line{tenant: tenant, last: now}
		r.lines[tenant] = l
		r.byTime.push(l)
	}
	start := max(after, l.last.Sub(now))
	wait := start + min(each*time.Duration(len(r.lines)), latest)
	l.last = now.Add(min(wait, latest))
	r.byTime.fix(l)
	return wait
}
