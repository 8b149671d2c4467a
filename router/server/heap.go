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
	// Go's own percentage, and the greatest one: Go collects no heap of less than 4 MiB, and takes that by the percentage too.
	usualPercent, mostPercent = 100, 100 * heapRoom / (4 << 20)
)

// collectPercent is the percentage of live bytes by which a heap should grow until it is collected. A small heap gets its
// room; a large one grows as by default. GOMEMLIMIT bounds both.
func collectPercent(live uint64) int {
	if live >= heapRoom*100/mostPercent {
		return max(int(heapRoom*100/live), usualPercent)
	}
	return mostPercent
}

// live is what the last collection found in use, of all that Go takes the percentage of.
func live() (bytes uint64) {
	samples := [...]metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples[:])
	for _, s := range samples {
		bytes += s.Value.Uint64()
	}
	return bytes
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
	if want := collectPercent(live()); !near(w.percent, want) {
		w.percent = want
		w.set(want)
	}
	runtime.AddCleanup(new([64]byte), (*heapWatch).judge, w) // the next collection finds that nobody has it
}

// stop ends the watch; the percentage stays.
func (w *heapWatch) stop() { w.stopped.Store(true) }
