package upstream

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// waiting is a patience on a clock that a test moves.
type waiting struct {
	*patience
	clock *clocktesting.FakeClock
	ended chan error
}

func newWaiting(firstByte, idle time.Duration) *waiting {
	w := &waiting{&patience{}, clocktesting.NewFakeClock(time.Unix(1e9, 0)), make(chan error, 10)}
	w.start(w.clock, firstByte, idle, func(cause error) { w.ended <- cause })
	return w
}

// pass lets time go by, and waits until the timer has looked and is set again, or has ended the wait.
func (w *waiting) pass(t *testing.T, d time.Duration) {
	t.Helper()
	w.clock.Step(d)
	eventually(t, "looked", func() bool { return w.clock.HasWaiters() || len(w.ended) > 0 })
}

func (w *waiting) expect(t *testing.T, want error) {
	t.Helper()
	select {
	case got := <-w.ended:
		if !errors.Is(got, want) {
			t.Errorf("ended by %v, want %v", got, want)
		}
	default:
		if want != nil {
			t.Errorf("goes on, want %v", want)
		}
	}
}

func TestAWaitEndsWhenItHasLastedForTheTimeWheneverItBegan(t *testing.T) {
	for _, after := range []time.Duration{0, 1, 20 * time.Second, time.Minute - 1, time.Minute, 10 * time.Minute} {
		w := newWaiting(2*time.Minute, time.Minute)
		w.came()
		for range 3 { // pieces that come in time
			w.wait()
			w.pass(t, 40*time.Second)
			w.rest()
		}
		if after > 0 { // nobody waits
			w.pass(t, after)
		}
		w.wait()
		w.pass(t, time.Minute-1)
		w.expect(t, nil)
		w.pass(t, 1)
		w.expect(t, ErrIdle)
		w.stop()
	}
}

func TestTheFirstPieceHasItsOwnTime(t *testing.T) {
	w := newWaiting(2*time.Minute, time.Minute)
	w.wait()
	w.pass(t, 2*time.Minute-1)
	w.expect(t, nil)
	w.pass(t, 1)
	w.expect(t, ErrFirstByte)
}

func TestWithoutLimitsNothingEndsAWait(t *testing.T) {
	w := newWaiting(0, 0)
	w.wait()
	w.clock.Step(1000 * time.Hour)
	w.rest()
	w.came()
	w.wait()
	w.clock.Step(1000 * time.Hour)
	w.expect(t, nil)
	if w.clock.HasWaiters() {
		t.Error("there is a timer")
	}
}

func TestAWaitThatIsStoppedDoesNotEnd(t *testing.T) {
	w := newWaiting(2*time.Minute, time.Minute)
	w.came()
	w.wait()
	w.stop()
	w.look()
	w.expect(t, nil)
	if w.clock.HasWaiters() {
		t.Error("there is a timer")
	}
}
