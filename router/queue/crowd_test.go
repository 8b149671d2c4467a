package queue

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/admission"
)

// mayWait is how many of a crowd may wait.
const mayWait = 40

// newCrowd is a gate before a model that answers perSecond requests of 100 tokens a second, each in a second.
func newCrowd(perSecond int) *overload {
	p := newPlant(float64(100*perSecond), 100, int64(100*perSecond+1))
	o := &overload{plant: p, rng: rand.New(rand.NewPCG(1, 1)), tally: make([]tally, 1)}
	p.gate = New(Options{
		Levels: p.levels, Bands: admission.DefaultBands, Waits: func(err error) bool { return errors.Is(err, errNoRoom) },
		Limits: Limits{Model: Bound{Requests: mayWait}}, Clock: clock.RealClock{}, Rand: o.chance,
	})
	return o
}

// busy keeps the model a little busier than it can be for a time, so that the rate at which it drains is known.
func (o *overload) busy(perSecond int, lasts time.Duration) {
	var all sync.WaitGroup
	for range int(lasts.Seconds()) * perSecond {
		all.Go(func() { o.try(load{tier: "paid", patience: time.Hour}, "before", 100) })
		pass(time.Second * 9 / 10 / time.Duration(perSecond))
	}
	all.Wait()
}

// comes lets n ask at one moment, of some tenants, until all have been answered. It says in which second, of those since
// began, the last came back.
func (o *overload) comes(n, tenants int, began time.Time) (last int) {
	o.tally[0] = tally{comeBacks: map[int]int{}}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for {
				wait, ok := o.try(load{tier: "paid", patience: time.Hour}, strconv.Itoa(i%tenants), 100)
				if ok {
					return
				}
				pass(wait)
				at := int(time.Since(began).Seconds())
				o.mu.Lock()
				o.tally[0].comeBacks[at]++
				last = max(last, at)
				o.mu.Unlock()
			}
		})
	}
	all.Wait()
	o.gate.Close()
	return last
}

// Those of a crowd who are refused come back as fast as the model takes them.
func TestACrowdComesBackEvenlyAsFastAsTheModelDrains(t *testing.T) {
	const perSecond = 8
	for _, n := range []int{128, 160} {
		for _, tenants := range []int{1, 4, n} {
			synctest.Test(t, func(t *testing.T) {
				o := newCrowd(perSecond)
				o.busy(perSecond, 30*time.Second)
				last := o.comes(n, tenants, time.Now())
				first := mayWait/perSecond + 1
				if peak := o.tally[0].peakOverMean(1, last+1); peak > 1.5 || last > first+(n-mayWait-perSecond)/perSecond {
					t.Errorf("%d of %d tenants come back until second %d, with peak/mean %.2f: %v", n, tenants, last, peak, o.tally[0].comeBacks)
				}
			})
		}
	}
}

// The model has rested, so that nobody knows how fast it is when the crowd comes: the first to come back may be too many.
func TestACrowdAtAModelThatHasRestedComesBackInNoWave(t *testing.T) {
	for _, perSecond := range []int{8, 16, 30} {
		for _, n := range []int{128, 160, 200} {
			synctest.Test(t, func(t *testing.T) {
				o := newCrowd(perSecond)
				last := o.comes(n, 1, time.Now())
				peak := o.tally[0].peakOverMean(1, last+1)
				t.Logf("%d at %d/s: peak/mean %.2f", n, perSecond, peak)
				if peak > 2 {
					t.Errorf("%d at %d a second: peak/mean %.2f: %v", n, perSecond, peak, o.tally[0].comeBacks)
				}
			})
		}
	}
}

// Each of three routers knows only whom it has refused itself, and what drains from its own queue.
func TestThoseWhomThreeRoutersRefuseComeBackEvenly(t *testing.T) {
	back := &tally{comeBacks: map[int]int{}}
	last := 0
	for i := range 3 {
		synctest.Test(t, func(t *testing.T) {
			o := newCrowd(8)
			o.busy(8, 30*time.Second)
			began := time.Now()
			pass(time.Duration(i) * 300 * time.Millisecond)
			last = max(last, o.comes(140+10*i, 1, began))
			for at, n := range o.tally[0].comeBacks {
				back.comeBacks[at] += n
			}
		})
	}
	if peak := back.peakOverMean(1, last+1); peak > 1.5 {
		t.Errorf("peak/mean %.2f: %v", peak, back.comeBacks)
	}
}
