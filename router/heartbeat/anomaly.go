package heartbeat

import (
	"math"
	"time"
)

// Signal is what workers are compared by.
type Signal int

const (
	// FirstToken is the time to a request's first token as a multiple of what was expected.
	FirstToken Signal = iota
	// BetweenTokens is the time from one token to the next, in seconds.
	BetweenTokens
	// FailureShare is how many of the requests fail: 0 for a good one, 1 for one that failed.
	FailureShare
	signalCount
)

// String returns the signal's name.
func (s Signal) String() string {
	switch s {
	case FirstToken:
		return "FirstToken"
	case BetweenTokens:
		return "BetweenTokens"
	}
	return "FailureShare"
}

// Against is what a worker is compared with.
type Against int

const (
	// Past is its own last points.
	Past Against = iota
	// Peers is the last points of all workers of its model.
	Peers
	againstCount
)

// String returns its name.
func (a Against) String() string {
	if a == Peers {
		return "Peers"
	}
	return "Past"
}

// What makes a point of samples, and an anomaly of points.
const (
	// A point is the mean of at least so many samples that took at least so long.
	pointSamples = 16
	pointTime    = 5 * time.Second
	// window is how many points of its own a worker is compared with, and minPoints how many there must be first.
	window    = 32
	minPoints = 8
	// minPeers is how many workers must have a point that is not older than staleAfter, the compared one included. Of two
	// that differ nobody knows which is the odd one.
	minPeers   = 3
	staleAfter = 5 * time.Minute
	// oddZ is beyond what |z| a point is odd, calmZ below what it is calm; toRaise odd ones in a row raise an alarm, toClear
	// calm ones end it.
	oddZ    = 3.0
	calmZ   = 2.0
	toRaise = 4
	toClear = 3
	// relativeFloor is the least spread as a share of the middle.
	relativeFloor = 0.1
	// madToSigma makes the standard deviation of a normal distribution of its median absolute deviation.
	madToSigma = 1.4826
	// crowdAge is how old the figures of all peers together may be, so that they are not computed for each point.
	crowdAge = time.Second
)

// leastSpread is the spread below which no signal is compared, in the signal's unit.
var leastSpread = [signalCount]float64{FirstToken: 0.25, BetweenTokens: 0.002, FailureShare: 0.1}

// Anomaly is an alarm that was raised or has ended.
type Anomaly struct {
	ModelUID, Pod, Instance string
	Signal                  Signal
	Against                 Against
	On                      bool
	// Value is the worker's last point, Usual what it was compared with, Z how many spreads lie between.
	Value, Usual, Z float64
}

// batch gathers samples until they make a point.
type batch struct {
	n           int
	sum         float64
	began, last time.Time
}

// add takes a sample and returns a point when it is complete. Samples that nothing followed for staleAfter are dropped.
func (b *batch) add(now time.Time, v float64) (point float64, ok bool) {
	if b.n == 0 || now.Sub(b.last) > staleAfter {
		*b = batch{began: now}
	}
	b.n, b.sum, b.last = b.n+1, b.sum+v, now
	if b.n < pointSamples || now.Sub(b.began) < pointTime {
		return 0, false
	}
	point = b.sum / float64(b.n)
	*b = batch{}
	return point, true
}

// series is the points of one signal of one worker.
type series struct {
	points [window]float64 // a circle
	n      int             // points taken since the beginning
	last   float64
	at     time.Time // of the last one; zero before
	spread float64   // of the window before it
	shift  int       // whether it was oddly high (1) or low (-1) for the window

	counted bool // by the crowd's figures, and with which shift
	told    int

	alarms [againstCount]alarm
}

// usual is the mean of the window and the spread of points around it.
func (q *series) usual(s Signal) (mean, spread float64) {
	points := q.points[:min(q.n, window)]
	for _, p := range points {
		mean += p / float64(len(points))
	}
	for _, p := range points {
		spread += (p - mean) * (p - mean)
	}
	spread = math.Sqrt(spread / float64(max(len(points)-1, 1)))
	return mean, floored(s, mean, spread)
}

// take compares a point with the window and adds it there. An odd one is added as the oddest that is not: one point then
// can't hide the next, and a level that stays becomes usual within some minutes. ok is false while there are too few.
func (q *series) take(now time.Time, s Signal, x float64) (z, mean float64, ok bool) {
	mean, q.spread = q.usual(s)
	q.last, q.at, q.shift = x, now, 0
	if ok = q.n >= minPoints; ok {
		z = distance(s, x, mean, q.spread)
		switch {
		case z > oddZ:
			q.shift = 1
		case z < -oddZ:
			q.shift = -1
		}
		x = min(max(x, mean-oddZ*q.spread), mean+oddZ*q.spread)
	}
	q.points[q.n%window] = x
	q.n++
	return z, mean, ok
}

// floored is a spread that is never too small to divide by, or to be meant.
func floored(s Signal, middle, spread float64) float64 {
	return max(spread, relativeFloor*math.Abs(middle), leastSpread[s])
}

// distance is z; of failures only more are odd.
func distance(s Signal, x, middle, spread float64) float64 {
	z := (x - middle) / spread
	if s == FailureShare {
		return max(z, 0)
	}
	return z
}

// alarm is raised and ended by points in a row.
type alarm struct {
	on        bool
	odd, calm int
	counted   time.Time // when odd last grew
}

// interrupt takes a point that says nothing: what was counted in a row begins anew.
func (a *alarm) interrupt() { a.odd, a.calm = 0, 0 }

// take counts a point at distance z and reports whether the alarm changes. An odd one counts only when the others have
// been heard since the last that did: what comes to all comes to one first.
func (a *alarm) take(now time.Time, z float64, heard time.Time) bool {
	z = math.Abs(z)
	switch {
	case z > oddZ && a.odd > 0 && heard.Before(a.counted):
		a.calm = 0
	case z > oddZ:
		a.odd, a.calm, a.counted = min(a.odd+1, toRaise), 0, now
	case z < calmZ:
		a.odd, a.calm = 0, min(a.calm+1, toClear)
	default:
		a.interrupt()
	}
	was := a.on
	if was {
		a.on = a.calm < toClear
	} else {
		a.on = a.odd >= toRaise
	}
	return a.on != was
}
