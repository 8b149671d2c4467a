package queue

import (
	"time"

	"github.com/ringfleet/ringfleet/router/admission"
)

// Item is a request that wants to be placed. Nothing of it changes while the gate has it.
type Item struct {
	// RequestID names it to people.
	RequestID string
	// Model is the model's UID.
	Model string
	// Tenant shares fairly with the others of its priority. Empty is a tenant too.
	Tenant string
	Tier   admission.Tier
	// Tokens is what it is thought to cost, of prompt and answer; Bytes is the memory it has while it waits.
	Tokens, Bytes int64
	// Deadline is when nobody wants the answer any more; zero: never. A request waits no longer than that.
	Deadline time.Time
	// Waited is how long it waited before, and WasHeld whether it was held, where it has been placed and comes back because
	// that came to nothing: what its Pass says. It waits no longer in all than one that comes once, takes the place among
	// the others that it would have by now, and one that was held is not refused for its tier.
	Waited  time.Duration
	WasHeld bool
	// Try places the request. It must not block, and must not call Enter or Close of the gate; all else it may. Nil: it has
	// been placed. An error for which Options.Waits is true: there is no room yet. Any other error ends it.
	Try func(now time.Time) error
}

// mostTokens bounds one item's tokens, so that sums of them don't overflow.
const mostTokens = 1 << 40

// cost is it's tokens, within reason.
func cost(it *Item) int64 { return min(max(it.Tokens, 1), mostTokens) }

// newEntry is it, about to wait from now on; held: as there is no worker.
func newEntry(it *Item, held bool, l *Limits, now time.Time) *Entry {
	e := &Entry{
		Item: it, Held: held || it.WasHeld, Since: now.Add(-max(it.Waited, 0)), called: make(chan struct{}, 1),
		tokens: cost(it), bytes: max(it.Bytes, 0),
	}
	e.most = l.MaxHold
	if !e.Held {
		e.most = it.Tier.MaxQueue
		if e.most <= 0 {
			e.most = l.MaxQueue
		}
	}
	e.Expires = e.until(e.most)
	return e
}

// until is when e has waited for the given time, or its deadline where that is earlier.
func (e *Entry) until(wait time.Duration) time.Time {
	t := e.Since.Add(wait)
	if !e.Deadline.IsZero() && e.Deadline.Before(t) {
		return e.Deadline
	}
	return t
}
