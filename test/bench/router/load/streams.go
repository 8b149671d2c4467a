package load

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Stream is what a load of streams has seen.
type Stream struct {
	Streams int    `json:"streams"`
	Failed  int    `json:"failed"`
	Error   string `json:"error"`
	// Tokens are events with data; Seconds is how long the load took.
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"seconds"`
	// GapP50 and GapP99 are from one token of a stream to the next, in microseconds.
	GapP50 float64 `json:"gapP50"`
	GapP99 float64 `json:"gapP99"`
}

// Streams holds n streams at once for d, each from its first byte to its end and then another.
func Streams(ctx context.Context, t Target, n int, d time.Duration) Stream {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var mu sync.Mutex // guards what follows
	var gaps []time.Duration
	out := Stream{Streams: n}
	var group sync.WaitGroup
	began := time.Now()
	for i := range n {
		group.Go(func() {
			r := reader{}
			err := r.all(ctx, t.Address, t.of(i))
			mu.Lock()
			defer mu.Unlock()
			gaps, out.Tokens = append(gaps, r.gaps...), out.Tokens+r.tokens
			if err != nil {
				out.Failed, out.Error = out.Failed+1, err.Error()
			}
		})
	}
	group.Wait()
	out.Seconds = time.Since(began).Seconds()
	slices.Sort(gaps)
	out.GapP50, out.GapP99 = Quantile(gaps, 0.5), Quantile(gaps, 0.99)
	return out
}

// reader reads streams over one connection.
type reader struct {
	tokens int
	gaps   []time.Duration
	last   time.Time
	ended  bool
}

// all asks again and again until ctx ends, which is no error.
func (r *reader) all(ctx context.Context, address string, request []byte) error {
	c, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer c.Close()                                                          //nolint:errcheck // nothing is left to lose
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })() // ends a read
	for ctx.Err() == nil {
		err = r.one(c, request)
		if ctx.Err() == nil && err != nil {
			return err
		}
	}
	return nil
}

// one reads one stream to its end.
func (r *reader) one(c *conn, request []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	a, err := c.head()
	if err != nil {
		return err
	}
	if a.status != 200 || a.length != -1 {
		return fmt.Errorf("status %d, length %d: want 200 and chunks", a.status, a.length)
	}
	r.last, r.ended = time.Time{}, false
	for {
		n, err := c.chunk(r.part)
		switch {
		case err != nil:
			return err
		case n == 0 && !r.ended:
			return io.ErrUnexpectedEOF
		case n == 0:
			return nil
		}
	}
}

var (
	data = []byte("data: {")
	done = []byte("data: [DONE]")
)

// part counts the events that begin in a part of a chunk. Parts begin and end with events, as all servers here send them.
func (r *reader) part(b []byte) {
	n := bytes.Count(b, data)
	r.ended = r.ended || bytes.Contains(b, done)
	if n == 0 {
		return
	}
	now := time.Now()
	if !r.last.IsZero() {
		r.gaps = append(r.gaps, now.Sub(r.last))
	}
	r.tokens, r.last = r.tokens+n, now
}

// Idle are streams that are open and silent.
type Idle struct {
	conns  []*conn
	Failed int
	Error  string
}

// Hold opens n streams, opening at most parallel at once, and waits for the first event of each.
func Hold(ctx context.Context, t Target, n, parallel int) *Idle {
	var mu sync.Mutex // guards h
	h := &Idle{}
	var next atomic.Int64
	var group sync.WaitGroup
	for range parallel {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				c, err := first(ctx, t.Address, t.of(i))
				mu.Lock()
				if err != nil {
					h.Failed, h.Error = h.Failed+1, err.Error()
				} else {
					h.conns = append(h.conns, c)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return h
}

// Open is how many streams are open.
func (h *Idle) Open() int { return len(h.conns) }

// Close ends them.
func (h *Idle) Close() {
	for _, c := range h.conns {
		_ = c.Close()
	}
}

// first opens a stream and reads its first event. Little memory stays with the connection.
func first(ctx context.Context, address string, request []byte) (*conn, error) {
	c, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	var r reader
	a, err := func() (answer, error) {
		if _, err := c.Write(request); err != nil {
			return answer{}, err
		}
		return c.head()
	}()
	if err == nil && (a.status != 200 || a.length != -1) {
		err = fmt.Errorf("status %d, length %d: want 200 and chunks", a.status, a.length)
	}
	for err == nil && r.tokens == 0 {
		_, err = c.chunk(r.part)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	c.r = nil
	return c, nil
}
