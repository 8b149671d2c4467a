package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/router/admission"
)

func TestARequestEntersAtOnceWhileThereIsRoomAndNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Limits{})
		for _, tier := range []string{"free", "paid"} {
			if c := r.enter(tier, tier); c.waits() || c.err != nil || c.pass.Waited != 0 || c.pass.Held {
				t.Errorf("%s: %+v", tier, c)
			}
		}
		if s := r.Stats(uid); s.Dispatched != 2 || s.Wakes != 0 || r.order() != "free paid" {
			t.Errorf("%+v, placed %s", s, r.order())
		}
		r.settled()
	})
}

func TestFromNinetyPercentOnTheTierDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 9, Limits{})
		r.set(func() { r.level = 92 })
		free := r.enter("f", "free")
		if e := failed[*RefusedError](t, free); e.Percent != 92 || e.Limit != 90 || e.Model != uid || e.Tier != "free" || e.RetryAfter <= 0 {
			t.Errorf("%+v", e)
		}
		paid := r.enter("p", "paid")
		if !paid.waits() {
			t.Error("paid does not wait at 92%")
		}
		if gold := r.enter("g1", "gold"); gold.waits() {
			t.Error("gold waits at 92%")
		}
		r.set(func() { r.level = 95 })
		gold := r.enter("g2", "gold")
		if !gold.waits() {
			t.Error("gold does not wait at 95%")
		}
		if s := r.Stats(uid); s.Queued != 2 || s.Held != 0 || s.Tokens != 20 || s.Bytes != 2 {
			t.Errorf("%+v", s)
		}
		r.set(func() { r.level = 94 })
		if gold.waits() || !paid.waits() {
			t.Error("at 94% gold enters, and paid waits on")
		}
		r.set(func() { r.level = 89 })
		if paid.waits() {
			t.Error("paid waits at 89%")
		}
		r.settled()
	})
}

func TestANewcomerDoesNotOvertakeItsEquals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Limits{})
		first := r.enter("first", "paid")
		synctest.Wait()
		calls := r.many("p", "paid", 2)
		r.mu.Lock()
		r.seats = 3 // nobody is told
		r.mu.Unlock()
		calls = append(calls, r.enter("p3", "paid"))
		synctest.Wait()
		if got := r.order(); got != "first p1 p2" {
			t.Errorf("placed %s", got)
		}
		gold := r.enter("g", "gold")
		if !gold.waits() {
			t.Error("there is no room for gold")
		}
		failed[*RefusedError](t, r.enter("f", "free"))
		r.end(first)
		synctest.Wait()
		if got := r.order(); got != "first p1 p2 g" {
			t.Errorf("placed %s", got)
		}
		r.end(gold)
		for _, c := range calls {
			r.end(c)
		}
		r.settled()
	})
}

func TestOnlyARequestWhoseTierMayWaitWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, Limits{})
		if e := failed[*RefusedError](t, r.enter("f", "free")); e.Percent != 50 {
			t.Errorf("%+v", e)
		}
		paid := r.enter("p", "paid")
		if !paid.waits() {
			t.Error("paid does not wait")
		}
		paid.cancel()
		r.settled()
	})
}

func TestAnErrorOfItsOwnEndsARequestAndNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Limits{})
		broken := func(it *Item) { it.Try = func(time.Time) error { return errBroken } }
		if c := r.enter("at once", "paid", broken); c.waits() || !errors.Is(c.err, errBroken) {
			t.Errorf("%v", c.err)
		}
		first := r.enter("first", "paid")
		synctest.Wait()
		second := r.enter("second", "paid")
		synctest.Wait()
		later := r.enter("later", "paid", broken)
		synctest.Wait()
		last := r.enter("last", "paid")
		if !later.waits() || !last.waits() {
			t.Fatal("they do not wait")
		}
		r.set(func() { r.seats = 3 })
		if later.waits() || !errors.Is(later.err, errBroken) {
			t.Errorf("%v", later.err)
		}
		if last.waits() {
			t.Error("the one behind it waits although there is room")
		}
		for _, c := range []*call{first, second, last} {
			r.end(c)
		}
		if s := r.Stats(uid); s.Failed != 2 || s.Dispatched != 3 {
			t.Errorf("%+v", s)
		}
		r.settled()
	})
}

func TestAThousandWhoseClientsGoAreNeverTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Limits{Model: Bound{Requests: 2000}})
		first := r.enter("first", "paid")
		synctest.Wait()
		rng := rand.New(rand.NewPCG(1, 2))
		var stay, gone []*call
		for i := range 2000 {
			c := r.enter(fmt.Sprint(i), []string{"paid", "gold"}[rng.IntN(2)], tenant(fmt.Sprint(rng.IntN(7))))
			if rng.IntN(2) == 0 {
				gone = append(gone, c)
			} else {
				stay = append(stay, c)
			}
		}
		synctest.Wait()
		for _, c := range gone {
			c.cancel()
		}
		synctest.Wait()
		if s := r.Stats(uid); s.Queued != len(stay) || s.Cancelled != uint64(len(gone)) {
			t.Errorf("%d stay, %d go: %+v", len(stay), len(gone), s)
		}
		for _, c := range gone {
			if !errors.Is(c.err, context.Canceled) {
				t.Errorf("%s: %v", c.name, c.err)
			}
		}
		r.set(func() { r.seats = 5000 })
		r.end(first)
		for _, c := range stay {
			r.end(c)
		}
		placed := " " + r.order() + " "
		for _, c := range gone {
			if strings.Contains(placed, " "+c.name+" ") {
				t.Errorf("%s was placed", c.name)
			}
		}
		r.settled()
	})
}

func TestWhoeverHasGoneBeforeItComesIsNotLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Limits{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.Enter(ctx, &Item{Model: uid, Try: func(time.Time) error {
			t.Error("it is tried")
			return nil
		}})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		r.settled()
	})
}

func TestAWaitEndsWithTheTiersLimitOrTheClientsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, Limits{MaxQueue: 7 * time.Second})
		began := time.Now()
		paid, bulk := r.enter("p", "paid"), r.enter("b", "bulk")
		own := r.enter("d", "paid", func(it *Item) { it.Deadline = began.Add(2 * time.Second) })
		gold := r.enter("g", "gold")
		if e := failed[*TimeoutError](t, own); e.Waited != 2*time.Second || !e.Deadline || e.Holding || e.Ahead != 3 {
			t.Errorf("%+v", e)
		}
		if e := failed[*TimeoutError](t, bulk); e.Waited != 5*time.Second || e.Deadline || e.Ahead != 2 || e.RetryAfter <= 0 {
			t.Errorf("%+v", e)
		}
		if e := failed[*TimeoutError](t, paid); e.Waited != 7*time.Second || e.Model != uid || e.Tier != "paid" {
			t.Errorf("%+v", e)
		}
		failed[*TimeoutError](t, gold)
		if s := r.Stats(uid); s.Expired != 4 {
			t.Errorf("%+v", s)
		}
		r.settled()
	})
}

func TestABurstAtAModelWithoutWorkersWakesItOnceAndLosesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, Limits{})
		r.set(func() { r.ring, r.seats = 0, 16 })
		free, gold := r.many("f", "free", 250), r.many("g", "gold", 250)
		pass(20 * time.Second)
		if s := r.Stats(uid); s.Held != 500 || s.Queued != 0 || s.Wakes != 1 || r.woken != 1 || s.Oldest != 20*time.Second {
			t.Errorf("%+v, woken %d times", s, r.woken)
		}
		r.set(func() { r.ring = 1 })
		for _, c := range append(gold, free...) { // in the order in which they must come
			r.end(c)
			if !c.pass.Held || c.pass.Waited != 20*time.Second {
				t.Errorf("%s: %+v", c.name, c.pass)
			}
		}
		var want []string
		for _, c := range append(gold, free...) {
			want = append(want, c.name)
		}
		if got := r.order(); got != strings.Join(want, " ") {
			t.Errorf("placed %s", got)
		}
		if s := r.Stats(uid); s.Wakes != 1 || s.Dispatched != 500 {
			t.Errorf("%+v", s)
		}
		r.settled()
	})
}

// A request at each edge of twenty turns from none to one and back.
func TestWorkersThatComeAndGoLeaveNobodyBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3, Limits{})
		for i := range 20 {
			r.set(func() { r.ring = 0 })
			down := r.enter(fmt.Sprint("down", i), "paid")
			if !down.waits() {
				t.Fatal("it is not held")
			}
			racing := r.enter(fmt.Sprint("racing", i), "paid")
			r.set(func() { r.ring = 1 })
			up := r.enter(fmt.Sprint("up", i), "gold")
			for _, c := range []*call{down, racing, up} {
				r.end(c)
			}
			synctest.Wait()
		}
		if s := r.Stats(uid); s.Wakes != 20 || r.woken != 20 || s.Dispatched != 60 {
			t.Errorf("%+v, woken %d times", s, r.woken)
		}
		r.settled()
	})
}

func TestAWakeIsTriedAgainHoweverLongTheModelHasSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Limits{MaxHold: time.Minute})
		r.set(func() { r.ring = 0 })
		for i := range 3 {
			if e := failed[*TimeoutError](t, r.enter("a", "paid")); !e.Holding || e.Waited != time.Minute {
				t.Errorf("%+v", e)
			}
			if s := r.Stats(uid); s.Wakes != uint64(i+1) || r.woken != i+1 {
				t.Errorf("%+v, woken %d times", s, r.woken)
			}
			pass(45 * time.Minute)
		}
		r.settled()
	})
}

func TestThoseInTheQueueOutliveTheLastWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, Limits{MaxQueue: 10 * time.Second, MaxHold: time.Minute})
		a, b := r.enter("a", "paid"), r.enter("b", "paid", func(it *Item) { it.Deadline = time.Now().Add(15 * time.Second) })
		if !a.waits() {
			t.Fatal("it does not wait")
		}
		r.set(func() { r.ring = 0 })
		pass(12 * time.Second)
		if s := r.Stats(uid); s.Held != 2 || s.Queued != 0 || s.Wakes != 1 {
			t.Errorf("%+v", s)
		}
		if e := failed[*TimeoutError](t, b); e.Waited != 15*time.Second || !e.Holding || !e.Deadline {
			t.Errorf("%+v", e)
		}
		pass(30 * time.Second)
		r.set(func() { r.ring, r.seats = 1, 1 })
		r.end(a)
		r.settled()
	})
}

func TestHoldsThatAreFullSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Limits{Hold: Bound{Requests: 2}})
		r.set(func() { r.ring = 0 })
		calls := r.many("p", "paid", 2)
		e := failed[*HoldFullError](t, r.enter("p3", "paid"))
		if e.Held != 2 || e.Limit != 2 || e.Of != "model" || e.What != "requests" || e.RetryAfter < holdRetry || e.Displaced {
			t.Errorf("%+v", e)
		}
		gold := r.enter("g", "gold")
		if !gold.waits() {
			t.Error("gold is not held")
		}
		if e := failed[*HoldFullError](t, calls[1]); !e.Displaced {
			t.Errorf("%+v", e)
		}
		calls[0].cancel()
		gold.cancel()
		r.settled()
	})
}

func TestAFullQueueMakesRoomForABetterRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, Limits{})
		r.Configure(Limits{Model: Bound{Requests: 2}})
		calls := r.many("p", "paid", 2)
		if e := failed[*FullError](t, r.enter("p3", "paid")); e.Waiting != 2 || e.Limit != 2 || e.Ahead != 2 || e.Displaced {
			t.Errorf("%+v", e)
		}
		gold := r.enter("g", "gold")
		if e := failed[*FullError](t, calls[1]); !e.Displaced || e.RetryAfter <= 0 {
			t.Errorf("%+v", e)
		}
		r.set(func() { r.seats = 1 })
		r.end(gold)
		r.end(calls[0])
		if s := r.Stats(uid); s.Refused != 2 || s.Dispatched != 2 {
			t.Errorf("%+v", s)
		}
		r.settled()
	})
}

func TestErrorsNameTheModelTheBoundAndTheNextStep(t *testing.T) {
	for want, err := range map[string]error{
		`a request of tier "paid" for model m-1 can't wait: the queue of the model has 1000 of 1000 requests, and 7 of its priority or better wait; send it again in 13s`:    &FullError{Model: uid, Tier: "paid", Of: "model", What: "requests", Waiting: 1000, Limit: 1000, Ahead: 7, RetryAfter: 12100 * time.Millisecond},
		`a request of tier "paid" for model m-1 has lost its place: the queue of the router has 5 of 5 bytes, and 0 of its priority or better wait; send it again in 1s`:     &FullError{Model: uid, Tier: "paid", Of: "router", What: "bytes", Waiting: 5, Limit: 5, Displaced: true},
		`a request of tier "paid" for model m-1 can't wait: it would wait some 38 seconds and may do so for 24, and 99 of its priority or better wait; send it again in 39s`: &FullError{Model: uid, Tier: "paid", Of: "model", What: "seconds", Waiting: 38, Limit: 24, Ahead: 99, RetryAfter: 39 * time.Second},
		`a request of tier "free" for model m-1 is refused: its workers are 92% full (the tier's limit is 90%), and 3 of its priority or better wait; send it again in 2s`:   &RefusedError{Model: uid, Tier: "free", Percent: 92, Limit: 90, Ahead: 3, RetryAfter: 2 * time.Second},
		`a request of tier "paid" for model m-1 has waited 30s for room, the queue's limit, and 12 of its priority or better still wait; send it again in 4s`:                &TimeoutError{Model: uid, Tier: "paid", Waited: 30 * time.Second, Ahead: 12, RetryAfter: 4 * time.Second},
		`a request of tier "paid" for model m-1 has waited 1.5s for any worker, the client's own limit, and 0 of its priority or better still wait; send it again in 5s`:     &TimeoutError{Model: uid, Tier: "paid", Waited: 1500 * time.Millisecond, Deadline: true, Holding: true, RetryAfter: 5 * time.Second},
		`model m-1 has no worker yet, and a request of tier "free" can't wait for one: 1000 of 1000 requests are held for the model; send it again in 6s`:                    &HoldFullError{Model: uid, Tier: "free", Of: "model", What: "requests", Held: 1000, Limit: 1000, RetryAfter: 6 * time.Second},
		`model m-1 has no worker yet, and a request of tier "free" has lost its place: 1000 of 1000 requests are held for the model; send it again in 6s`:                    &HoldFullError{Model: uid, Tier: "free", Of: "model", What: "requests", Held: 1000, Limit: 1000, Displaced: true, RetryAfter: 6 * time.Second},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestCloseEndsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Limits{})
		first := r.enter("first", "paid")
		synctest.Wait()
		calls := r.many("p", "paid", 5)
		r.Close()
		for _, c := range calls {
			if c.waits() || !errors.Is(c.err, ErrClosed) {
				t.Errorf("%s: %v", c.name, c.err)
			}
		}
		r.end(first)
		for _, model := range []string{uid, "another"} {
			c := r.enter("late", "paid", func(it *Item) { it.Model = model })
			if c.waits() || !errors.Is(c.err, ErrClosed) {
				t.Errorf("%v", c.err)
			}
		}
		if r.order() != "first" {
			t.Errorf("placed %s", r.order())
		}
		r.settled()
	})
}

func TestDoneCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Limits{})
		first := r.enter("first", "paid")
		synctest.Wait()
		calls := r.many("p", "paid", 2)
		r.end(first)
		first.pass.Done(10)
		first.pass.Done(10)
		if calls[0].waits() || !calls[1].waits() {
			t.Error("one seat was left, and one is taken")
		}
		m := (*r.models.Load())[uid]
		if m.q.pace.n != 1 {
			t.Errorf("%d ends", m.q.pace.n)
		}
		r.end(calls[0])
		r.end(calls[1])
		r.settled()
	})
}

func TestTryMayCallTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Limits{})
		first := r.enter("first", "paid")
		<-first.over
		tries := 0
		c := r.enter("c", "paid", func(it *Item) {
			it.Try = func(time.Time) error {
				if tries++; tries > 3 {
					return nil
				}
				r.Wake(uid)
				r.WakeAll()
				r.Stats(uid)
				r.Configure(Limits{})
				first.pass.Done(1)
				return errNoRoom
			}
		})
		if c.waits() || c.err != nil || tries != 4 {
			t.Errorf("%d tries: %v", tries, c.err)
		}
		r.settled()
	})
}

func TestTheGateTakesItsTimeFromItsClock(t *testing.T) {
	fake := testclock.NewFakeClock(epoch)
	g := New(Options{
		Levels: func(string) admission.Levels { return admission.Levels{KVPercent: 99, InRing: 1} },
		Bands:  admission.DefaultBands, Waits: func(error) bool { return true },
		Clock: fake, Rand: nilChance,
	})
	over := make(chan error)
	go func() {
		_, err := g.Enter(t.Context(), &Item{Model: uid, Tier: tiers["gold"]})
		over <- err
	}()
	hangs := time.NewTimer(time.Minute)
	defer hangs.Stop()
	for {
		select {
		case err := <-over:
			var timeout *TimeoutError
			if !errors.As(err, &timeout) || timeout.Waited != DefaultLimits().MaxQueue {
				t.Errorf("%v", err)
			}
			return
		case <-hangs.C:
			t.Fatal("it hangs")
		default:
			if fake.HasWaiters() {
				fake.Step(DefaultLimits().MaxQueue)
			}
		}
	}
}

func TestFiguresOfAModelThatDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Limits{})
		calls := r.many("p", "paid", 60)
		for _, c := range calls[:50] {
			pass(100 * time.Millisecond)
			r.end(c)
			synctest.Wait()
		}
		s := r.Stats(uid)
		if s.RequestsPerSecond < 9 || s.RequestsPerSecond > 11 || s.TokensPerSecond < 90 || s.TokensPerSecond > 110 {
			t.Errorf("%+v", s)
		}
		if s.Queued != 9 || s.Oldest != 5*time.Second {
			t.Errorf("%+v", s)
		}
		full := &Item{Model: uid, Tier: tiers["bulk"], Tokens: 10}
		m := (*r.models.Load())[uid]
		if d := m.q.Retry(full, false, time.Now()); d < 900*time.Millisecond || d > 1200*time.Millisecond {
			t.Errorf("nine wait at ten per second: %s", d)
		}
		for _, c := range calls[50:] {
			r.end(c)
		}
		r.settled()
	})
}
