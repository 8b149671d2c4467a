package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// abused is a front whose requests for /held end with the test, and which is met by every client over a connection of its
// own. Nothing is kept on the way: what a side doesn't read the other can't have sent.
type abused struct {
	t     *testing.T
	conns chan<- net.Conn
}

func abuse(t *testing.T) *abused {
	t.Helper()
	held, release := context.WithCancel(context.Background())
	conns, said := frontOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			<-held.Done()
		}
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(func() {
		release()
		if broke := said.panics(); broke != "" {
			t.Error(broke)
		}
	})
	return &abused{t, conns}
}

// dial is a new connection. Nothing on it takes longer than the bound of what hangs.
func (a *abused) dial() net.Conn {
	a.t.Helper()
	here, there := net.Pipe()
	a.conns <- there
	if err := here.SetDeadline(time.Now().Add(hangs)); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = here.Close() })
	return here
}

// answersOthers checks that a client which has done nothing wrong is served.
func (a *abused) answersOthers() {
	a.t.Helper()
	c := a.dial()
	go fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		a.t.Fatalf("another client: %v", err)
	}
	defer r.Body.Close()
	if text, err := io.ReadAll(r.Body); r.StatusCode != http.StatusOK || string(text) != "hello" {
		a.t.Errorf("another client gets %d %q, %v", r.StatusCode, text, err)
	}
}

// peer is a client that speaks HTTP/2 frame by frame.
type peer struct {
	*http2.Framer
	t       *testing.T
	conn    net.Conn
	headers bytes.Buffer
	encoder *hpack.Encoder
}

// begin is a connection of HTTP/2 on which both sides have taken the other's settings.
func (a *abused) begin() *peer {
	a.t.Helper()
	p := &peer{t: a.t, conn: a.dial()}
	p.Framer = http2.NewFramer(p.conn, p.conn)
	p.encoder = hpack.NewEncoder(&p.headers)
	greeted := make(chan error, 1)
	go func() {
		_, err := io.WriteString(p.conn, http2.ClientPreface)
		greeted <- errors.Join(err, p.WriteSettings())
	}()
	for acknowledged := false; !acknowledged; {
		switch f := p.read().(type) {
		case *http2.SettingsFrame:
			if acknowledged = f.IsAck(); acknowledged {
				continue
			}
			if n, ok := f.Value(http2.SettingMaxConcurrentStreams); !ok || n != frontStreams {
				p.t.Errorf("the server takes %d streams, says it", n)
			}
			if err := <-greeted; err != nil {
				p.t.Fatal(err)
			}
			if err := p.WriteSettingsAck(); err != nil {
				p.t.Fatal(err)
			}
		case *http2.WindowUpdateFrame:
		default:
			p.t.Fatalf("the server begins with %v", f)
		}
	}
	return p
}

// read returns the next frame.
func (p *peer) read() http2.Frame {
	p.t.Helper()
	f, err := p.ReadFrame()
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// fields are those of a request, and some more.
func (p *peer) fields(path string, more ...string) []byte {
	p.headers.Reset()
	all := append([]string{":method", "GET", ":scheme", "http", ":authority", "a", ":path", path}, more...)
	for i := 0; i < len(all); i += 2 {
		_ = p.encoder.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]}) // a buffer takes everything
	}
	return p.headers.Bytes()
}

// ask sends a request without a body.
func (p *peer) ask(stream uint32, path string, more ...string) error {
	return p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.fields(path, more...), EndStream: true, EndHeaders: true})
}

// ending reads until the server ends the connection, and returns the reason that it gave, if any.
func (p *peer) ending() <-chan http2.ErrCode {
	reason := make(chan http2.ErrCode, 1)
	go func() {
		why := http2.ErrCode(0)
		for {
			f, err := p.ReadFrame()
			if err != nil {
				reason <- why
				return
			}
			if g, ok := f.(*http2.GoAwayFrame); ok {
				why = g.ErrCode
			}
		}
	}()
	return reason
}

// floods sends until the connection is closed, and fails where that does not come: after its last words a server still takes
// for a second what comes.
func (p *peer) floods(send func(i int) error) {
	p.t.Helper()
	for i := 0; ; i++ {
		err := send(i)
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			p.t.Fatalf("hangs: the server has not closed after %d", i)
		}
		if err != nil {
			return
		}
	}
}

func TestStreamsThatAreResetAtOnceEndTheirConnection(t *testing.T) {
	a := abuse(t)
	p := a.begin()
	why := p.ending()
	p.floods(func(i int) error {
		stream := uint32(2*i + 1)
		return errors.Join(p.ask(stream, "/held"), p.WriteRSTStream(stream, http2.ErrCodeCancel))
	})
	if code := <-why; code != http2.ErrCodeEnhanceYourCalm {
		t.Errorf("the connection ended with %v", code)
	}
	a.answersOthers()
}

func TestAHeaderThatNeverEndsEndsItsConnection(t *testing.T) {
	a := abuse(t)
	p := a.begin()
	why := p.ending()
	some := bytes.Clone(p.fields("/", "x-filler", strings.Repeat("ab", 4000)))
	if err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: some, EndStream: true}); err != nil {
		t.Fatal(err)
	}
	p.headers.Reset()
	_ = p.encoder.WriteField(hpack.HeaderField{Name: "x-more", Value: strings.Repeat("ab", 4000), Sensitive: true})
	more := bytes.Clone(p.headers.Bytes())
	p.floods(func(int) error { return p.WriteContinuation(1, false, more) })
	if code := <-why; code == http2.ErrCodeNo {
		t.Error("the connection ended without a reason")
	}
	a.answersOthers()
}

