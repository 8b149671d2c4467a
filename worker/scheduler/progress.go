package scheduler

import (
	"sync/atomic"
	"time"
)

// Progress says what the device is at. The scheduler's goroutine writes it, and any other may read it, without a lock: a
// call into the device that never returns is seen from outside only. The zero value is ready for use.
type Progress struct {
	usual time.Duration // set before the scheduler's goroutine starts
	work  atomic.Pointer[Work]
}

// Work is one call of the Executor that has not returned.
type Work struct {
	// Since is when it was made.
	Since time.Time
	// Steps is how many full steps it is worth, at least 1: an input to embed may be one call, however long it is.
	Steps int
	// Usual is how long a step took when the model was loaded; 0: unknown.
	Usual time.Duration
}

// Now returns the call under way, or false where there is none.
func (p *Progress) Now() (Work, bool) {
	w := p.work.Load()
	if w == nil {
		return Work{}, false
	}
	return *w, true
}

func (p *Progress) begin(now time.Time, steps int) {
	p.work.Store(&Work{Since: now, Steps: max(steps, 1), Usual: p.usual})
}

func (p *Progress) end() { p.work.Store(nil) }
