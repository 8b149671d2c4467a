package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// guardedFront serves handler to connections whose guards have that clock, and returns the address. Without a clock it does as
// the router does.
func guardedFront(t *testing.T, cert *certificate, now clock.Clock, handler http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newFront(context.Background(), handler, cert, nil)
	ended := make(chan error, 1)
	go func() {
		if now != nil {
			ended <- s.Serve(guards{l, now})
			return
		}
		ended <- serveFront(s, l, 100)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return l.Addr().String()
}

// frames is a connection of HTTP/2 whose frames are the test's own.
type frames struct {
	net.Conn
	*http2.Framer
	head []byte // of a POST
}

func begin(t *testing.T, c net.Conn) *frames {
	t.Helper()
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}); err != nil {
			t.Fatal(err)
		}
	}
	f := &frames{c, http2.NewFramer(c, c), b.Bytes()}
	_ = c.SetDeadline(time.Now().Add(hangs))
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return f
}

func dialled(t *testing.T, at string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ends reads until the connection has ended.
func (f *frames) ends(t *testing.T) {
	t.Helper()
	_, err := io.Copy(io.Discard, f.Conn)
	if n := net.Error(nil); errors.As(err, &n) && n.Timeout() {
		t.Fatal("hangs: the connection is not ended")
	}
}

func TestAConnectionWithMoreFramesThanRequestsIsEndedAndOthersAreServed(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	at := guardedFront(t, nil, now, func(http.ResponseWriter, *http.Request) {})
	for name, write := range map[string]func(*frames) error{
		"settings": func(f *frames) error { return f.WriteSettings() },
		"pings":    func(f *frames) error { return f.WritePing(false, [8]byte{}) },
		"windows":  func(f *frames) error { return f.WriteWindowUpdate(0, 1) },
	} {
		f := begin(t, dialled(t, at))
		go func() {
			for write(f) == nil { //nolint:revive // until the connection ends
			}
		}()
		over := make(chan struct{})
		go func() {
			defer close(over)
			for !now.HasWaiters() {
				runtime.Gosched()
			}
			now.Step(grace)
		}()
		f.ends(t)
		<-over
		if got := spoken(t, "http://"+at, h2c); got != "" {
			t.Errorf("%s: another connection is answered %q", name, got)
		}
	}
}

func TestAConnectionThatTakesItsStreamsBackIsEnded(t *testing.T) {
	at := guardedFront(t, nil, nil, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	f := begin(t, dialled(t, at))
	go func() {
		for id := uint32(1); ; id += 2 {
			if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.head, EndHeaders: true}) != nil ||
				f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
				return
			}
		}
	}()
	f.ends(t)
}

func TestAClientThatTakesMuchBackIsAskedForAnotherConnection(t *testing.T) {
	g := newGuard(unclosed{t: t}, clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)))
	r, err := http.NewRequestWithContext(withGuard(context.Background(), g), http.MethodPost, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.ProtoMajor = 2
	serve := guarded(context.Background(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range takenBack {
		g.ended(true)
	}
	w := httptest.NewRecorder()
	if serve.ServeHTTP(w, r); w.Header().Get("Connection") != "" {
		t.Errorf("after %d streams: Connection %q", takenBack, w.Header().Get("Connection"))
	}
	g.ended(true)
	w = httptest.NewRecorder()
	if serve.ServeHTTP(w, r); w.Header().Get("Connection") != "close" {
		t.Errorf("after one more: Connection %q", w.Header().Get("Connection"))
	}
}

func TestAClientMayTakeBackEachSecondStream(t *testing.T) {
	g := newGuard(unclosed{t: t}, clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)))
	for range 10 * takenBack {
		g.ended(false)
		g.ended(true)
	}
	closed := false
	g.Conn = unclosed{closed: &closed}
	for range 2 {
		g.ended(true)
	}
	if !closed {
		t.Error("a connection that has taken back more than half of its streams goes on")
	}
}

// unclosed is a connection that must not be closed, or says that it was.
type unclosed struct {
	net.Conn
	t      *testing.T
	closed *bool
}

func (u unclosed) Close() error {
	if u.closed == nil {
		u.t.Fatal("the connection is closed")
	}
	*u.closed = true
	return nil
}

