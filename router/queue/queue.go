package queue

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Queue is what waits for one model. It is pure: it is told the time, which never goes back by much, and holds no lock.
type Queue struct {
	total  *Total
	chance func() float64

	classes  []*class // of those who wait, the highest priority first
	arrivals list
	used     [2]usage       // of those who wait for room, and of those who came when there was no worker
	tiers    map[string]int // of the former, by the tier's name
	seq      uint64
	holding  bool

	drain   meter // what has waited and goes, while something waits and there are workers
	ends    meter // what ends, at all times
	pace    pace
	returns returns
}

type usage struct{ requests, bytes, tokens int64 }

// NewQueue returns an empty queue. total is shared by all queues of a router; chance draws from [0, 1).
func NewQueue(total *Total, chance func() float64) *Queue {
	return &Queue{total: total, chance: chance, tiers: map[string]int{}, returns: newReturns(), arrivals: list{order: byArrival}}
}

// has says whether e waits.
func (q *Queue) has(e *Entry) bool { return q.arrivals.has(e) }

// Len is how many wait.
func (q *Queue) Len() int { return q.arrivals.n }

// Ahead counts the requests that wait and whose priority is not below the given one, and their tokens.
func (q *Queue) Ahead(priority int32) (requests, tokens int64) {
	for _, c := range q.classes {
		if c.priority < priority {
			break
		}
		requests += c.requests
		tokens += c.tokens
	}
	return requests, tokens
}

// certain is the part of the time that a request may wait which its likely wait must not exceed: rates vary, and it is
// better to be told at once to come back than after half a minute.
const certain = 0.8

// mostDisplaced bounds the work for one request: how many small ones may make room for its bytes.
const mostDisplaced = 16

// Push lets e wait within l, or says why it can't: *FullError or *HoldFullError. Where too many wait, e takes the place
// of one that came last for the tenant with the most waiting tokens among the lowest priority: if that is below e's, or
// the same and the tenant still has more than e's own. Those displaced wait no more; their out says why.
func (q *Queue) Push(e *Entry, l *Limits, now time.Time) (displaced []*Entry, err error) {
	q.tick(now)
	holding := q.holding
	for {
		o, ok := q.room(e, l)
		if ok {
			q.add(e)
			q.holding = holding // also where all others have made room
			return displaced, nil
		}
		v := q.victim(e, o)
		if v == nil || len(displaced) == mostDisplaced {
			return displaced, q.full(e, o, false, now)
		}
		q.Remove(v, now)
		v.out = q.full(v, o, true, now)
		displaced = append(displaced, v)
	}
}

// room says which bound leaves none for e. Where all do, the room is taken.
func (q *Queue) room(e *Entry, l *Limits) (over, bool) {
	own, all := l.of(e.Held)
	u := q.usage(e.Held)
	most := int64(e.Tier.MaxQueueRequests)
	of := int64(q.tiers[e.Tier.Name])
	wait, may := q.wait(e.Item), e.most.Seconds()*certain
	switch {
	case !e.Held && wait > may:
		return over{ofModel, whatSeconds, int64(math.Ceil(wait)), int64(may)}, false
	case !e.Held && most > 0 && of >= most:
		return over{ofTier, whatRequests, of, most}, false
	case u.requests >= own.Requests:
		return over{ofModel, whatRequests, u.requests, own.Requests}, false
	case u.bytes+e.bytes > own.Bytes:
		return over{ofModel, whatBytes, u.bytes, own.Bytes}, false
	}
	return q.total.of(e.Held).add(e.bytes, all)
}

// wait is how many seconds one more request is likely to wait; 0 where the rate is unknown, or of too few requests.
func (q *Queue) wait(it *Item) float64 {
	before := q.before(it)
	rate, _, known := q.drain.rate()
	if !known || q.drain.n < few || q.holding || before <= 0 {
		return 0
	}
	return min(before/rate, longest.Seconds())
}

// before is how many tokens are likely to go before one more request.
func (q *Queue) before(it *Item) float64 {
	_, better := q.Ahead(it.Tier.Priority)
	c := q.class(it.Tier.Priority)
	if c == nil {
		return float64(better)
	}
	return float64(better-c.tokens) + c.before(it.Tenant, cost(it))
}

// victim is who makes room for e under a bound; nil where nobody does.
func (q *Queue) victim(e *Entry, o over) *Entry {
	c := q.class(e.Tier.Priority)
	if o.of != ofTier && len(q.classes) > 0 {
		c = q.classes[len(q.classes)-1]
	}
	if c == nil || c.priority > e.Tier.Priority || o.hopeless(e) {
		return nil
	}
	f := c.long.top()
	v := f.entries.last
	if v.Held != e.Held || o.of == ofTier && v.Tier.Name != e.Tier.Name {
		return nil // its going would make no room under that bound
	}
	if c.priority < e.Tier.Priority {
		return v
	}
	mine := e.tokens
	if own := c.flows[e.Tenant]; own != nil {
		mine += own.tokens
	}
	if f.tenant == e.Tenant || f.tokens <= mine {
		return nil
	}
	return v
}

// full is what e, or one that is displaced, is told.
func (q *Queue) full(e *Entry, o over, displaced bool, now time.Time) error {
	retry := q.Retry(e.Item, e.Held, now)
	if e.Held {
		return &HoldFullError{Model: e.Model, Tier: e.Tier.Name, Of: o.of, What: o.what, Held: o.waiting, Limit: o.limit,
			Displaced: displaced, RetryAfter: retry}
	}
	ahead, _ := q.Ahead(e.Tier.Priority)
	return &FullError{Model: e.Model, Tier: e.Tier.Name, Of: o.of, What: o.what, Waiting: o.waiting, Limit: o.limit,
		Ahead: ahead, Displaced: displaced, RetryAfter: retry}
}

