package queue

import (
	"errors"
	"fmt"
	"time"
)

// ErrClosed is what Enter returns after Close.
var ErrClosed = errors.New("the router's queue is closed: send the request to another router")

// ErrGone is what Enter returns for a model that Keep did not name. It is for status 404.
var ErrGone = errors.New("the model is gone: it was deleted after the request came; send it to another model")

// FullError says that no more requests may wait for room on a model's workers. It is for status 429.
type FullError struct {
	Model, Tier string
	// Of is whose bound it is: "tier", "model" or "router"; What is what it counts: "requests", "bytes", or "seconds",
	// where the request would wait longer than it may.
	Of, What string
	// Waiting is how much of it waits, Limit the bound, Ahead how many requests wait whose priority is not lower.
	Waiting, Limit int64
	Ahead          int64
	// Displaced: the request did wait, and a better one, or one of a tenant with less, has taken its place.
	Displaced bool
	// RetryAfter is when there is likely to be room.
	RetryAfter time.Duration
}

// Error names the bound.
func (e *FullError) Error() string {
	did := "can't wait"
	if e.Displaced {
		did = "has lost its place"
	}
	why := fmt.Sprintf("the queue of the %s has %d of %d %s", e.Of, e.Waiting, e.Limit, e.What)
	if e.What == whatSeconds {
		why = fmt.Sprintf("it would wait some %d seconds and may do so for %d", e.Waiting, e.Limit)
	}
	return fmt.Sprintf("a request of tier %q for model %s %s: %s, and %d of its priority or better wait; send it again in %s",
		e.Tier, e.Model, did, why, e.Ahead, seconds(e.RetryAfter))
}

// RefusedError says that a model is too full for a tier that does not wait. It is for status 429.
type RefusedError struct {
	Model, Tier string
	// Percent is how full the model's workers are, Limit from where on the tier is refused. A lower Percent: Ahead requests
	// wait whose priority is not lower, or no worker has room for this one.
	Percent float64
	Limit   int
	Ahead   int64
	// RetryAfter is when there is likely to be room.
	RetryAfter time.Duration
}

// Error names the level.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("a request of tier %q for model %s is refused: its workers are %.0f%% full (the tier's limit is %d%%), and %d of its priority or better wait; send it again in %s",
		e.Tier, e.Model, e.Percent, e.Limit, e.Ahead, seconds(e.RetryAfter))
}

// TimeoutError says that a request has waited as long as it may. It is for status 429; where Holding, for 503.
type TimeoutError struct {
	Model, Tier string
	Waited      time.Duration
	// Ahead is how many requests wait still whose priority is not lower.
	Ahead int64
	// Deadline: it is the client's own limit that has passed.
	Deadline bool
	// Holding: the model has no worker.
	Holding bool
	// RetryAfter is when there is likely to be room.
	RetryAfter time.Duration
}

// Error names the wait.
func (e *TimeoutError) Error() string {
	what, limit := "room", "the queue's limit"
	if e.Holding {
		what = "any worker"
	}
	if e.Deadline {
		limit = "the client's own limit"
	}
	return fmt.Sprintf("a request of tier %q for model %s has waited %s for %s, %s, and %d of its priority or better still wait; send it again in %s",
		e.Tier, e.Model, e.Waited.Round(time.Millisecond), what, limit, e.Ahead, seconds(e.RetryAfter))
}

// HoldFullError says that no more requests may wait for a model without workers. It is for status 503.
type HoldFullError struct {
	Model, Tier string
	// Of, What, Held, Limit and Displaced are as FullError's.
	Of, What    string
	Held, Limit int64
	Displaced   bool
	// RetryAfter is when to ask again. Nobody knows when the worker comes.
	RetryAfter time.Duration
}

// Error names the bound.
func (e *HoldFullError) Error() string {
	did := "can't wait for one"
	if e.Displaced {
		did = "has lost its place"
	}
	return fmt.Sprintf("model %s has no worker yet, and a request of tier %q %s: %d of %d %s are held for the %s; send it again in %s",
		e.Model, e.Tier, did, e.Held, e.Limit, e.What, e.Of, seconds(e.RetryAfter))
}

// seconds rounds up: a client that comes at the time it reads here is not too early.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%ds", max(1, int64((d+time.Second-1)/time.Second)))
}