func TestSettingsWithoutEndAreAcknowledgedTogether(t *testing.T) {
	a := abuse(t)
	p := a.begin()
	// Nobody reads what the server acknowledges, so all it can do is to remember that it has to.
	for range 20_000 {
		if err := p.WriteSettings(); err != nil {
			t.Fatal(err)
		}
	}
	a.answersOthers()
	sent := make(chan error, 1)
	go func() { sent <- p.WritePing(false, [8]byte{}) }()
	acks := 0
	for pinged := false; !pinged; {
		switch f := p.read().(type) {
		case *http2.SettingsFrame:
			acks++
		case *http2.PingFrame:
			pinged = true
		case *http2.WindowUpdateFrame:
		default:
			t.Fatalf("the server sent %v", f)
		}
	}
	if err := <-sent; err != nil || acks > 3 {
		t.Errorf("%d acknowledgements, %v", acks, err)
	}
}

func TestAFrameOfTooManySettingsEndsItsConnection(t *testing.T) {
	a := abuse(t)
	p := a.begin()
	why := p.ending()
	many := make([]http2.Setting, 101)
	for i := range many {
		many[i] = http2.Setting{ID: http2.SettingID(100 + i), Val: 1}
	}
	if err := p.WriteSettings(many...); err != nil {
		t.Fatal(err)
	}
	if code := <-why; code != http2.ErrCodeProtocol {
		t.Errorf("the connection ended with %v", code)
	}
	a.answersOthers()
}

func TestPingsWithoutEndEndTheirConnection(t *testing.T) {
	a := abuse(t)
	p := a.begin()
	p.floods(func(int) error { return p.WritePing(false, [8]byte{}) })
	a.answersOthers()
}

func TestAStreamMoreThanAllowedIsRefusedAlone(t *testing.T) {
	a := abuse(t)
	p := a.begin()
	frames := make(chan http2.Frame)
	go func() {
		defer close(frames)
		for {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			if _, ok := f.(*http2.RSTStreamFrame); ok {
				frames <- f
			}
		}
	}()
	for i := range frontStreams + 1 {
		if err := p.ask(uint32(2*i+1), "/held"); err != nil {
			t.Fatal(err)
		}
	}
	reset, ok := (<-frames).(*http2.RSTStreamFrame)
	if !ok {
		t.Fatal("the connection ended")
	}
	if reset.StreamID != 2*frontStreams+1 {
		t.Errorf("stream %d is refused, with %v", reset.StreamID, reset.ErrCode)
	}
	a.answersOthers()
	_ = p.conn.Close()
	for f := range frames {
		t.Errorf("the server also sent %v", f)
	}
}

// refused asks by HTTP/1.1 with these header lines and returns the status.
func (a *abused) refused(lines string) int {
	a.t.Helper()
	c := a.dial()
	go fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n"+lines+"\r\n")
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		a.t.Fatal(err)
	}
	_ = r.Body.Close()
	return r.StatusCode
}

func TestAHeaderHas32KiBAtMost(t *testing.T) {
	a := abuse(t)
	for name, c := range map[string]struct {
		lines string
		want  int
	}{
		"31 KiB in one line":  {"X: " + strings.Repeat("a", 31<<10) + "\r\n", http.StatusOK},
		"33 KiB in one line":  {"X: " + strings.Repeat("a", 33<<10) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"31 KiB in 500 lines": {strings.Repeat("X: "+strings.Repeat("a", 58)+"\r\n", 500), http.StatusOK},
		"10 000 short lines":  {strings.Repeat("a:b\r\n", 10_000), http.StatusRequestHeaderFieldsTooLarge},
		"a megabyte":          {"X: " + strings.Repeat("a", 1<<20) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
	} {
		if got := a.refused(c.lines); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	a.answersOthers()
}

func TestAHeaderThatIsTooLargeIsRefusedAloneByHTTP2(t *testing.T) {
	a := abuse(t)
	p := a.begin()
	statuses := make(chan string)
	go func() {
		defer close(statuses)
		decoder := hpack.NewDecoder(4096, nil)
		for {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := f.(*http2.HeadersFrame); ok {
				if list, err := decoder.DecodeFull(h.HeaderBlockFragment()); err == nil && len(list) > 0 {
					statuses <- list[0].Value
				}
			}
		}
	}()
	large := make([]string, 0, 2*600)
	for i := range 600 {
		large = append(large, fmt.Sprintf("x-%d", i), strings.Repeat("a", 20))
	}
	fragment := bytes.Clone(p.fields("/", large...))
	const frame = 16 << 10
	if err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fragment[:min(frame, len(fragment))], EndStream: true, EndHeaders: len(fragment) <= frame}); err != nil {
		t.Fatal(err)
	}
	if len(fragment) > frame {
		if err := p.WriteContinuation(1, true, fragment[frame:]); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-statuses; got != "431" {
		t.Errorf("600 fields get %q", got)
	}
	if err := p.ask(3, "/"); err != nil {
		t.Fatal(err)
	}
	if got := <-statuses; got != "200" {
		t.Errorf("the next request gets %q", got)
	}
	a.answersOthers()
	_ = p.conn.Close()
	for range statuses { // until the reader has ended
	}
}
