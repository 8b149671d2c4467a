package queue

import "time"

// class is those of one priority. Its tenants share by start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): time
// is counted in tokens; a tenant's tag is the time at which its first request would begin if all were served together,
// the least tag goes next, and what goes moves its tenant's tag on by its tokens. So between any two tenants that both
// wait, what they got differs by no more than one request of each. Every step costs O(log of the tenants).
type class struct {
	priority         int32
	requests, tokens int64
	now              int64 // the tag of what went last
	flows            map[string]*flow
	ready            heap[flow] // those with a request that can be in time: the least tag first, then the oldest request
	long             heap[flow] // those with any request: the most waiting tokens first, then the newest request
	idle             heap[flow] // those without, by tag: it holds until now has passed it
	late             list
	closed           bool // nobody waits any more
}

// flow is a tenant in a class.
type flow struct {
	tenant string
	tag    int64
	// entries wait, in the order of their arrival; those that are late are the first of them, for a request is found to be
	// late when it is the tenant's next.
	entries list
	next    *Entry // the first that is not late
	tokens  int64  // of all entries

	inReady, inLong, inIdle int
}

func newClass(priority int32) *class {
	return &class{
		priority: priority,
		flows:    map[string]*flow{},
		late:     list{order: amongLate},
		ready: heap[flow]{
			at: func(f *flow) *int { return &f.inReady },
			less: func(a, b *flow) bool {
				return a.tag < b.tag || a.tag == b.tag && a.next.before(b.next)
			},
		},
		long: heap[flow]{
			at: func(f *flow) *int { return &f.inLong },
			less: func(a, b *flow) bool {
				return a.tokens > b.tokens || a.tokens == b.tokens && b.entries.last.before(a.entries.last)
			},
		},
		idle: heap[flow]{
			at:   func(f *flow) *int { return &f.inIdle },
			less: func(a, b *flow) bool { return a.tag < b.tag },
		},
	}
}

// push adds e to those of its tenant: as the last, unless it has waited before.
func (c *class) push(e *Entry) {
	f := c.flow(e.Tenant)
	c.idle.remove(f)
	e.class, e.flow, e.late = c, f, false
	f.entries.insert(e, func(o *Entry) bool { return !o.late && e.before(o) })
	f.tokens += e.tokens
	c.requests++
	c.tokens += e.tokens
	switch {
	case f.next == nil:
		f.tag = max(f.tag, c.now)
		f.next = e
		c.ready.push(f)
	case f.entries.next(e) == f.next:
		f.next = e
		c.order(f)
	}
	if c.long.has(f) {
		c.long.fix(f)
	} else {
		c.long.push(f)
	}
}

// head is who goes next; nil where nobody waits. A tenant's next request that can't be in time any more steps aside: it
// goes when nobody is left who can.
func (c *class) head(late func(*Entry) bool) *Entry {
	for {
		f := c.ready.top()
		if f == nil {
			return c.late.first
		}
		e := f.next
		if !late(e) {
			return e
		}
		e.late = true
		c.late.push(e)
		f.next = f.entries.next(e)
		c.order(f)
	}
}

// take removes e because it goes, and charges its tenant.
func (c *class) take(e *Entry) {
	f := e.flow
	if !e.late {
		c.now = max(c.now, f.tag)
	}
	f.tag += e.charge()
	if c.ready.has(f) {
		c.ready.fix(f)
	}
	c.remove(e)
	for f := c.idle.top(); f != nil && f.tag <= c.now; f = c.idle.top() {
		c.forget(f)
	}
}

// remove takes e out for any other reason. It costs its tenant nothing.
func (c *class) remove(e *Entry) {
	f := e.flow
	switch {
	case e.late:
		c.late.remove(e)
	case f.next == e:
		f.next = f.entries.next(e)
		c.order(f)
	}
	f.entries.remove(e)
	f.tokens -= e.tokens
	c.requests--
	c.tokens -= e.tokens
	switch {
	case f.entries.n > 0:
		c.long.fix(f)
	case f.tag > c.now:
		c.long.remove(f)
		c.idle.push(f)
	default:
		c.long.remove(f)
		c.forget(f)
	}
}

// order finds f its place after another request of it has become the next.
func (c *class) order(f *flow) {
	if f.next == nil {
		c.ready.remove(f)
	} else {
		c.ready.fix(f)
	}
}

// correct moves a tenant's tag by the tokens that one of its requests took beyond those it was charged.
func (c *class) correct(tenant string, by int64) {
	f := c.flows[tenant]
	switch {
	case c.closed || f == nil && by <= 0:
		return
	case f == nil:
		f = c.flow(tenant)
		f.tag += by
		c.idle.push(f)
		return
	}
	f.tag = max(f.tag+by, c.now)
	switch {
	case c.ready.has(f):
		c.ready.fix(f)
	case c.idle.has(f) && f.tag <= c.now:
		c.forget(f)
	case c.idle.has(f):
		c.idle.fix(f)
	}
}

// before bounds the tokens that go before a further request of a tenant: all, or as many of each tenant as of its own.
func (c *class) before(tenant string, tokens int64) float64 {
	own, tenants := float64(tokens), len(c.long.items)
	if f := c.flows[tenant]; f != nil {
		own += float64(f.tokens)
	}
	return min(float64(c.tokens), own*float64(tenants))
}

// flow is a tenant's, made where the class has none.
func (c *class) flow(tenant string) *flow {
	f := c.flows[tenant]
	if f == nil {
		f = &flow{tenant: tenant, tag: c.now, entries: list{order: inFlow}}
		c.flows[tenant] = f
	}
	return f
}

func (c *class) forget(f *flow) {
	c.idle.remove(f)
	delete(c.flows, f.tenant)
}

// Entry is an item that waits.
type Entry struct {
	*Item
	// Held says that it came when there was no worker, or was held before.
	Held bool
	// Since is when it came, less what it waited before, Expires when it has waited long enough.
	Since, Expires time.Time

	seq           uint64
	tokens, bytes int64
	most          time.Duration // how long it may wait, whatever its client says
	class         *class
	flow          *flow
	late          bool
	links         [orders]link

	// The gate's: called tells it to try, or that out says why it waits no more.
	called chan struct{}
	out    error
}

// before reports whether e has waited for longer than o.
func (e *Entry) before(o *Entry) bool {
	c := e.Since.Compare(o.Since)
	return c < 0 || c == 0 && e.seq < o.seq
}

// charge is what e costs its tenant when it goes. Those who were held cost nothing, so that they go in the order in
// which they came, whoever sent them.
func (e *Entry) charge() int64 {
	if e.Held {
		return 0
	}
	return e.tokens
}
