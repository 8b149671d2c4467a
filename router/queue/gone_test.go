package queue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringfleet/ringfleet/router/admission"
)

// of makes an item one for that model.
func of(model string) func(*Item) { return func(it *Item) { it.Model = model } }

// gone checks that c has ended with ErrGone.
func gone(t *testing.T, c *call) {
	t.Helper()
	if c.waits() || !errors.Is(c.err, ErrGone) {
		t.Errorf("%s: %v", c.name, c.err)
	}
}

func TestModelsThatAreNotNamedAreForgottenWithAllWhoWaitForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Limits{})
		first := r.enter("first", "paid")
		synctest.Wait()
		queued := r.many("q", "paid", 3)
		stays := r.enter("stays", "paid", of("stays"))
		synctest.Wait()
		r.set(func() { r.ring = 0 })
		held := r.enter("held", "paid", of("unborn"))
		synctest.Wait()
		r.Keep(map[string]bool{"stays": true})
		for _, c := range append(queued, held) {
			gone(t, c)
		}
		if !stays.waits() {
			t.Errorf("it ends, and its model is named: %v", stays.err)
		}
		gone(t, r.enter("late", "paid"))
		if s := r.Stats(uid); s != (Stats{}) {
			t.Errorf("%+v", s)
		}
		r.Keep(map[string]bool{"stays": true, uid: true})
		again := r.enter("again", "paid")
		if !again.waits() {
			t.Errorf("its model is named, but has no worker: %v", again.err)
		}
		r.set(func() { r.ring = 1 })
		r.end(first)
		r.Wake(uid)
		r.end(again)
		r.WakeAll()
		r.end(stays)
		if s := r.Stats(uid); s.Dispatched != 1 {
			t.Errorf("%+v", s)
		}
		r.settled()
	})
}

func TestAModelMayGoWhileARequestIsTried(t *testing.T) {
	for name, test := range map[string]struct {
		waits bool // it has waited before
		ends  error
		want  error
	}{
		"one that has come is placed":       {},
		"one that has come finds no room":   {ends: errNoRoom, want: ErrGone},
		"one that has come is broken":       {ends: errBroken, want: errBroken},
		"one that has waited is placed":     {waits: true},
		"one that has waited finds no room": {waits: true, ends: errNoRoom, want: ErrGone},
		"one that has waited is broken":     {waits: true, ends: errBroken, want: errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 0, Limits{})
				tries := 0
				c := r.enter("c", "paid", func(it *Item) {
					it.Try = func(time.Time) error {
						if tries++; tries == 1 && test.waits {
							return errNoRoom
						}
						r.Keep(nil)
						return test.ends
					}
				})
				if test.waits {
					if !c.waits() {
						t.Fatalf("it does not wait: %v", c.err)
					}
					other := r.enter("other", "paid")
					synctest.Wait()
					r.Wake(uid)
					gone(t, other)
				}
				if c.waits() || !errors.Is(c.err, test.want) || (c.pass == nil) != (test.want != nil) {
					t.Errorf("%v", c.err)
				}
				if c.pass != nil {
					c.pass.Done(1)
				}
				r.Close()
				r.settled()
			})
		})
	}
}

func TestCloseWaitsForATryOfAModelThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, Limits{})
		free := make(chan struct{})
		c := r.enter("c", "paid", func(it *Item) {
			it.Try = func(time.Time) error {
				r.Keep(nil)
				<-free
				return nil
			}
		})
		synctest.Wait()
		r.Keep(nil)
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			r.Close()
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close does not wait")
		default:
		}
		r.Keep(nil) // does not wait for Close
		close(free)
		<-closed
		if c.waits() || c.err != nil {
			t.Errorf("%v", c.err)
		}
		r.settled()
	})
}

func TestAPanicEndsItsOwnRequestOnly(t *testing.T) {
	// Each makes a function panic that is called for bad, the first time after armed is set.
	for name, prepare := range map[string]func(r *rig, bad *Item, dies func()){
		"in its Try": func(_ *rig, bad *Item, dies func()) {
			bad.Try = func(time.Time) error {
				dies()
				return errNoRoom
			}
		},
		"when it looks at the levels": func(r *rig, _ *Item, dies func()) { r.look = dies },
		"when it looks at the bands": func(r *rig, _ *Item, dies func()) {
			r.options.Bands = func() admission.Bands {
				dies()
				return admission.DefaultBands()
			}
		},
		"when its error is judged": func(r *rig, _ *Item, dies func()) {
			waits := r.options.Waits
			r.options.Waits = func(err error) bool {
				dies()
				return waits(err)
			}
		},
	} {
		armed := false
		dies := func() {
			if armed {
				armed = false
				panic(errPanics)
			}
		}
		t.Run(name+", having just come", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 0, Limits{})
				waiting := r.enter("waiting", "paid")
				synctest.Wait()
				armed = true
				bad := r.enter("bad", "gold", func(it *Item) { prepare(r, it, dies) })
				synctest.Wait()
				goesOn(t, r, bad, waiting)
			})
		})
		t.Run(name+", having waited", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 0, Limits{})
				bad := r.enter("bad", "gold", func(it *Item) { prepare(r, it, dies) })
				if !bad.waits() {
					t.Fatalf("it does not wait: %v", bad.err)
				}
				waiting := r.enter("waiting", "paid")
				synctest.Wait()
				armed = true
				r.Wake(uid)
				synctest.Wait()
				goesOn(t, r, bad, waiting)
			})
		})
	}
}

func TestAPanicOfWokenEndsTheRequestThatBeganToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, Limits{})
		r.set(func() { r.ring = 0 })
		told := r.options.Woken
		r.options.Woken = func(string) { panic(errPanics) }
		bad := r.enter("bad", "paid")
		synctest.Wait()
		r.options.Woken = told
		waiting := r.enter("waiting", "paid")
		synctest.Wait()
		r.mu.Lock()
		r.ring = 1
		r.mu.Unlock()
		goesOn(t, r, bad, waiting)
	})
}

// goesOn checks that bad panics, that the one that waits is placed once there is room, and that all comes to an end.
func goesOn(t *testing.T, r *rig, bad, waiting *call) {
	t.Helper()
	r.set(func() { r.seats = 1 })
	if bad.waits() || !errors.Is(bad.err, errPanics) {
		t.Fatalf("bad: %v", bad.err)
	}
	if waiting.waits() || waiting.err != nil {
		t.Fatalf("waiting: %v", waiting.err)
	}
	r.end(waiting)
	later := r.enter("later", "paid")
	r.end(later)
	if s := r.Stats(uid); s.Failed != 1 || s.Dispatched != 2 {
		t.Errorf("%+v", s)
	}
	r.Close()
	r.settled()
}
