package queue

import (
	"context"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/router/admission"
)

// model is the gate's state of one model.
//
// Whoever is in turn decides, tries, and comes to wait; so an answer to "is there room" is never older than the last
// placement. Of those who wait at most one, the caller, has been called to try. It is whoever was first at the last wake.
// It hands that on when another is first, or when it leaves.
//
// No wake is lost: wakes counts them, and both who came to wait and who tried in vain compare it with what it was before
// they looked at the levels.
//
// Whoever panics in a function that is not the gate's leaves the turn, and the queue where it waits, and hands on.
type model struct {
	gate *Gate
	uid  string
	turn chan struct{} // has room for one

	mu     sync.Mutex // guards the rest; never held while another package is called (but Rand), nor while waiting for a turn
	over   error      // ErrGone or ErrClosed: nobody comes to wait any more, nor tries who does not yet
	q      *Queue
	wakes  uint64
	caller *Entry
	sum    Stats // its counts
}

// enter lets it in.
func (m *model) enter(ctx context.Context, it *Item) (*Pass, error) {
	if err := m.take(ctx); err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.sum.Entered++
		m.sum.Cancelled++
		return nil, err
	}
	pass, e, err := func() (*Pass, *Entry, error) {
		defer m.leave()
		return m.newcomer(it)
	}()
	if e == nil {
		return pass, err
	}
	return m.wait(ctx, e)
}

// take waits for the turn.
func (m *model) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case m.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *model) leave() { <-m.turn }

// newcomer decides on a request that has just come, in turn: it has a pass, an error, or an entry that waits.
func (m *model) newcomer(it *Item) (pass *Pass, e *Entry, err error) {
	now := m.gate.now()
	seen, ahead, err := m.come(it)
	if err != nil {
		return nil, nil, err
	}
	var joins *Entry
	defer func() {
		if pass == nil && e == nil && err == nil { // it panics
			m.broken(joins)
		}
	}()
	l := m.gate.options.Levels(m.uid)
	l.Queued = int(ahead)
	bands := m.gate.options.Bands()
	verdict := admission.Decide(bands, l, it.Tier)
	l.Queued = 0
	first := ahead > 0 && admission.Decide(bands, l, it.Tier) == admission.Enter // only those who wait keep it out
	if verdict == admission.Enter {
		err := it.Try(now)
		switch {
		case err == nil:
			return m.direct(it, now), nil, nil
		case !m.gate.options.Waits(err):
			m.mu.Lock()
			m.sum.Failed++
			m.mu.Unlock()
			return nil, nil, err
		}
		verdict = it.Tier.Busy()
		if l = m.gate.options.Levels(m.uid); l.InRing <= 0 {
			verdict = admission.Hold
		}
	}
	if verdict == admission.Refuse && !it.WasHeld {
		return nil, nil, m.refuse(it, l.Percent(bands), bands.AdmitPercent, now)
	}
	holding := verdict == admission.Hold
	joins = newEntry(it, holding, m.gate.limits.Load(), now)
	if err := m.join(joins, holding, seen, first, now); err != nil {
		return nil, nil, err
	}
	return nil, joins, nil
}

// come counts a request that has come, unless the model is over. It says how many wakes there were and who goes first.
func (m *model) come(it *Item) (seen uint64, ahead int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over != nil {
		return 0, 0, m.over
	}
	m.sum.Entered++
	ahead, _ = m.q.Ahead(it.Tier.Priority)
	return m.wakes, ahead, nil
}

// broken ends a request that panics, and takes its entry out, where it has one that waits.
func (m *model) broken(e *Entry) {
	now := m.gate.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if e != nil {
		if !m.q.has(e) {
			return // it has been counted
		}
		m.q.Remove(e, now)
		m.gone(e, now)
	}
	m.sum.Failed++
}

// direct is the pass of a request that did not wait.
func (m *model) direct(it *Item, now time.Time) *Pass {
	m.mu.Lock()
	m.sum.Dispatched++
	m.q.Workers(now)
	m.mu.Unlock()
	return &Pass{Waited: max(it.Waited, 0), Held: it.WasHeld, model: m, estimate: cost(it), since: now}
}

