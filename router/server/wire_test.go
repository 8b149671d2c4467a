package server

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// wire is a connection in memory whose client has sent all that it ever sends, in pieces of at most piece bytes.
type wire struct {
	piece int
	ended chan struct{} // closed once the server sends nothing more

	mu   sync.Mutex // guards the rest
	in   []byte
	out  bytes.Buffer
	over bool
}

func newWire(in []byte, piece int) *wire {
	return &wire{piece: piece, in: in, ended: make(chan struct{})}
}

func (w *wire) Read(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.in) == 0 || w.over {
		return 0, io.EOF
	}
	n := copy(p, w.in[:min(w.piece, len(w.in))])
	w.in = w.in[n:]
	return n, nil
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return 0, net.ErrClosed
	}
	return w.out.Write(p)
}

// CloseWrite is the end of what the server sends; it may wait a while before it closes.
func (w *wire) CloseWrite() error { return w.Close() }

func (w *wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.over = true
		close(w.ended)
	}
	return nil
}

// sent is what the server had to say, once it says nothing more.
func (w *wire) sent(t *testing.T) []byte {
	t.Helper()
	late := time.NewTimer(hangs)
	defer late.Stop()
	select {
	case <-w.ended:
	case <-late.C:
		t.Fatal("hangs: the server neither answers nor closes")
	}
	return w.out.Bytes()
}

func (w *wire) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (w *wire) RemoteAddr() net.Addr             { return w.LocalAddr() }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// handed is a listener whose connections are handed to it.
type handed struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *handed) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

func (h *handed) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// frontOn serves clients by a front, with this handler, on connections that are handed over.
func frontOn(tb testing.TB, handler http.Handler) (conns chan<- net.Conn, said *complaints) {
	tb.Helper()
	l := &handed{conns: make(chan net.Conn), done: make(chan struct{})}
	said = &complaints{}
	s := newFront(context.Background(), handler, nil, log.New(said, "", 0))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	tb.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return l.conns, said
}

// complaints are what a server itself has to say of handlers that broke.
type complaints struct {
	mu    sync.Mutex // guards broke
	broke string
}

func (c *complaints) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Contains(p, []byte("panic")) {
		c.broke = string(p)
	}
	return len(p), nil
}

// panics is the last one, or "".
func (c *complaints) panics() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broke
}
