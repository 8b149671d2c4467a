// Package lines writes the router's log. Lines are gathered and handed to the file together, as a write for each request
// costs more than the line; what warns is never kept waiting. It decides nothing about what is logged.
package lines

import (
	"io"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// Patience is how long a line waits for others, at most.
	Patience = 100 * time.Millisecond
	// enough is how many bytes wait for nothing more. It is half of a pipe.
	enough = 32 << 10
)

// Writer gathers whole lines for a file. Where the file takes none, those who log are held up, as they are by the file
// itself: no line is lost, and twice enough bytes and a few lines are held at most. What the file refuses is dropped.
type Writer struct {
	file  io.Writer
	clock clock.WithDelayedExecution

	mu      sync.Mutex // guards what follows; not held while the file or the clock is called
	written *sync.Cond // on mu: writing has become false
	writing bool       // somebody hands lines to the file
	waiting []byte     // where it holds any, armed or writing is true
	spare   []byte     // the other buffer; nil while it is handed to the file
	armed   bool       // the clock will call due
	owed    bool       // due has called while somebody wrote
	closed  bool
}

// New returns a Writer to file. Its end is Close.
func New(file io.Writer, c clock.WithDelayedExecution) *Writer {
	w := &Writer{file: file, clock: c, waiting: make([]byte, 0, enough), spare: make([]byte, 0, enough)}
	w.written = sync.NewCond(&w.mu)
	return w
}

// Write takes one line, which ends with a line break. It never fails.
func (w *Writer) Write(line []byte) (int, error) {
	if w.add(line) {
		w.clock.AfterFunc(Patience, w.due)
	}
	return len(line), nil
}

// add takes a line, and reports whether the clock is to be armed.
func (w *Writer) add(line []byte) (arm bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.writing && len(w.waiting) >= enough {
		w.written.Wait()
	}
	w.waiting = append(w.waiting, line...)
	if w.closed || len(w.waiting) >= enough {
		w.flush()
	}
	arm = len(w.waiting) > 0 && !w.armed
	w.armed = w.armed || arm
	return arm
}

// Flush hands the file what waits, and returns when all lines that were there before are written.
func (w *Writer) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flush()
}

// Close is Flush, and lets no line wait from now on.
func (w *Writer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.flush()
}

// due is called by the clock. Where somebody writes, that one goes on with what waits, once at least.
func (w *Writer) due() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	if w.owed = w.writing; !w.owed {
		w.flush()
	}
}

// flush is called with mu held, and lets go of it while the file is written.
func (w *Writer) flush() {
	for w.writing {
		w.written.Wait()
	}
	w.writing = true
	for first := true; len(w.waiting) > 0 && (first || w.owed || !w.armed); first = false {
		out := w.waiting
		w.owed = false
		w.waiting, w.spare = w.spare, nil
		w.mu.Unlock()
		_, _ = w.file.Write(out) // where no line can be written, nobody can be told
		if cap(out) > 2*enough {
			out = make([]byte, 0, enough) // a line was very long
		}
		w.mu.Lock()
		w.spare = out[:0]
	}
	w.writing = false
	w.written.Broadcast()
}
