package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// witness is a handler that remembers what it saw. It reads the bodies of those requests whose bits are set.
type witness struct {
	mu    sync.Mutex
	reads byte
	saw   []seen
}

// seen is a request as a handler sees it.
type seen struct {
	asked
	read bool // the body was looked at
	err  error
}

func (w *witness) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := seen{asked: asked{method: r.Method, target: r.RequestURI, fields: r.Header.Clone()}}
	if strings.HasPrefix(r.RequestURI, "/") && r.Host != "" {
		s.fields.Set("Host", r.Host)
	}
	if s.read = w.reads>>(len(w.saw)%8)&1 == 1; s.read {
		s.body, s.err = io.ReadAll(r.Body)
	}
	w.saw = append(w.saw, s)
	out.Header().Set("Seen", fmt.Sprint(len(w.saw)))
	out.WriteHeader(http.StatusAccepted)
}

// heard starts anew.
func (w *witness) heard(reads byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads, w.saw = reads, nil
}

// hopping are the fields that the server itself takes or gives.
var hopping = []string{"Connection", "Content-Length", "Transfer-Encoding", "Trailer", "Cache-Control"}

// differs says how what a handler saw differs from what the bytes say, or "".
func differs(saw seen, said asked) string {
	fields := func(a asked) http.Header {
		h := maps.Clone(a.fields)
		for _, name := range hopping {
			delete(h, name)
		}
		if !strings.HasPrefix(a.target, "/") || h.Get("Host") == "" {
			delete(h, "Host") // the target names it, or nothing does
		}
		return h
	}
	switch got, want := fields(saw.asked), fields(said); {
	case saw.method != said.method || saw.target != said.target:
		return fmt.Sprintf("it is %s %q, not %s %q", saw.method, saw.target, said.method, said.target)
	case !maps.EqualFunc(got, want, slices.Equal):
		return fmt.Sprintf("its fields are %q, not %q", got, want)
	case !saw.read:
		return ""
	case saw.err == nil && (said.broken || !bytes.Equal(saw.body, said.body)):
		return fmt.Sprintf("its body is %q, not %q (broken: %v)", saw.body, said.body, said.broken)
	case !bytes.HasPrefix(said.body, saw.body):
		return fmt.Sprintf("its body begins with %q and is %q", saw.body, said.body)
	}
	return ""
}

