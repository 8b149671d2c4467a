package queue

import (
	"math"
	"time"
)

// memory is how fast a meter forgets: what is older by that time counts 1/e as much.
const memory = 20 * time.Second

// A rate is known once its meter has run for some three seconds, or ten where nothing has gone: of a crowd that comes to a
// model at rest many go together, when one answer has taken its time, and before that nothing tells how fast they do.
const (
	sure     = 2.75 // both weighted
	doubtful = 8
)

// few is how many must have gone before a rate is good enough to refuse somebody for it: of requests that began together and take
// long, the first to end say too little of the rest.
const few = 3

// meter is the rate of events over the time in which it runs: an exponentially weighted mean without the bias of its
// first seconds, as the weight of the time itself is counted along.
type meter struct {
	at                        time.Time
	seconds, tokens, requests float64 // weighted, as are the times since the last event, and the longest between two
	silent, gap               float64
	n                         int // events since the beginning
}

// advance brings the meter to now. It has run since the last call, or has stood still.
func (m *meter) advance(now time.Time, running bool) {
	dt := now.Sub(m.at)
	if m.at.IsZero() {
		dt = 0
	} else if dt <= 0 {
		return // clocks read by several goroutines
	}
	m.at = now
	if !running || dt == 0 {
		return
	}
	keep := math.Exp(-float64(dt) / float64(memory))
	more := memory.Seconds() * (1 - keep)
	m.seconds = m.seconds*keep + more
	m.silent = m.silent*keep + more
	m.gap *= keep
	m.tokens *= keep
	m.requests *= keep
}

// add counts one request at the time of the last advance.
func (m *meter) add(tokens int64) {
	m.tokens += float64(tokens)
	m.requests++
	m.n++
	m.gap, m.silent = max(m.gap, m.silent), 0
}

// rate is per second. The time since the last event counts as far as it is longer than any between two: where many go
// together, the rate would else seem too low just before they do.
func (m *meter) rate() (tokens, requests float64, known bool) {
	if m.seconds < sure || m.requests < 1 && m.seconds < doubtful {
		return 0, 0, false
	}
	seconds := m.seconds - min(m.silent, m.gap) // not less than half, for these are two parts of it
	return m.tokens / seconds, m.requests / seconds, true
}

// pace is how long requests take, from when they go to their end, by their tokens.
type pace struct {
	seconds, tokens float64 // weighted: the last 20 requests or so
	n               int
}

// fewest is how many requests must have ended before a pace is one: the first of a model are slow.
const fewest = 5

func (p *pace) add(took time.Duration, tokens int64) {
	const keep = 0.95
	p.seconds = p.seconds*keep + max(0, took.Seconds())
	p.tokens = p.tokens*keep + float64(tokens)
	p.n++
}

// of is how long a request of that many tokens will take; 0 where that is unknown.
func (p *pace) of(tokens int64) time.Duration {
	if p.n < fewest {
		return 0
	}
	return time.Duration(min(p.seconds/p.tokens*float64(tokens), longest.Seconds()) * float64(time.Second))
}

// longest bounds what is computed, so that it fits its type.
const longest = 24 * time.Hour
