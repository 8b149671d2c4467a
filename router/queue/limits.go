package queue

import (
	"sync/atomic"
	"time"
)

// Bound is how much may wait.
type Bound struct {
	Requests int64
	Bytes    int64
}

// Limits bound what waits. A field that is 0 takes its value from DefaultLimits.
type Limits struct {
	// Model bounds the requests that wait for room on the workers of one model, All those of all models together.
	Model, All Bound
	// Hold and HoldAll do so for requests that wait for any worker.
	Hold, HoldAll Bound
	// MaxQueue is how long a request waits for room where its tier doesn't say, MaxHold how long for any worker.
	MaxQueue, MaxHold time.Duration
}

// DefaultLimits are the limits of an InferenceRouter that names none.
func DefaultLimits() Limits {
	return Limits{
		Model: Bound{Requests: 1000, Bytes: 64 << 20}, All: Bound{Requests: 5000, Bytes: 96 << 20},
		Hold: Bound{Requests: 1000, Bytes: 32 << 20}, HoldAll: Bound{Requests: 2000, Bytes: 64 << 20},
		MaxQueue: 30 * time.Second, MaxHold: 570 * time.Second,
	}
}

// orDefaults is l with its zeros filled.
func (l Limits) orDefaults() *Limits {
	d := DefaultLimits()
	l.Model, l.All = l.Model.or(d.Model), l.All.or(d.All)
	l.Hold, l.HoldAll = l.Hold.or(d.Hold), l.HoldAll.or(d.HoldAll)
	if l.MaxQueue <= 0 {
		l.MaxQueue = d.MaxQueue
	}
	if l.MaxHold <= 0 {
		l.MaxHold = d.MaxHold
	}
	return &l
}

func (b Bound) or(d Bound) Bound {
	if b.Requests <= 0 {
		b.Requests = d.Requests
	}
	if b.Bytes <= 0 {
		b.Bytes = d.Bytes
	}
	return b
}

// of are the bounds that hold for one more request of a kind: of its model, and of all.
func (l *Limits) of(held bool) (model, all Bound) {
	if held {
		return l.Hold, l.HoldAll
	}
	return l.Model, l.All
}

// Total counts what waits in all queues of a router. Its zero value is ready; it is safe for concurrent use.
type Total struct{ queued, held counter }

type counter struct{ requests, bytes atomic.Int64 }

func (t *Total) of(held bool) *counter {
	if held {
		return &t.held
	}
	return &t.queued
}

// add counts one more request, where the bound b lets it; else it says which part of b doesn't.
func (c *counter) add(bytes int64, b Bound) (over, bool) {
	requests, sum := c.requests.Add(1), c.bytes.Add(bytes)
	switch {
	case requests > b.Requests:
		c.remove(bytes)
		return over{of: ofRouter, what: whatRequests, waiting: requests - 1, limit: b.Requests}, false
	case sum > b.Bytes:
		c.remove(bytes)
		return over{of: ofRouter, what: whatBytes, waiting: sum - bytes, limit: b.Bytes}, false
	}
	return over{}, true
}

func (c *counter) remove(bytes int64) {
	c.requests.Add(-1)
	c.bytes.Add(-bytes)
}

// over says which bound leaves no room.
type over struct {
	of, what       string
	waiting, limit int64
}

// hopeless says that e would have no room either if others made some.
func (o over) hopeless(e *Entry) bool {
	return o.what == whatSeconds || o.what == whatBytes && e.bytes > o.limit
}

const (
	ofTier, ofModel, ofRouter = "tier", "model", "router"

	whatRequests, whatBytes, whatSeconds = "requests", "bytes", "seconds"
)
