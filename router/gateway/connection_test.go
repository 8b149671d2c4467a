package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

func TestAConnectionThatRestedStillGets100Continue(t *testing.T) {
	r := newRig(clock.RealClock{}, says("hi"))
	conns := make(chan net.Conn, 1)
	s := httptest.NewUnstartedServer(r)
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { conns <- c; return ctx }
	s.Start()
	t.Cleanup(s.Close)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", pathChat, len(ask))
	answered := func() {
		t.Helper()
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if readAll(t, resp.Body); resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	fmt.Fprint(conn, head+"\r\n"+ask)
	answered()
	if err := (<-conns).SetWriteDeadline(time.Unix(1, 0)); err != nil { // as after half a minute
		t.Fatal(err)
	}
	fmt.Fprint(conn, head+"Expect: 100-continue\r\n\r\n")
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
		t.Fatalf("got %q, %v", line, err)
	}
	if line, err := in.ReadString('\n'); err != nil || line != "\r\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	fmt.Fprint(conn, ask)
	answered()
}

func TestAClientThatResetsItsConnectionEndsItsCall(t *testing.T) {
	never := make(chan struct{})
	for name, c := range map[string]struct {
		body  string
		steps []step
	}{
		"before the first byte of a stream": {askStream, []step{{wait: never}}},
		"in a stream":                       {askStream, []step{accepted, text("Hi"), {wait: never}}},
		"before an answer at once":          {ask, []step{accepted, text("Hi"), {wait: never}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(clock.RealClock{}, play{steps: c.steps})
			url := r.serve(context.Background(), t)
			conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", pathChat, len(c.body), c.body)
			eventually(t, "the call", func() bool { return r.script.count() == 1 })
			if err := errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the end of the call", func() bool { return r.figures.String() == "org/small-1.0 cancelled" })
			if n := r.script.open(); n != 0 {
				t.Errorf("%d streams are open", n)
			}
		})
	}
}

// aborted runs what must end its connection without an answer.
func aborted(t *testing.T, serve func()) {
	t.Helper()
	defer func() {
		if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // it is thrown, not wrapped
			t.Errorf("thrown: %v", v)
		}
	}()
	serve()
}

func TestAClientThatClosesItsHalfGetsNoAnswerInsteadOfAnEmptyOne(t *testing.T) {
	never := make(chan struct{})
	for name, c := range map[string]struct {
		body  string
		cut   int // bytes of the body that are not sent
		steps []step
		want  string // how what was sent ends
	}{
		"before the first byte of a stream": {askStream, 0, []step{{wait: never}}, ""},
		"before an answer at once":          {ask, 0, []step{accepted, text("Hi"), {wait: never}}, ""},
		"in the body":                       {ask, 5, nil, ""},
		"in a stream":                       {askStream, 0, []step{accepted, text("Hi"), {wait: never}}, "}\n\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(clock.RealClock{}, play{steps: c.steps})
			url := r.serve(context.Background(), t)
			conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute)) // hangs
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", pathChat, len(c.body), c.body[:len(c.body)-c.cut])
			if c.cut == 0 {
				eventually(t, "the call", func() bool { return r.script.count() == 1 })
			}
			read := bufio.NewReader(conn)
			if c.want != "" {
				if _, err := read.Peek(1); err != nil {
					t.Fatal(err)
				}
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(read)
			if err != nil || !strings.HasSuffix(string(got), c.want) || c.want == "" && len(got) > 0 {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestTheLogSaysWhatHappenedOnAWorkerAndQuotesNoRequest(t *testing.T) {
	for name, c := range map[string]struct {
		fault *Fault
		want  bool
	}{
		"a lost worker":      {&Fault{Kind: Lost, Err: errors.New("DETAIL")}, true},
		"an invalid request": {&Fault{Kind: Invalid, Err: errors.New("DETAIL")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(clock.RealClock{}, play{refuse: c.fault})
			r.do("POST", pathChat, askStream)
			if got := r.logged.String(); strings.Contains(got, `"why":"DETAIL"`) != c.want || strings.Contains(got, "DETAIL") != c.want {
				t.Errorf("logged %s", got)
			}
		})
	}
}