// add puts e into its place.
func (q *Queue) add(e *Entry) {
	q.seq++
	e.seq = q.seq
	c := q.class(e.Tier.Priority)
	if c == nil {
		c = newClass(e.Tier.Priority)
		at, _ := slices.BinarySearchFunc(q.classes, c, func(a, b *class) int { return cmp.Compare(b.priority, a.priority) })
		q.classes = slices.Insert(q.classes, at, c)
	}
	c.push(e)
	q.arrivals.insert(e, e.before)
	u := q.usage(e.Held)
	u.requests++
	u.bytes += e.bytes
	u.tokens += e.tokens
	if !e.Held {
		q.tiers[e.Tier.Name]++
	}
}

// Head is who goes next; nil where nobody waits. A request that can't be in time any more, by the pace at which the
// model's requests end, goes after those of its priority that can.
func (q *Queue) Head(now time.Time) *Entry {
	if len(q.classes) == 0 {
		return nil
	}
	return q.classes[0].head(func(e *Entry) bool {
		return !e.Deadline.IsZero() && now.Add(q.pace.of(e.tokens)).After(e.Deadline)
	})
}

// Take removes e because it goes.
func (q *Queue) Take(e *Entry, now time.Time) {
	q.tick(now)
	q.drain.add(e.tokens)
	e.class.take(e)
	q.removed(e)
}

// Remove takes e out for any other reason.
func (q *Queue) Remove(e *Entry, now time.Time) {
	q.tick(now)
	e.class.remove(e)
	q.removed(e)
}

// removed does what is left to do when e has left its class.
func (q *Queue) removed(e *Entry) {
	if c := e.class; c.requests == 0 {
		c.closed = true
		q.classes = slices.DeleteFunc(q.classes, func(o *class) bool { return o == c })
	}
	q.arrivals.remove(e)
	u := q.usage(e.Held)
	u.requests--
	u.bytes -= e.bytes
	u.tokens -= e.tokens
	q.total.of(e.Held).remove(e.bytes)
	if !e.Held {
		if q.tiers[e.Tier.Name]--; q.tiers[e.Tier.Name] == 0 {
			delete(q.tiers, e.Tier.Name)
		}
	}
	if q.Len() == 0 {
		q.holding = false
	}
}

// Ended says that a request has ended which was thought to take estimate tokens: how many it took (below 0: unknown),
// and how long since it went. e is its entry, or nil when it did not wait.
func (q *Queue) Ended(e *Entry, estimate, tokens int64, took time.Duration, now time.Time) {
	tokens = min(tokens, mostTokens)
	if e != nil && !e.Held && tokens >= 0 {
		e.class.correct(e.Tenant, tokens-estimate)
	}
	q.ends.advance(now, true)
	q.ends.add(estimate)
	if tokens > 0 {
		q.pace.add(took, estimate)
	}
}

// Hold says that there is no worker. It reports whether that is news to somebody who waits: such an episode begins.
func (q *Queue) Hold(now time.Time) (begins bool) {
	if q.holding || q.Len() == 0 {
		return false
	}
	q.tick(now)
	q.holding = true
	return true
}

// Workers says that there is one.
func (q *Queue) Workers(now time.Time) {
	q.tick(now)
	q.holding = false
}

// Holding says whether those who wait do so for any worker.
func (q *Queue) Holding() bool { return q.holding }

// tick brings the meter to now, before anything changes.
func (q *Queue) tick(now time.Time) { q.drain.advance(now, q.Len() > 0 && !q.holding) }

// Retry is when the client of a request that is refused is to come back: when what would go before it has gone, at the
// rate at which the queue drains, and when those who were refused before it have had their turns. It is in whole seconds,
// as clients are told, and spread: nothing is to be added to it. holding: there is no worker.
func (q *Queue) Retry(it *Item, holding bool, now time.Time) time.Duration {
	after, each := time.Duration(0), spacing
	if holding || q.holding {
		after = holdRetry
	} else if byTokens, byRequests, known := q.rate(now); known {
		after = span(q.before(it), byTokens)
		each = max(span(float64(cost(it)), byTokens), span(1, byRequests))
	}
	return q.returns.next(it.Tenant, after, each, now, q.chance)
}

// rate is how fast the model takes requests: what drains from the queue, and where nothing waits what ends.
func (q *Queue) rate(now time.Time) (tokens, requests float64, known bool) {
	q.tick(now)
	tokens, requests, known = q.drain.rate()
	if known && q.Len() > 0 {
		return tokens, requests, true
	}
	q.ends.advance(now, true)
	if q.ends.requests >= 1 { // else the model was idle, which says nothing of what it can do
		if t, r, ok := q.ends.rate(); ok {
			return t, r, true
		}
	}
	return tokens, requests, known
}

// span is how long n take at a rate per second, at most latest.
func span(n, rate float64) time.Duration {
	if n <= 0 {
		return 0
	}
	if !(n/rate < latest.Seconds()) {
		return latest
	}
	return time.Duration(n / rate * float64(time.Second))
}

func (q *Queue) usage(held bool) *usage {
	if held {
		return &q.used[1]
	}
	return &q.used[0]
}

// class is the one of a priority; nil where none of it wait. There are few.
func (q *Queue) class(priority int32) *class {
	for _, c := range q.classes {
		if c.priority == priority {
			return c
		}
	}
	return nil
}