func (m *model) refuse(it *Item, percent float64, limit int, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sum.Refused++
	m.q.Workers(now)
	ahead, _ := m.q.Ahead(it.Tier.Priority)
	return &RefusedError{Model: m.uid, Tier: it.Tier.Name, Percent: percent, Limit: limit, Ahead: ahead,
		RetryAfter: m.q.Retry(it, false, now)}
}

// join lets e wait, where the limits allow that; holding: as there is no worker. Then whoever is first by now must try where
// there was a wake since the levels were looked at, which is when there had been seen wakes; or where the levels have room.
func (m *model) join(e *Entry, holding bool, seen uint64, room bool, now time.Time) error {
	m.mu.Lock()
	if err := m.over; err != nil { // since it has come
		m.sum.Refused++
		m.mu.Unlock()
		return err
	}
	if !holding {
		m.q.Workers(now)
	}
	displaced, err := m.q.Push(e, m.gate.limits.Load(), now)
	for _, d := range displaced {
		m.sum.Refused++
		m.gone(d, now)
		d.look()
	}
	begins := false
	if err == nil {
		begins = holding && m.q.Hold(now)
		if room || m.wakes != seen {
			m.call(now)
		}
	} else {
		m.sum.Refused++
	}
	m.woken(begins)
	return err
}

// woken counts and tells that an episode begins, where it does, and unlocks mu.
func (m *model) woken(begins bool) {
	if begins {
		m.sum.Wakes++
	}
	m.mu.Unlock()
	if begins && m.gate.options.Woken != nil {
		m.gate.options.Woken(m.uid)
	}
}

// wake lets whoever is first try.
func (m *model) wake() {
	now := m.gate.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wakes++
	m.call(now)
}

// call calls whoever is first to try, where nobody has been called. mu is held.
func (m *model) call(now time.Time) {
	if m.caller != nil {
		return
	}
	if m.caller = m.q.Head(now); m.caller != nil {
		m.caller.look()
	}
}

// look makes e's goroutine look: it is to try, or it waits no more.
func (e *Entry) look() {
	select {
	case e.called <- struct{}{}:
	default:
	}
}

// gone hands on what was e's to do. mu is held, and e is out of the queue.
func (m *model) gone(e *Entry, now time.Time) {
	if m.caller == e {
		m.caller = nil
		m.call(now)
	}
}

// ended ends a pass.
func (m *model) ended(p *Pass, tokens int64) {
	now := m.gate.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.q.Ended(p.entry, p.estimate, tokens, now.Sub(p.since), now)
	m.wakes++
	m.call(now)
}

// forget ends the wait of all with ErrGone. It does not wait for the turn: the caller, which may be trying, has its pass
// where that succeeds, and else learns of it when it looks again.
func (m *model) forget() {
	now := m.gate.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = ErrGone
	m.dismiss(m.caller, now)
	if m.caller != nil {
		m.caller.look()
	}
}

// rests says that nobody is in turn: where the model is over, nothing is tried any more.
func (m *model) rests() bool { return len(m.turn) == 0 }

// close ends the wait of all with ErrClosed, in turn, so that nothing is tried any more.
func (m *model) close() {
	m.turn <- struct{}{}
	defer m.leave()
	now := m.gate.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over == nil {
		m.over = ErrClosed
	}
	m.dismiss(nil, now)
	m.caller = nil
}

// dismiss ends the wait of all but one, because the model is over. mu is held.
func (m *model) dismiss(but *Entry, now time.Time) {
	for e := m.q.arrivals.first; e != nil; {
		next := m.q.arrivals.next(e)
		if e != but {
			m.q.Remove(e, now)
			m.sum.Refused++
			e.out = m.over
			e.look()
		}
		e = next
	}
}

func (m *model) stats() Stats {
	now := m.gate.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sum
	s.Queued = m.q.Len()
	if m.q.Holding() {
		s.Queued, s.Held = 0, s.Queued
	}
	for _, u := range m.q.used {
		s.Tokens += u.tokens
		s.Bytes += u.bytes
	}
	if e := m.q.arrivals.first; e != nil {
		s.Oldest = max(0, now.Sub(e.Since))
	}
	m.q.tick(now)
	s.TokensPerSecond, s.RequestsPerSecond, _ = m.q.drain.rate()
	return s
}
