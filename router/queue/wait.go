package queue

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/admission"
)

// wait keeps the caller of Enter until e has been placed or waits no more.
func (m *model) wait(ctx context.Context, e *Entry) (pass *Pass, err error) {
	defer func() {
		if pass == nil && err == nil { // it panics
			m.broken(e)
		}
	}()
	timer := m.gate.options.Clock.NewTimer(e.Expires.Sub(m.gate.now()))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, m.cancel(e, ctx.Err())
		case <-timer.C():
			if err := m.expire(e, timer); err != nil {
				return nil, err
			}
		case <-e.called:
			if pass, err := m.called(ctx, e); pass != nil || err != nil {
				return pass, err
			}
		}
	}
}

// called is e's answer to a call: a pass, an error, or neither where it goes on waiting.
func (m *model) called(ctx context.Context, e *Entry) (*Pass, error) {
	if err := m.take(ctx); err != nil {
		return nil, m.cancel(e, err)
	}
	defer m.leave()
	for {
		now := m.gate.now()
		seen, first, err := m.first(e, now)
		if err != nil {
			return nil, err
		}
		if !first {
			return nil, nil
		}
		l := m.gate.options.Levels(m.uid)
		l.Queued = 0 // nobody is before it
		verdict := admission.Decide(m.gate.options.Bands(), l, e.Tier)
		if verdict == admission.Enter {
			if ctx.Err() != nil {
				return nil, m.cancel(e, ctx.Err())
			}
			err := e.Try(now)
			if err == nil {
				return m.dispatch(e, now), nil
			}
			if !m.gate.options.Waits(err) {
				return nil, m.fail(e, err, now)
			}
			l = m.gate.options.Levels(m.uid)
		}
		if !m.again(seen, l.InRing > 0, now) {
			return nil, nil
		}
	}
}

// first says whether e is to try now, and how many wakes there were before. Where another is first by now, that one is
// called.
func (m *model) first(e *Entry, now time.Time) (seen uint64, first bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case e.out != nil:
		return 0, false, e.out
	case m.over != nil: // e was the caller when that came
		m.q.Remove(e, now)
		m.sum.Refused++
		m.gone(e, now)
		return 0, false, m.over
	case m.caller != e:
		return 0, false, nil
	}
	if err := m.overdue(e, now); err != nil {
		return 0, false, err
	}
	if head := m.q.Head(now); head != e {
		m.caller = nil
		m.call(now)
		return 0, false, nil
	}
	return m.wakes, true, nil
}

// dispatch removes e, which has been placed, and lets the next one try.
func (m *model) dispatch(e *Entry, now time.Time) *Pass {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.q.Workers(now)
	m.q.Take(e, now)
	m.sum.Dispatched++
	m.gone(e, now)
	return &Pass{Waited: now.Sub(e.Since), Held: e.Held, model: m, entry: e, estimate: e.tokens, since: now}
}

// fail removes e, whose own error has ended it.
func (m *model) fail(e *Entry, err error, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.q.Remove(e, now)
	m.sum.Failed++
	m.gone(e, now)
	return err
}

// again says that the caller, which has tried in vain, must try once more, as there was a wake since. Else it waits.
func (m *model) again(seen uint64, workers bool, now time.Time) bool {
	m.mu.Lock()
	begins := false
	if workers {
		m.q.Workers(now)
	} else {
		begins = m.q.Hold(now)
	}
	again := m.wakes != seen
	if !again {
		m.caller = nil
	}
	m.woken(begins)
	return again
}

// cancel removes e, whose client has gone.
func (m *model) cancel(e *Entry, err error) error {
	now := m.gate.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.out != nil {
		return e.out
	}
	m.q.Remove(e, now)
	m.sum.Cancelled++
	m.gone(e, now)
	return err
}

// expire is what happens when e's timer fires: its time is over, or the timer is set again.
func (m *model) expire(e *Entry, timer clock.Timer) error {
	now := m.gate.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.out != nil {
		return e.out
	}
	if err := m.overdue(e, now); err != nil {
		return err
	}
	timer.Reset(e.Expires.Sub(now))
	return nil
}

// overdue removes e when it has waited long enough. Where there is no worker, whoever came while there was one may wait
// as long as those who came later. mu is held.
func (m *model) overdue(e *Entry, now time.Time) error {
	holding := m.q.Holding()
	if !now.Before(e.Expires) && holding && !e.Held {
		e.Expires = e.until(m.gate.limits.Load().MaxHold)
	}
	if now.Before(e.Expires) {
		return nil
	}
	m.q.Remove(e, now)
	m.sum.Expired++
	m.gone(e, now)
	ahead, _ := m.q.Ahead(e.Tier.Priority)
	return &TimeoutError{
		Model: m.uid, Tier: e.Tier.Name, Waited: now.Sub(e.Since), Ahead: ahead,
		Deadline: !e.Deadline.IsZero() && !now.Before(e.Deadline),
		Holding:  holding, RetryAfter: m.q.Retry(e.Item, holding, now),
	}
}