// endless is a connection that always has something to read.
type endless struct {
	net.Conn
	closed atomic.Bool
}

func (e *endless) Read(b []byte) (int, error) { return len(b), nil }
func (e *endless) Close() error               { e.closed.Store(true); return nil }

func TestTimeRequestsAndBodiesPayForWhatIsRead(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	c := &endless{}
	g := newGuard(c, now)
	read := func(n int) {
		t.Helper()
		if _, err := g.Read(make([]byte, n)); err != nil || c.closed.Load() {
			t.Fatalf("%d bytes more are not read: %v", n, err)
		}
	}
	read(freeBytes)
	now.Step(time.Hour)
	read(3600 * bytesBySecond)
	over := httpRequest(t, g, strings.Repeat("x", bytesByRequest))
	read(bytesByRequest)
	if _, err := io.Copy(io.Discard, over.Body); err != nil {
		t.Fatal(err)
	}
	read(2 * bytesByRequest)
	beyond := make(chan error, 1)
	go func() {
		_, err := g.Read(make([]byte, 1))
		beyond <- err
	}()
	for deadline := time.Now().Add(hangs); !now.HasWaiters(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("hangs: nobody waits for what is beyond")
		}
	}
	now.Step(grace)
	if err := <-beyond; !errors.Is(err, errFlood) || !c.closed.Load() {
		t.Errorf("one byte too many: %v", err)
	}
}

func TestAConnectionThatIsPaidForInTimeGoesOn(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	c := &endless{}
	g := newGuard(c, now)
	done := make(chan error, 1)
	go func() {
		_, err := g.Read(make([]byte, freeBytes+1))
		done <- err
	}()
	for deadline := time.Now().Add(hangs); !now.HasWaiters(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("hangs: nobody waits for what is beyond")
		}
	}
	g.pay(1)
	if err := <-done; err != nil || c.closed.Load() {
		t.Errorf("what is paid for is not read: %v", err)
	}
}

// httpRequest is a request of g's connection as its handler sees it.
func httpRequest(t *testing.T, g *guard, body string) (seen *http.Request) {
	t.Helper()
	r, err := http.NewRequestWithContext(withGuard(context.Background(), g), http.MethodPost, "/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	guarded(context.Background(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r })).ServeHTTP(nil, r)
	return seen
}

func TestLargeBodiesPassByEveryProtocolAndAreGuarded(t *testing.T) {
	dir := t.TempDir()
	served(t, dir)
	cert, err := openCertificate(clocktesting.NewFakeClock(time.Now()), logr.Discard(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer cert.Close()
	const size = 10 << 20
	handler := func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if _, ok := r.Context().Value(guardKey{}).(*guard); !ok || n != size || err != nil {
			http.Error(w, "", http.StatusBadRequest)
		}
	}
	plain, secret := guardedFront(t, nil, nil, handler), guardedFront(t, cert, nil, handler)
	for name, c := range map[string]struct {
		url string
		of  func(*http.Protocols)
	}{
		"HTTP/1.1": {"http://" + plain, http1}, "HTTP/2": {"http://" + plain, h2c},
		"HTTP/1.1 over TLS": {"https://" + secret, http1}, "HTTP/2 over TLS": {"https://" + secret, func(p *http.Protocols) { p.SetHTTP2(true) }},
	} {
		p := new(http.Protocols)
		c.of(p)
		transport := &http.Transport{Protocols: p, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // who it is doesn't matter
		for _, length := range []bool{true, false} {
			if got := posted(t, transport, c.url, size, length); got != http.StatusOK {
				t.Errorf("%s, length %t: answered %d", name, length, got)
			}
		}
		transport.CloseIdleConnections()
	}
}

// posted sends a body, and returns the status of the answer.
func posted(t *testing.T, transport *http.Transport, url string, size int, length bool) int {
	t.Helper()
	var body io.Reader = bytes.NewReader(make([]byte, size))
	if !length {
		body = io.MultiReader(body)
	}
	a, err := (&http.Client{Transport: transport}).Post(url, "text/plain", body)
	if err != nil {
		t.Error(err)
		return 0
	}
	_ = a.Body.Close()
	return a.StatusCode
}
