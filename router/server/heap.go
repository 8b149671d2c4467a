package server

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

const (
	// heapRoom is how many bytes the heap may grow by between two collections, at least. What a router keeps is a few MiB,
	// and Go by default collects when the heap has doubled: with a thousand requests a second that is several times a second.
	heapRoom = 32 << 20
	// Go's own percentage, and the greatest one: a heap that has just been made tells little.
	usualPercent, mostPercent = 100, 1600
)

// collectPercent is the percentage of live bytes by which a heap should grow until it is collected. A small heap gets its
// room; a large one grows as by default. GOMEMLIMIT bounds both.
func collectPercent(live uint64) int {
	if live >= heapRoom*100/mostPercent {
		return max(int(heapRoom*100/live), usualPercent)
	}
	return mostPercent
}

// near reports whether a percentage may stay as it is where another one is wanted: to change it stops the process for a
// moment.
func near(is, want int) bool { return 4*max(is-want, want-is) <= want }

// heapWatch sets the percentage after each collection.
type heapWatch struct {
	set     func(percent int)
	percent int
	stopped atomic.Bool
}

// giveRoom watches the heap until the process ends, unless GOGC says how to collect.
func giveRoom() {
	if os.Getenv("GOGC") != "" {
		return
	}
	(&heapWatch{set: func(percent int) { debug.SetGCPercent(percent) }, percent: usualPercent}).judge()
}

// judge sets the percentage for the present heap, and judges again after the next collection.
func (w *heapWatch) judge() {
	if w.stopped.Load() {
		return
	}
	sample := [1]metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample[:])
	if want := collectPercent(sample[0].Value.Uint64()); !near(w.percent, want) {
		w.percent = want
		w.set(want)
	}
	runtime.AddCleanup(new([64]byte), (*heapWatch).judge, w) // the next collection finds that nobody has it
}

// stop ends the watch; the percentage stays.
func (w *heapWatch) stop() { w.stopped.Store(true) }
