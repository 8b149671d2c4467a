package queue

import (
	"testing"
	"testing/synctest"
	"time"
)

// waited makes an item one that comes back, after it has waited for so long.
func waited(d time.Duration, held bool) func(*Item) {
	return func(it *Item) { it.Waited, it.WasHeld = d, held }
}

func TestOneThatComesBackWaitsNoLongerInAllThanOneThatComesOnce(t *testing.T) {
	for name, c := range map[string]struct {
		tier string
		ring int
		back func(*Item)
		all  time.Duration
	}{
		"held":                         {"paid", 0, waited(50*time.Second, true), time.Minute},
		"queued":                       {"paid", 1, waited(10*time.Second, false), 20 * time.Second},
		"queued by its tier":           {"bulk", 1, waited(4*time.Second, false), 5 * time.Second},
		"held before, and queued now":  {"bulk", 1, waited(50*time.Second, true), time.Minute},
		"held for longer than it may":  {"paid", 0, waited(2*time.Minute, true), 2 * time.Minute},
		"held before, of no such tier": {"free", 1, waited(50*time.Second, true), time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 0, Limits{MaxHold: time.Minute, MaxQueue: 20 * time.Second})
				r.set(func() { r.ring = c.ring })
				began := time.Now()
				it := &Item{}
				c.back(it)
				e := failed[*TimeoutError](t, r.enter("a", c.tier, c.back))
				if now := time.Since(began); it.Waited+now != c.all || e.Waited != c.all || e.Holding != (c.ring == 0) {
					t.Errorf("it waits %s more, want %s in all; %v", now, c.all, e)
				}
				if s := r.Stats(uid); (s.Wakes > 0) != (c.ring == 0) {
					t.Errorf("woken %d times with %d workers", s.Wakes, c.ring)
				}
				r.settled()
			})
		})
	}
}

func TestAPassSaysHowLongAllTurnsHaveWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Limits{})
		direct := r.enter("a", "paid", waited(7*time.Second, true))
		synctest.Wait()
		if p := direct.pass; p.Waited != 7*time.Second || !p.Held {
			t.Errorf("one that goes at once: %s, held %v", p.Waited, p.Held)
		}
		later := r.enter("b", "paid", waited(7*time.Second, false))
		pass(3 * time.Second)
		r.end(direct)
		synctest.Wait()
		if p := later.pass; p.Waited != 10*time.Second || p.Held {
			t.Errorf("one that waits: %s, held %v", p.Waited, p.Held)
		}
		r.end(later)
		r.settled()
	})
}

func TestOneThatComesBackTakesThePlaceThatItWouldHaveByNow(t *testing.T) {
	for name, c := range map[string]struct {
		ring   int
		before []func(*Item) // of a, b and c, 0.3 s after each other
		back   []func(*Item) // of r
		want   string
	}{
		"before those who came later": {0, nil, []func(*Item){waited(90*time.Minute, true)}, "r a b c"},
		"behind those who came first": {0, nil, []func(*Item){waited(750*time.Millisecond, true)}, "a r b c"},
		"of its own tenant":           {1, nil, []func(*Item){waited(750*time.Millisecond, false)}, "a r b c"},
		"of a tenant of its own":      {0, []func(*Item){tenant("x")}, []func(*Item){waited(750*time.Millisecond, true), tenant("y")}, "a r b c"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 0, Limits{MaxHold: 2 * time.Hour, MaxQueue: 2 * time.Hour})
				r.set(func() { r.ring = c.ring })
				var all []*call
				for _, name := range []string{"a", "b", "c"} {
					all = append(all, r.enter(name, "paid", c.before...))
					pass(300 * time.Millisecond)
				}
				all = append(all, r.enter("r", "paid", c.back...))
				synctest.Wait()
				r.set(func() { r.ring, r.seats = 1, 1 })
				for range all {
					synctest.Wait()
					for i, c := range all {
						if c != nil && !c.waits() {
							r.end(c)
							all[i] = nil
						}
					}
				}
				if got := r.order(); got != c.want {
					t.Errorf("they go as %q, want %q", got, c.want)
				}
				r.settled()
			})
		})
	}
}

func TestOneThatComesBackGoesBeforeThoseOfItsTenantThatAreLate(t *testing.T) {
	c, l, now := newClass(0), Limits{}.orDefaults(), time.Unix(1e9, 0)
	entry := func(name string, before time.Duration) *Entry {
		e := newEntry(&Item{RequestID: name, Tier: tiers["paid"], Tokens: 10, Waited: before}, true, l, now)
		c.push(e)
		return e
	}
	entry("a", 0)
	entry("b", 0)
	late := func(e *Entry) bool { return e.RequestID == "a" }
	c.head(late) // passes over a
	entry("r", time.Minute)
	for _, want := range []string{"r", "b", "a"} {
		e := c.head(late)
		if e.RequestID != want {
			t.Fatalf("%s goes, want %s", e.RequestID, want)
		}
		c.take(e)
	}
	if c.requests != 0 || len(c.flows) != 0 || c.late.n != 0 {
		t.Errorf("left behind: %d requests, %d tenants, %d late", c.requests, len(c.flows), c.late.n)
	}
}
