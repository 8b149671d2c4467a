package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/metrics"
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
		over, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			for {
				select {
				case <-ended:
					return
				default:
					if now.HasWaiters() {
						now.Step(grace / 50)
					}
					runtime.Gosched()
				}
			}
		}()
		f.ends(t)
		close(ended)
		<-over
		if got := spoken(t, "http://"+at, h2c); got != "" {
			t.Errorf("%s: another connection is answered %q", name, got)
		}
	}
}

// untilGone is a handler whose clients go, and that ends as the gateway's does.
func untilGone(_ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler) //nolint:forbidigo // as the gateway does
}

func TestAConnectionThatTakesItsStreamsBackIsEnded(t *testing.T) {
	at := guardedFront(t, nil, nil, untilGone)
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

func TestAStreamIsFinishedWhereAllOthersOfItsConnectionAreTakenBack(t *testing.T) {
	began, finish := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	now := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	at := guardedFront(t, nil, now, func(w http.ResponseWriter, r *http.Request) {
		if first.CompareAndSwap(false, true) {
			began <- struct{}{}
			_ = http.NewResponseController(w).Flush()
			<-finish
			_, _ = io.WriteString(w, "done")
			return
		}
		began <- struct{}{}
		untilGone(w, r)
	})
	f := begin(t, dialled(t, at))
	gone, answer := make(chan http2.ErrCode, 1), make(chan string, 1)
	go func() {
		defer close(gone)
		defer close(answer)
		for text := ""; ; {
			switch x, err := f.ReadFrame(); x := x.(type) {
			case *http2.GoAwayFrame:
				gone <- x.ErrCode
			case *http2.DataFrame:
				text += string(x.Data())
				if x.StreamEnded() {
					answer <- text
					return
				}
			case nil:
				t.Errorf("the connection ends: %v", err)
				return
			}
		}
	}()
	ask := func(id uint32) {
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.head, EndHeaders: true, EndStream: true}); err != nil {
			t.Error(err)
		}
	}
	ask(1)
	<-began // no other one is the first
	for id, asked := uint32(3), true; asked; id += 2 {
		ask(id)
		select {
		case <-began:
			if err := f.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
				t.Error(err)
			}
		case code := <-gone:
			if asked = false; code != http2.ErrCodeNo {
				t.Errorf("the client is asked for another connection with %v", code)
			}
		}
	}
	close(finish)
	if got := <-answer; got != "done" {
		t.Errorf("the other stream gets %q", got)
	}
}

// streamed serves a stream of g's connection, which its client takes back or not, and returns the answer's header.
func streamed(t *testing.T, g *guard, takenBack bool) http.Header {
	t.Helper()
	ctx, takeBack := context.WithCancel(withGuard(context.Background(), g))
	defer takeBack()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.ProtoMajor = 2
	w := httptest.NewRecorder()
	guarded(context.Background(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if takenBack {
			takeBack()
		}
	})).ServeHTTP(w, r)
	return w.Header()
}

func TestAClientThatTakesMuchBackIsAskedForAnotherConnection(t *testing.T) {
	g := newGuard(nil, clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)))
	for n := range takenBack {
		if got := streamed(t, g, true).Get("Connection"); got != "" {
			t.Fatalf("with the stream %d: Connection %q", n, got)
		}
	}
	if got := streamed(t, g, false).Get("Connection"); got != "" {
		t.Errorf("after %d streams: Connection %q", takenBack, got)
	}
	for _, back := range []bool{true, false} {
		if got := streamed(t, g, back).Get("Connection"); got != "close" {
			t.Errorf("after one more: Connection %q", got)
		}
	}
}

func TestAClientMayTakeBackEachSecondStream(t *testing.T) {
	g := newGuard(nil, clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)))
	for range 10 * takenBack {
		if streamed(t, g, false).Get("Connection")+streamed(t, g, true).Get("Connection") != "" {
			t.Fatal("a client that takes back half of its streams is asked for another connection")
		}
	}
	if streamed(t, g, true).Get("Connection") != "close" {
		t.Error("a client that has taken back more than half of its streams goes on")
	}
}

