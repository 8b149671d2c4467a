package queue

import (
	"math"
	"time"
)

// memory is how fast a meter forgets: what is older by that time counts 1/e as much.
const memory = 20 * time.Second

// meter is the rate of events over the time in which it runs: an exponentially weighted mean without the bias of its
// first seconds, as the weight of the time itself is counted along.
type meter struct {
	at                        time.Time
	seconds, tokens, requests float64 // weighted
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
	m.seconds = m.seconds*keep + memory.Seconds()*(1-keep)
	m.tokens *= keep
	m.requests *= keep
}

// add counts one request at the time of the last advance.
func (m *meter) add(tokens int64) {
	m.tokens += float64(tokens)
	m.requests++
}

// rate is per second. It is known once the meter has run for a second.
func (m *meter) rate() (tokens, requests float64, known bool) {
	if m.seconds < 1 {
		return 0, 0, false
	}
	return m.tokens / m.seconds, m.requests / m.seconds, true
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
