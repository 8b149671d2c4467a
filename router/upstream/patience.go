package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// patience is how long a call waits for its worker: for the first piece, and then from one piece to the next while somebody
// waits for it. It is one timer that looks, whenever it fires, how long the present wait has lasted: a piece costs no timer.
type patience struct {
	clock clock.WithDelayedExecution
	idle  time.Duration // 0: without limit
	end   func(cause error)
	began time.Time

	waiting atomic.Int64 // the time from began to when a wait began, and one nanosecond; 0: nobody waits

	mu    sync.Mutex // guards what follows
	timer clock.Timer
	first bool // the first piece is there
	over  bool
}

// start begins the wait for the first piece, of at most firstByte; 0 is without limit. End is called with ErrFirstByte or
// ErrIdle when a wait is over.
func (p *patience) start(c clock.WithDelayedExecution, firstByte, idle time.Duration, end func(cause error)) {
	p.clock, p.idle, p.end, p.began = c, idle, end, c.Now()
	if firstByte > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.set(firstByte)
	}
}

// set makes look run after d. The caller holds the lock. The clock may hold a lock of its own while it calls back.
func (p *patience) set(d time.Duration) {
	p.timer = p.clock.AfterFunc(d, func() { go p.look() })
}

// came says that the first piece is there.
func (p *patience) came() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = true
	stopped := p.timer != nil && p.timer.Stop()
	switch {
	case p.idle == 0 || p.over:
	case stopped:
		p.timer.Reset(p.idle)
	default:
		p.set(p.idle)
	}
}

// wait says that somebody waits for a piece from now on, rest that nobody does.
func (p *patience) wait() {
	if p.idle > 0 {
		p.waiting.Store(int64(p.clock.Since(p.began)) + 1)
	}
}

func (p *patience) rest() {
	if p.idle > 0 {
		p.waiting.Store(0)
	}
}

// look ends what has waited for too long, or looks again when that may be the case.
func (p *patience) look() {
	if cause := p.judge(); cause != nil {
		p.end(cause)
	}
}

func (p *patience) judge() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil
	}
	if !p.first {
		return ErrFirstByte
	}
	left := p.idle
	if since := p.waiting.Load(); since > 0 {
		left -= p.clock.Since(p.began) - time.Duration(since-1)
	}
	if left <= 0 {
		return ErrIdle
	}
	p.set(left)
	return nil
}

// stop ends all waits.
func (p *patience) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