func TestStreamsThatLastPayForWhatTheirClientSaysAtEachToken(t *testing.T) {
	const events = 50
	event := strings.Repeat("x", 200)
	began, start := make(chan *guard), make(chan struct{})
	at := guardedFront(t, nil, clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)), func(w http.ResponseWriter, r *http.Request) {
		g, _ := r.Context().Value(guardKey{}).(*guard)
		began <- g
		<-start
		for range events {
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
	})
	f := begin(t, dialled(t, at))
	var g *guard
	for i := range uint32(frontStreams) {
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: f.head, EndHeaders: true, EndStream: true}); err != nil {
			t.Fatal(err)
		}
		g = <-began
	}
	g.paid.Store(g.read.Load() + 1) // all else was used up
	close(start)
	for got := 0; got < frontStreams*events*len(event); {
		x, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("after %d bytes: %v", got, err)
		}
		d, ok := x.(*http2.DataFrame)
		if n := uint32(len(event)); ok && len(d.Data()) > 0 {
			got += len(d.Data())
			if err := errors.Join(f.WriteWindowUpdate(0, n), f.WriteWindowUpdate(d.StreamID, n), f.WritePing(false, [8]byte{})); err != nil {
				t.Fatal(err)
			}
		}
	}
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
	httpRequest(t, g, strings.Repeat("x", bodyPaid))
	read(bytesByRequest + 2*bodyPaid)
	over := httpRequest(t, g, strings.Repeat("x", bodyPaid+1))
	read(bytesByRequest + 2*streamBuffer)
	if _, err := io.Copy(io.Discard, over.Body); err != nil {
		t.Fatal(err)
	}
	read(2 * (bodyPaid + 1))
	beyond := reading(t, g, now, int(grace.Seconds())*bytesBySecond+1)
	now.Step(grace)
	if err := <-beyond; !errors.Is(err, errFlood) || !c.closed.Load() {
		t.Errorf("more than time pays for until it is late: %v", err)
	}
}

// reading reads so many bytes, for which it waits, and returns how that will end.
func reading(t *testing.T, g *guard, now *clocktesting.FakeClock, n int) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := g.Read(make([]byte, n))
		done <- err
	}()
	for deadline := time.Now().Add(hangs); !now.HasWaiters(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("hangs: nobody waits for what is beyond")
		}
	}
	return done
}

func TestAConnectionThatWentTooFarOnceIsReadAgainAsSoonAsTimeHasPaid(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	c := &endless{}
	g := newGuard(c, now)
	for burst := freeBytes; now.Since(g.began) < time.Minute; burst = 2 * bytesBySecond {
		done := reading(t, g, now, burst+bytesBySecond)
		now.Step(time.Second + time.Millisecond)
		if err := <-done; err != nil || c.closed.Load() {
			t.Fatalf("what time has paid for is not read: %v", err)
		}
		now.Step(2 * time.Second)
	}
}

func TestAConnectionThatIsPaidForInTimeGoesOn(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	c := &endless{}
	g := newGuard(c, now)
	done := reading(t, g, now, freeBytes+1)
	g.pay(1)
	if err := <-done; err != nil || c.closed.Load() {
		t.Errorf("what is paid for is not read: %v", err)
	}
}

func TestNoMoreOfABodyIsAskedForThanIsPaidFor(t *testing.T) {
	const size = 4 << 20
	g := newGuard(&endless{}, clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)))
	body := httpRequest(t, g, strings.Repeat("x", size)).Body
	body.(*paying).ReadCloser = io.NopCloser(g) // as net/http reads it, where much has come
	var more int64 = bytesByRequest + freeBytes // what else was read before
	g.read.Add(more)
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(body, make([]byte, size))
		read <- err
	}()
	late := time.NewTimer(hangs)
	defer late.Stop()
	select {
	case err := <-read:
		if err != nil {
			t.Error(err)
		}
	case <-late.C:
		_ = g.Close()
		<-read
		t.Error("hangs: a body waits for its own payment")
	}
}

func TestLargeRequestsThatHaveComeAtOnceAreAnsweredByTheWholeFront(t *testing.T) {
	handler := gateway.New(gateway.Config{
		Clock: clock.RealClock{}, Rand: rand.Reader, Log: slog.New(slog.DiscardHandler), MaxBodyBytes: 10 << 20, MaxBodyBytesTotal: 64 << 20,
		Measure: func(model string) gateway.Measure { return measure{metrics.New().Begin(model)} },
	})
	handler.SetState(gateway.NewState(nil, gateway.Settings{}))
	conns, _ := frontOn(t, handler)
	for _, size := range []int{1 << 20, 2 << 20, 4 << 20, 8 << 20} {
		head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size)
		const before, after = `{"model":"m","messages":[{"role":"user","content":"`, `"}]}`
		here, there := net.Pipe()
		_ = here.SetDeadline(time.Now().Add(hangs))
		conns <- newGuard(there, clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)))
		go io.WriteString(here, head+before+strings.Repeat("x", size-len(before)-len(after))+after) //nolint:errcheck // the answer tells
		if a, err := http.ReadResponse(bufio.NewReader(here), nil); err != nil {
			t.Errorf("%d bytes are not answered: %v", size, err)
		} else if _ = a.Body.Close(); a.StatusCode != http.StatusNotFound {
			t.Errorf("%d bytes are answered with %d", size, a.StatusCode)
		}
		_ = here.Close()
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
