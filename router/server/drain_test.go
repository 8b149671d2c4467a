package server

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	clocktesting "k8s.io/utils/clock/testing"
)

// framed is a client's connection of HTTP/2, frame by frame.
type framed struct {
	t      *testing.T
	conn   net.Conn
	frames *http2.Framer
	block  bytes.Buffer
	packer *hpack.Encoder
	goAway bool              // the server has asked for another connection
	bodies map[uint32]string // by stream, so far
	status map[uint32]string
	ended  map[uint32]bool
}

func (r *rig) framed() *framed {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.listeners[0].Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(hangs))
	w := &framed{t: r.t, conn: conn, frames: http2.NewFramer(conn, conn), bodies: map[uint32]string{}, status: map[uint32]string{}, ended: map[uint32]bool{}}
	w.packer = hpack.NewEncoder(&w.block)
	w.frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		r.t.Fatal(err)
	}
	if err := w.frames.WriteSettings(); err != nil {
		r.t.Fatal(err)
	}
	return w
}

// ask sends a request for a chat on a stream.
func (w *framed) ask(stream uint32, body string) {
	w.t.Helper()
	w.block.Reset()
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "router"}, {":path", "/v1/chat/completions"}, {"content-type", "application/json"}} {
		_ = w.packer.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	if err := w.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: w.block.Bytes(), EndHeaders: true}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.frames.WriteData(stream, true, []byte(body)); err != nil {
		w.t.Fatal(err)
	}
}

// until reads frames until ok; false when the server has closed the connection before.
func (w *framed) until(ok func() bool) bool {
	w.t.Helper()
	for !ok() {
		f, err := w.frames.ReadFrame()
		if errors.Is(err, io.EOF) {
			return false
		}
		if err != nil {
			w.t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			w.status[f.StreamID] = f.PseudoValue("status")
		case *http2.DataFrame:
			w.bodies[f.StreamID] += string(f.Data())
			w.ended[f.StreamID] = f.StreamEnded()
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				w.t.Fatalf("the connection ends with %s", f.ErrCode)
			}
			w.goAway = true
		case *http2.RSTStreamFrame:
			w.t.Fatalf("stream %d ends with %s", f.StreamID, f.ErrCode)
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = w.frames.WriteSettingsAck()
			}
		}
	}
	return true
}

func TestADrainAsksClientsOfHTTP2ToGoAndFinishesTheirStreams(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	r := startWith(t, clock, func(o *Options) { o.DrainSettle = 5 * time.Second })
	r.ready()
	w := r.framed()
	w.ask(1, askStream)
	if !w.until(func() bool { return strings.Contains(w.bodies[1], "Hel") }) || w.goAway {
		t.Fatalf("before the drain: %q, asked to go: %v", w.bodies[1], w.goAway)
	}
	r.stop()
	r.eventually("unreadiness", func() bool { status, _ := r.get(2, "/readyz"); return status == 503 })
	w.ask(3, askStream)
	if !w.until(func() bool { return w.goAway && strings.Contains(w.bodies[3], "Hel") }) {
		t.Fatalf("a request while it settles: %v, asked to go: %v", w.status, w.goAway)
	}
	r.eventually("the wait for the others", clock.HasWaiters)
	clock.Step(5 * time.Second)
	r.eventually("the listener's end", func() bool { status, _ := r.get(0, "/v1/models"); return status == 0 })
	close(r.answer)
	if w.until(func() bool { return false }); w.status[1] != "200" || w.status[3] != "200" || !w.ended[1] || !w.ended[3] ||
		!strings.HasSuffix(w.bodies[1], "data: [DONE]\n\n") || !strings.HasSuffix(w.bodies[3], "data: [DONE]\n\n") {
		t.Errorf("cut: %v %v", w.status, w.bodies)
	}
	if err := r.wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestADrainEndsAtItsDeadlineHoweverManyStreamsHaveNoEnd(t *testing.T) {
	const streams = 100
	clock := clocktesting.NewFakeClock(time.Now())
	r := startWith(t, clock, func(o *Options) { o.DrainSettle, o.DrainTimeout = 5*time.Second, time.Minute })
	r.ready()
	two := &http.Transport{Protocols: new(http.Protocols)}
	two.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(two.CloseIdleConnections)
	var open []*http.Response
	for i := range streams {
		client := http.DefaultClient
		if i%2 == 1 {
			client = &http.Client{Transport: two}
		}
		resp, err := client.Post(r.url(0, "/v1/chat/completions"), "application/json", strings.NewReader(askStream))
		if err != nil {
			t.Fatal(err)
		}
		if want := 1 + i%2; resp.ProtoMajor != want {
			t.Fatalf("stream %d is of %s", i, resp.Proto)
		}
		open = append(open, resp)
	}
	r.stop()
	r.eventually("the wait for the others", clock.HasWaiters)
	clock.Step(5 * time.Second)
	r.eventually("the listener's end", func() bool { status, _ := r.get(0, "/v1/models"); return status == 0 })
	r.eventually("the wait for the streams", clock.HasWaiters)
	clock.Step(54 * time.Second)
	select {
	case err := <-r.ended:
		t.Fatalf("ended with %v a second before its deadline", err)
	default:
	}
	clock.Step(time.Second)
	for i, resp := range open {
		if got := body(t, resp); strings.Count(got, `"content":"Hel"`) != 1 || strings.Count(got, `"code":"server_shutdown"`) != 1 || strings.Contains(got, "[DONE]") {
			t.Errorf("stream %d: %s", i, got)
		}
	}
	if err := r.wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestADrainAnswersOnAConnectionThatWasIdleAsLongAsAnotherRequestRuns(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	r := startWith(t, clock, func(o *Options) { o.DrainSettle = 5 * time.Second })
	r.ready()
	idle, err := net.Dial("tcp", r.listeners[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = idle.Close() })
	_ = idle.SetDeadline(time.Now().Add(hangs))
	answers := bufio.NewReader(idle)
	ask := func() (*http.Response, error) {
		if _, err := io.WriteString(idle, "GET /v1/models HTTP/1.1\r\nHost: router\r\n\r\n"); err != nil {
			return nil, err
		}
		resp, err := http.ReadResponse(answers, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		return resp, err
	}
	if resp, err := ask(); err != nil || resp.StatusCode != 200 || resp.Close {
		t.Fatalf("before the drain: %+v, %v", resp, err)
	}
	w := r.framed()
	w.ask(1, askStream)
	if !w.until(func() bool { return strings.Contains(w.bodies[1], "Hel") }) {
		t.Fatal("the stream has not begun")
	}
	r.stop()
	r.eventually("the wait for the others", clock.HasWaiters)
	clock.Step(5 * time.Second)
	r.eventually("the listener's end", func() bool { status, _ := r.get(0, "/v1/models"); return status == 0 })
	if resp, err := ask(); err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("on the idle connection: %+v, %v", resp, err)
	}
	close(r.answer)
	if w.until(func() bool { return false }); !strings.HasSuffix(w.bodies[1], "data: [DONE]\n\n") {
		t.Errorf("the stream was cut: %q", w.bodies[1])
	}
	if err := r.wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}
