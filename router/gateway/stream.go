package gateway

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/openai"
)

const (
	// writeWindow is how long a client may take to take one write.
	writeWindow = 30 * time.Second
	// writeSlack is how much longer it may be, so that the deadline need not be moved with each write.
	writeSlack = time.Second
	// keepAlive is the silence after which a comment is sent, so that nothing on the way takes the stream for dead.
	keepAlive = 15 * time.Second
	// While no worker takes the request, comments say what it waits for: the first after firstNote, more each nextNote.
	firstNote = 2 * time.Second
	nextNote  = 5 * time.Second
)

// events writes a response as server-sent events. The response begins with the first write, be it a comment: until then
// an error can still be a status.
type events struct {
	clock  clock.WithDelayedExecution
	cancel context.CancelFunc // called when the client takes nothing any more
	waits  func() string      // what the request waits for while no worker takes it

	mu    sync.Mutex // guards all below, and the response
	w     http.ResponseWriter
	rc    *http.ResponseController
	begun bool
	flows bool // an event was sent, not only comments
	over  bool
	last  time.Time
	until time.Time // when the present deadline of writes is
	timer clock.Timer
}

// newEvents returns events of which nothing is sent yet. Close them before the handler returns.
func newEvents(c clock.WithDelayedExecution, w http.ResponseWriter, rc *http.ResponseController, cancel context.CancelFunc, waits func() string) *events {
	e := &events{clock: c, cancel: cancel, waits: waits, w: w, rc: rc, last: c.Now()}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.arm(firstNote)
	return e
}

// arm makes idle run after d. The caller holds the lock.
func (e *events) arm(d time.Duration) {
	e.timer = e.clock.AfterFunc(d, func() { go e.idle() })
}

// header sets a header of the response, or, when that has begun by a comment, a trailer.
func (e *events) header(name, value string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.begun {
		name = http.TrailerPrefix + name
	}
	e.w.Header().Set(name, value)
}

// send writes whole events and flushes them.
func (e *events) send(b []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flows = true
	return e.write(b)
}

// write is send for callers that hold the lock.
func (e *events) write(b []byte) error {
	if e.over {
		return errGone
	}
	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h["Content-Type"], h["Cache-Control"], h["X-Accel-Buffering"], h["X-Content-Type-Options"] = typeEvents, noCache, noBuffer, noSniff
		e.w.WriteHeader(http.StatusOK)
	}
	e.last = e.clock.Now()
	if e.until.Sub(e.last) < writeWindow { // not for each token
		e.until = e.last.Add(writeWindow + writeSlack)
		_ = e.rc.SetWriteDeadline(e.until)
	}
	_, err := e.w.Write(b)
	if err == nil {
		err = e.rc.Flush()
	}
	if err != nil {
		e.over = true
		e.cancel()
		return errGone
	}
	return nil
}

// idle sends a comment when nothing was sent for long enough, and looks again when that may be the case next.
func (e *events) idle() {
	note := e.waits()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return
	}
	comment, every := []byte(openai.KeepAlive), keepAlive
	if note != "" && !e.flows {
		comment, every = openai.AppendComment(nil, note), nextNote
		if !e.begun {
			every = firstNote
		}
	}
	if left := every - e.clock.Since(e.last); left > 0 {
		e.arm(e.soon(left))
		return
	}
	if e.write(comment) == nil {
		e.arm(e.soon(every))
	}
}

// soon is when to look again: until something flows, the request may begin to wait at any time.
func (e *events) soon(d time.Duration) time.Duration {
	if !e.flows {
		return min(d, nextNote)
	}
	return d
}

// fail ends a response that has begun by an error event, and reports whether it had. Nothing is written after it.
func (e *events) fail(err *openai.Error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.begun {
		_ = e.write(openai.AppendErrorEvent(nil, err)) // a client that has gone needs no error
	}
	e.over = true
	return e.begun
}

// close ends the events; what comes later writes nothing.
func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	e.timer.Stop()
}