// answers reads what the server sent: a response to each request that was seen, and at most one refusal, which is the end.
func answers(sent []byte, saw []seen) error {
	in := bufio.NewReader(bytes.NewReader(sent))
	for n := 0; ; {
		if _, err := in.Peek(1); errors.Is(err, io.EOF) {
			if n < len(saw) {
				return fmt.Errorf("%d requests were seen and %d answered", len(saw), n)
			}
			return nil
		}
		q := &http.Request{Method: http.MethodGet}
		if n < len(saw) {
			q.Method = saw[n].method
		}
		r, err := http.ReadResponse(in, q)
		if err != nil {
			return fmt.Errorf("no response: %w", err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return fmt.Errorf("half a response: %w", err)
		}
		_ = r.Body.Close()
		switch {
		case r.StatusCode == http.StatusContinue:
		case r.StatusCode == http.StatusAccepted:
			if n++; r.Header.Get("Seen") != fmt.Sprint(n) {
				return fmt.Errorf("response %d is that of request %s", n, r.Header.Get("Seen"))
			}
		case r.StatusCode >= 400 && n == len(saw):
			if _, err := in.Peek(1); !errors.Is(err, io.EOF) {
				return fmt.Errorf("something follows a refusal with %d", r.StatusCode)
			}
			return nil
		default:
			return fmt.Errorf("a response with %d after %d of %d requests", r.StatusCode, n, len(saw))
		}
	}
}

const host = "Host: a\r\n"

// The bytes of clients that mean well, and how many requests are in them.
var wellMeant = map[string]int{
	"GET / HTTP/1.1\r\n" + host + "\r\n": 1,
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n" + host + "\r\n":                      2,
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n" + host + "\r\n": 2,
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nT: u\r\n\r\n":     1,
	"POST /a HTTP/1.1\r\n" + host + "X: a\r\n\tb\r\nContent-Length: 0\r\n\r\n\r\nHEAD / HTTP/1.1\r\n" + host + "\r\n":      2,
	"GET http://b/c?d HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n":                                                   1,
	"GET / HTTP/1.0\r\n\r\n": 1,
	"PUT /a HTTP/1.1\nHost:a\nExpect: 100-continue\nContent-Length: 2\n\nabGET /b HTTP/1.1\n" + host + "\n": 2,
}

// What others may read otherwise: another request is hidden in it, or there is none at all. Only so many may be seen.
var hidden = map[string]int{
	// A chunked body beside a length: what follows is hidden from whoever reads the other of the two.
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n" + host + "\r\n":                           1,
	"POST /a HTTP/1.0\r\n" + host + "Connection: keep-alive\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n" + host + "\r\n": 1,
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n" + host + "\r\n":                 0,
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n":                                                                                0,
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n":                                                                                     0,
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n":                                                                                  0,
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd":                                                                               0,
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 3, 3\r\n\r\nabc":                                                                                                  0,
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: +3\r\n\r\nabc":                                                                                                    0,
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 0x3\r\n\r\nabc":                                                                                                   0,
	"POST /a HTTP/1.1\r\n" + host + "Content-Length:\r\n\r\nabc":                                                                                                       0,
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n" + host + "\r\n":                                      1,
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3;a\nb\r\nabc\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n" + host + "\r\n":                               1,
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n" + host + "\r\n":                                   1,
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n":                                                                         1,
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc\r\n0\r\n\r\n":                                                         1,
	"GET / HTTP/1.1\r\n X: folded\r\n" + host + "\r\n":                                                                                                                 0,
	"GET / HTTP/1.1\r\n" + host + "Host: b\r\n\r\n":                                                                                                                    0,
	"GET / HTTP/1.1\r\n\r\n":                                               0,
	"GET / HTTP/1.1\r\n" + host + "X: a\rb\r\n\r\n":                        0,
	"GET / HTTP/1.1\r\n" + host + "X: a\x00b\r\n\r\n":                      0,
	"GET / HTTP/2.0\r\n" + host + "\r\n":                                   0,
	"GET  / HTTP/1.1\r\n" + host + "\r\n":                                  0,
	"GET / HTTP/1.1 \r\n" + host + "\r\n":                                  0,
	"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello":                   0, // TLS where there is none
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00": 0,
}

func TestClientsThatMeanWellAreHeardOut(t *testing.T) {
	w := &witness{}
	conns, _ := frontOn(t, w)
	for in, want := range wellMeant {
		w.heard(0xff)
		c := newWire([]byte(in), len(in))
		conns <- c
		if sent := c.sent(t); len(w.saw) != want {
			t.Errorf("of %q %d requests were seen, want %d:\n%s", in, len(w.saw), want, sent)
		}
		if said := strictly([]byte(in)); len(said) != want {
			t.Errorf("a strict reading of %q has %d requests, want %d", in, len(said), want)
		}
	}
}

func TestNoRequestIsHiddenInAnother(t *testing.T) {
	w := &witness{}
	conns, _ := frontOn(t, w)
	for in, want := range hidden {
		w.heard(0xff)
		c := newWire([]byte(in), len(in))
		conns <- c
		if sent := c.sent(t); len(w.saw) != want {
			t.Errorf("of %q %d requests were seen, want %d:\n%s", in, len(w.saw), want, sent)
		}
	}
}

// FuzzRawHTTP sends arbitrary bytes to the front. What the handler sees is what a strict reading of them says, or less of it;
// each request that it sees is answered, what it doesn't see is refused or closed, and nothing breaks.
func FuzzRawHTTP(f *testing.F) {
	for _, seeds := range []map[string]int{wellMeant, hidden} {
		for in := range seeds {
			f.Add([]byte(in), byte(0xff), byte(0))
			f.Add([]byte(in), byte(0), byte(1))
		}
	}
	w := &witness{}
	conns, complained := frontOn(f, w)
	f.Fuzz(func(t *testing.T, in []byte, reads, piece byte) {
		if len(in) > 64<<10 || len(in) == 0 {
			return
		}
		w.heard(reads)
		size := int(piece)
		if size == 0 {
			size = len(in)
		}
		c := newWire(in, size)
		conns <- c
		sent := c.sent(t)
		if broke := complained.panics(); broke != "" {
			t.Fatalf("the server broke: %s", broke)
		}
		if bytes.HasPrefix(in, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) {
			return // HTTP/2: that it ends is all
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		said := strictly(in)
		if len(w.saw) > len(said) {
			t.Fatalf("%d requests were seen, and there are %d; the first that is none is %+v", len(w.saw), len(said), w.saw[len(said)])
		}
		for i, s := range w.saw {
			if d := differs(s, said[i]); d != "" {
				t.Fatalf("request %d: %s", i, d)
			}
		}
		if err := answers(sent, w.saw); err != nil {
			t.Fatalf("%v:\n%s", err, sent)
		}
	})
}
