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
	// freeBytes may be read of a connection, bytesByRequest more with each request: its head, and what comes of its body
	// before anybody reads it. What is read of a body counts twice, for what is around it. Each two bytes of answers pay for
	// one, of windows, and bytesBySecond are for pings. Beyond that nothing is read; where that goes on for so long as
	// grace, the connection ends.
	freeBytes      = 64 << 10
	bytesByRequest = 512 << 10
	bytesBySecond  = 4 << 10
	grace          = 5 * time.Second
	// takenBack streams may be ended by their client within the time of early. Beyond that, where it has taken back more than
	// half of its streams, the client is asked for another connection with the next answer; the streams that run are
	// finished. After as many more, all of them without an answer on the way, the connection ends.
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
// of HTTP/2 that are cheap to send and not to answer; and it ends where streams are begun only to be taken back.
type guard struct {
	net.Conn
	clock clock.Clock
	began time.Time

	read, paid      atomic.Int64  // bytes
	more            chan struct{} // holds a token when something was paid
	closed          chan struct{}
	once            sync.Once // of closed
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
	if g.read.Add(int64(n)); g.over() && !g.settled() {
		_ = g.Close() // who floods needs no goodbye
		return 0, errFlood
	}
	return n, err
}

// over reports whether more was read than may be by now.
func (g *guard) over() bool {
	n := g.read.Load() - g.paid.Load()
	return n > 0 && n > int64(bytesBySecond*g.clock.Since(g.began).Seconds())
}

// settled waits until no more was read than may be, and reports whether that came in time.
func (g *guard) settled() bool {
	late := g.clock.NewTimer(grace)
	defer late.Stop()
	for g.over() {
		select {
		case <-g.more:
		case <-g.closed:
			return true // who closed it knows
		case <-late.C():
			return false
		}
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
		g.pay(bytesByRequest)
		if r.ContentLength < 0 || r.ContentLength > bytesByRequest/4 {
			r.Body = &paying{r.Body, g}
		}
		if r.ProtoMajor < 2 {
			next.ServeHTTP(w, r)
			return
		}
		if n := g.undone.Load(); n > takenBack && 2*n > g.streams.Load() {
			w.Header().Set("Connection", "close")
		}
		began := g.clock.Now()
		defer func() { g.ended(r.Context().Err() != nil && requests.Err() == nil && g.clock.Since(began) < early) }()
		next.ServeHTTP(w, r)
	})
}

// ended counts a stream, and ends the connection where too many were taken back.
func (g *guard) ended(undone bool) {
	streams := g.streams.Add(1)
	if !undone {
		return
	}
	if n := g.undone.Add(1); n > 2*takenBack && 2*n > streams {
		_ = g.Close() // who floods needs no goodbye
	}
}

// paying is a body whose bytes may be read.
type paying struct {
	io.ReadCloser
	g *guard
}

// Read implements io.Reader.
func (p *paying) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	p.g.pay(2 * int64(n))
	return n, err
}
