package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// What a connection may cost without asking for anything.
const (
	// freeBytes may be read of a connection, and bytesByRequest more with each request, for its head. What is read of a body
	// counts twice, for what is around it: a body of bodyPaid bytes at most when its request begins, a larger one as it is
	// read, after what may come before that. Each two bytes of answers pay for one, of windows, and bytesBySecond are for
	// pings. Beyond that nothing is read; where that goes on for so long as grace, the connection ends.
	freeBytes      = 64 << 10
	bytesByRequest = 2 * headBytes
	bodyPaid       = streamBuffer / 2
	bytesBySecond  = 4 << 10
	grace          = 5 * time.Second
	// takenBack streams may be ended by their client within the time of early. Beyond that, where it has taken back more than
	// half of its streams, the client is asked for another connection; the streams that run are finished, and what it begins
	// after that is not read any more.
	takenBack = 100
	early     = time.Second
	// unread is how much of the answers the kernel keeps that their client does not take, about: it takes twice as much.
	unread = 128 << 10
)

var errFlood = errors.New("server: the connection sends more than it asks for")

// brief makes the kernel keep little of what clients don't take.
type brief struct{ net.Listener }

// Accept implements net.Listener.
func (l brief) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetWriteBuffer(unread) // a connection that has ended already is seen by who reads it
	}
	return c, err
}

// guards makes every connection of a listener guarded.
type guards struct {
	net.Listener
	clock clock.Clock
}

// Accept implements net.Listener.
func (l guards) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newGuard(c, l.clock), nil
}

// guard is a connection of a client. It is read slower, and ends, where much comes that belongs to no request, such as frames
// of HTTP/2 that are cheap to send and not to answer; and it takes no more streams where they are begun only to be taken back.
type guard struct {
	net.Conn
	clock clock.Clock
	began time.Time

	read, paid      atomic.Int64  // bytes
	more            chan struct{} // holds a token when something was paid
	closed          chan struct{}
	once            sync.Once // of closed
	behind          time.Time // since when more was read than may be, again and again; Read's own
	streams, undone atomic.Int64
}

func newGuard(c net.Conn, now clock.Clock) *guard {
	g := &guard{Conn: c, clock: now, began: now.Now(), more: make(chan struct{}, 1), closed: make(chan struct{})}
	g.paid.Store(freeBytes)
	return g
}

// Read implements net.Conn.
func (g *guard) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if g.read.Add(int64(n)); !g.settled(int64(n)) {
		_ = g.Close() // who floods needs no goodbye
		return 0, errFlood
	}
	return n, err
}

// left is how many bytes more may be read by now; less than none where too many were.
func (g *guard) left() int64 {
	return g.paid.Load() - g.read.Load() + int64(bytesBySecond*g.clock.Since(g.began).Seconds())
}

// settled waits until no more was read than may be, and reports whether that came in time. The last bytes are those of one
// read. A connection before whose reads there is little left each time has not caught up.
func (g *guard) settled(last int64) bool {
	left := g.left()
	if left+last >= bytesBySecond {
		g.behind = time.Time{}
	}
	for ; left < 0; left = g.left() {
		if g.behind.IsZero() {
			g.behind = g.clock.Now()
		}
		rest := grace - g.clock.Since(g.behind)
		if rest <= 0 {
			return false
		}
		if !g.wait(min(rest, time.Duration(-left)*time.Second/bytesBySecond+time.Millisecond)) {
			return true // who closed it knows
		}
	}
	return true
}

// wait waits for a payment, for so long at most, and reports whether the connection is open.
func (g *guard) wait(d time.Duration) bool {
	late := g.clock.NewTimer(d)
	defer late.Stop()
	select {
	case <-g.more:
	case <-late.C():
	case <-g.closed:
		return false
	}
	return true
}

// pay lets so many bytes more be read.
func (g *guard) pay(n int64) {
	g.paid.Add(n)
	select {
	case g.more <- struct{}{}:
	default:
	}
}

// Write implements net.Conn.
func (g *guard) Write(b []byte) (int, error) {
	n, err := g.Conn.Write(b)
	g.pay(int64(n) / 2)
	return n, err
}

// Close implements net.Conn.
func (g *guard) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Conn.Close()
}

// guardKey finds the guard in a request's context.
type guardKey struct{}

// withGuard puts a connection's guard into the context of its requests.
func withGuard(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if g, ok := c.(*guard); ok {
		return context.WithValue(ctx, guardKey{}, g)
	}
	return ctx
}

// guarded tells the guards of connections what their requests are. Requests is what all requests end with.
func guarded(requests context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g, ok := r.Context().Value(guardKey{}).(*guard)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		if n := r.ContentLength; n >= 0 && n <= bodyPaid {
			g.pay(bytesByRequest + 2*n)
		} else {
			g.pay(bytesByRequest + 2*streamBuffer)
			r.Body = &paying{r.Body, g}
		}
		if r.ProtoMajor < 2 {
			next.ServeHTTP(w, r)
			return
		}
		g.streams.Add(1)
		if g.fickle() {
			w.Header().Set("Connection", "close")
		}
		began := g.clock.Now()
		defer func() {
			if r.Context().Err() != nil && requests.Err() == nil && g.clock.Since(began) < early {
				g.tookBack(w)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// fickle reports whether too many streams were taken back.
func (g *guard) fickle() bool {
	n := g.undone.Load()
	return n > takenBack && 2*n > g.streams.Load()
}

// tookBack counts a stream that its client has ended. Where that were too many, no other one shall begin: its handler's
// answer, which nobody gets, makes the server say so.
func (g *guard) tookBack(w http.ResponseWriter) {
	g.undone.Add(1)
	if g.fickle() {
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).Flush() // it can't arrive
	}
}

// paying is a body whose bytes may be read.
type paying struct {
	io.ReadCloser
	g *guard
}

// Read implements io.Reader. It asks for no more than is paid for already: net/http may read that of the connection at once,
// and nobody pays before it has.
func (p *paying) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b[:min(len(b), streamBuffer)])
	p.g.pay(2 * int64(n))
	return n, err
}
