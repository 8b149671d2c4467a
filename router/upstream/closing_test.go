package upstream

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	clocktesting "k8s.io/utils/clock/testing"
)

// stuck makes connections that do not close until release is closed, as to a host that has gone silent.
type stuck struct {
	credentials.TransportCredentials
	release chan struct{}
	begun   chan struct{} // closed with the first try to close one
	once    sync.Once
	closed  atomic.Bool
}

func newStuck() *stuck {
	return &stuck{TransportCredentials: insecure.NewCredentials(), release: make(chan struct{}), begun: make(chan struct{})}
}

func (c *stuck) Clone() credentials.TransportCredentials { return c }

func (c *stuck) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, conn)
	return &stuckConn{Conn: conn, by: c}, info, err
}

type stuckConn struct {
	net.Conn
	by *stuck
}

func (c *stuckConn) Close() error {
	c.by.once.Do(func() { close(c.by.begun) })
	<-c.by.release
	err := c.Conn.Close()
	c.by.closed.Store(true)
	return err
}

// within waits for what must come.
func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(hang):
		t.Fatalf("%s never comes", what)
	}
}

// running runs f elsewhere; what it returns is closed when f is over.
func running(f func()) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		f()
	}()
	return over
}

func TestOnlyCloseWaitsForAConnectionThatDoesNotClose(t *testing.T) {
	for name, drop := range map[string]func(*testing.T, *fleet, *Stream){
		"lost": func(t *testing.T, f *fleet, s *Stream) {
			f.lose(0)
			if _, err := s.Next(); !errors.Is(err, ErrLost) {
				t.Errorf("the stream ends with %v", err)
			}
			s.Close()
		},
		"not named": func(_ *testing.T, f *fleet, s *Stream) {
			s.Close()
			f.Sync(nil)
		},
		"not named, and its last stream ends": func(_ *testing.T, f *fleet, s *Stream) {
			f.Sync(nil)
			s.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			conns := newStuck()
			f := &fleet{creds: conns, clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
			f.build(t, 1, f.clock, stay(accepted(), delta("a")))
			free := sync.OnceFunc(func() { close(conns.release) })
			t.Cleanup(free)
			s, err := f.Generate(t.Context(), request())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Next(); err != nil {
				t.Fatal(err)
			}
			within(t, "the end of Sync and of the stream", running(func() { drop(t, f, s) }))
			over := running(f.Close)
			within(t, "the end of the connection", conns.begun)
			select {
			case <-over:
				t.Error("Close does not wait for the connection")
			default:
			}
			free()
			within(t, "the end of Close", over)
			if !conns.closed.Load() {
				t.Error("Close returns before the connection is closed")
			}
		})
	}
}
