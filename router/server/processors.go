package server

import (
	"math"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/cputime"
)

// On how many processors Go's code runs follows the work. As long as one of them is idle, Go wakes a thread for each goroutine
// that becomes ready, which looks for more of them and finds none: at 1,000 requests a second on two processors that is a third
// of all that a request costs.
const (
	// sampleEvery is how often the use is looked at: a burst that meets one processor has that one alone for as long.
	sampleEvery = 100 * time.Millisecond
	// crowded is the part of the processors' time beyond which there are more at once, ample the one that is aimed at then.
	// roomy is the part of fewer processors that may be used, on average over calmFor, so that these do: the same work uses
	// less on fewer.
	crowded, ample, roomy = .7, .5, .65
	calmFor               = 3 * time.Second
	// lateFor takes the place of calmFor where work had to wait: a thread that other processes push aside uses little, and all
	// that one has waits with it.
	lateFor = 30 * time.Second
	// limitEvery is how often is looked whether there are still as many as there were.
	limitEvery = 30 * time.Second
)

// useWatch judges by the use how many processors there should be.
type useWatch struct {
	calm, used time.Duration // how long none was crowded, and what was used in that time
	late       bool          // work had to wait for them since there were fewer
}

// use is that of the processors in some time.
type use struct {
	used, took time.Duration
	late       bool // work had to wait for one
}

// step returns how many processors to have after such a use of those there are.
func (w *useWatch) step(have, available int, u use) int {
	if u.took <= 0 {
		return min(have, available)
	}
	if busy := u.used.Seconds() / u.took.Seconds(); u.late || busy > crowded*float64(have) {
		*w = useWatch{late: w.late || u.late}
		return min(max(enough(busy, ample), have+1), available)
	}
	w.calm, w.used = w.calm+u.took, w.used+u.used
	if w.calm >= lateFor || w.calm >= calmFor && !w.late {
		have = min(have, enough(w.used.Seconds()/w.calm.Seconds(), roomy))
		*w = useWatch{}
	}
	return min(have, available)
}

// enough is how many processors there must be so that no greater part of them is busy where so many are.
func enough(busy, part float64) int { return max(int(math.Ceil(busy/part)), 1) }

// processors are those that Go's code runs on.
type processors struct {
	clock clock.WithTicker
	used  func() time.Duration // their time, since the process began
	have  func() int
	late  func() bool // whether work had to wait since the last time
	set   func(n int)
	// all sets them to as many as Go takes by itself by what the machine and the process's limits are now, and returns how
	// many these are.
	all func() int

	watch     useWatch
	fewer     bool // than all; otherwise Go itself heeds a limit that changes
	available int  // when asked
	asked     time.Time
	at        time.Time // of the last sample
	before    time.Duration
}

// followLoad has as many processors as the work needs until the returned function is called, unless GOMAXPROCS says how many.
func followLoad() (stop func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	return (&processors{clock: clock.RealClock{}, used: cputime.Used, late: newWaits().late, have: func() int { return runtime.GOMAXPROCS(0) },
		set: func(n int) { runtime.GOMAXPROCS(n) },
		all: func() int { runtime.SetDefaultGOMAXPROCS(); return runtime.GOMAXPROCS(0) }}).start()
}

// start samples until stop is called; they stay as many as they are then.
func (p *processors) start() (stop func()) {
	p.at, p.before = p.clock.Now(), p.used()
	tick := p.clock.NewTicker(sampleEvery)
	ended := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C():
				p.sample(p.clock.Now())
			}
		}
	})
	return func() { close(ended); group.Wait() }
}

// sample looks at what was used since the last time, and sets how many there should be.
func (p *processors) sample(now time.Time) {
	have := p.have()
	if !p.fewer {
		p.available = have
	} else if have > 1 && now.Sub(p.asked) >= limitEvery {
		p.ask(now, have)
		have = p.have()
	}
	used, took := p.used()-p.before, now.Sub(p.at)
	p.at, p.before = now, p.before+used
	switch want := p.watch.step(have, p.available, use{used, took, p.late()}); {
	case want == have:
	case want < p.available && p.fewer && now.Sub(p.asked) < limitEvery:
		p.set(want) // one stop of all that runs in place of two
	default:
		p.ask(now, want)
	}
}

// ask looks how many are available, and sets them to so many of these.
func (p *processors) ask(now time.Time, want int) {
	p.available, p.asked = p.all(), now
	if p.fewer = want < p.available; p.fewer {
		p.set(want)
	}
}

// A goroutine is late that was ready for so long until it ran. Go counts one of eight; that many of them, and that part of all,
// tell that a process is pushed aside, and not of a collection.
const (
	lateAfter = .002 // s
	lateLeast = 4
	latePart  = .05
)

// waits are those of goroutines that were ready for a processor.
type waits struct {
	sample     [1]metrics.Sample
	first      int // bucket of those that were late
	all, tardy uint64
}

func newWaits() *waits {
	w := &waits{sample: [1]metrics.Sample{{Name: "/sched/latencies:seconds"}}}
	w.late()
	w.first, _ = slices.BinarySearch(w.sample[0].Value.Float64Histogram().Buckets, lateAfter)
	w.late()
	return w
}

// late reports whether many were since it was asked last.
func (w *waits) late() bool {
	metrics.Read(w.sample[:])
	var all, tardy uint64
	for i, n := range w.sample[0].Value.Float64Histogram().Counts {
		all += n
		if i >= w.first {
			tardy += n
		}
	}
	return w.count(all, tardy)
}

// count is late with what has been counted since the process began.
func (w *waits) count(all, tardy uint64) bool {
	moreAll, moreTardy := all-w.all, tardy-w.tardy
	w.all, w.tardy = all, tardy
	return moreTardy >= lateLeast && float64(moreTardy) >= latePart*float64(moreAll)
}
