package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// inTurn runs f while nobody else can be in turn.
func (r *rig) inTurn(f func()) {
	m := (*r.models.Load())[uid]
	m.turn <- struct{}{}
	f()
	synctest.Wait()
	m.leave()
	synctest.Wait()
}

func TestWhoeverIsCalledAndRunsOutOfTimeHandsItOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, Limits{})
		bulk := r.enter("b", "bulk")
		synctest.Wait()
		paid := r.enter("p", "paid")
		synctest.Wait()
		r.inTurn(func() {
			r.set(func() { r.seats = 1 }) // b is called, and can't come
			pass(6 * time.Second)
		})
		failed[*TimeoutError](t, bulk)
		if paid.waits() {
			t.Error("p was not called")
		}
		r.settled()
	})
}

func TestWhoeverIsCalledLetsABetterOneGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Limits{})
		r.set(func() { r.level = 96 })
		paid := r.enter("p", "paid")
		synctest.Wait()
		var gold *call
		r.inTurn(func() {
			gold = r.enter("g", "gold")
			synctest.Wait()
			r.Wake(uid) // p is called; g, which is before it in the line for the turn, finds 96 % and waits
			looks := 0
			r.mu.Lock()
			r.look = func() {
				if looks++; looks == 2 {
					r.mu.Lock()
					r.level = 92
					r.mu.Unlock()
				}
			}
			r.mu.Unlock()
		})
		if gold.waits() || !paid.waits() {
			t.Error("at 92% g goes, although it was p who was called, and p waits")
		}
		paid.cancel()
		r.settled()
	})
}

func TestARequestWhoseClientGoesWhileItLooksIsNotTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, Limits{})
		c := r.enter("c", "paid")
		synctest.Wait()
		r.mu.Lock()
		r.look = c.cancel
		r.mu.Unlock()
		r.set(func() { r.seats = 1 })
		if c.waits() || !errors.Is(c.err, context.Canceled) || r.order() != "" {
			t.Errorf("%v, placed %q", c.err, r.order())
		}
		r.settled()
	})
}

func TestOneThatTakesTheOnlyPlaceOfAHoldDoesNotWakeTheModelAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Limits{Hold: Bound{Requests: 1}})
		r.set(func() { r.ring = 0 })
		paid := r.enter("p", "paid")
		synctest.Wait()
		gold := r.enter("g", "gold")
		failed[*HoldFullError](t, paid)
		if s := r.Stats(uid); s.Wakes != 1 || r.woken != 1 || s.Held != 1 {
			t.Errorf("%+v, woken %d times", s, r.woken)
		}
		r.set(func() { r.ring = 1 })
		r.end(gold)
		r.settled()
	})
}
