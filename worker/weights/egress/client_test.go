package egress

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loopback allows what tests serve from.
var loopback = Policy{Allow: prefixes("127.0.0.0/8")}

// get asks for a URL with a token and returns what comes back.
func get(t *testing.T, o Options, u string) (string, error) {
	t.Helper()
	transport := Transport(o)
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret")
	resp, err := Client(o.Policy, transport).Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// echo answers with the credentials that came.
func echo(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, r.Header.Get("Authorization")+"|"+r.Header.Get("Referer"))
}

func secure(t *testing.T, h http.HandlerFunc) (*httptest.Server, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate()) // the same for every test server
	return s, pool
}

func TestANameIsJudgedByTheAddressThatItLeadsTo(t *testing.T) {
	s, pool := secure(t, echo)
	port := s.Listener.Addr().(*net.TCPAddr).Port
	_, err := get(t, Options{RootCAs: pool}, (&url.URL{Scheme: "https", Host: net.JoinHostPort("localhost", itoa(port))}).String())
	var f *ForbiddenError
	if !errors.As(err, &f) || !strings.Contains(f.Says, "private") {
		t.Errorf("got %v", err)
	}
}

// A name that is public when it is looked at and private when it is dialled: each look-up gets the next address.
func TestANameThatChangesItsMindIsCaught(t *testing.T) {
	var asked atomic.Int32
	resolver := names(t, func() [4]byte {
		if asked.Add(1) == 1 {
			return [4]byte{93, 184, 216, 34}
		}
		return [4]byte{169, 254, 169, 254}
	})
	if a, err := resolver.LookupNetIP(t.Context(), "ip4", "rebind.example"); err != nil || loopback.Check(a[0]) != nil {
		t.Fatalf("the first look-up: %v, %v", a, err)
	}
	_, err := get(t, Options{Policy: loopback, Resolver: resolver}, "https://rebind.example/")
	var f *ForbiddenError
	if !errors.As(err, &f) || !strings.Contains(f.Says, "169.254.169.254") {
		t.Errorf("got %v", err)
	}
}

func TestRedirectsStayWithinBounds(t *testing.T) {
	var hits atomic.Int32
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hits.Add(1); echo(w, r) }))
	defer plain.Close()
	other, _ := secure(t, echo)
	var first *httptest.Server
	first, pool := secure(t, func(w http.ResponseWriter, r *http.Request) {
		to := map[string]string{
			"/other": other.URL, "/same": first.URL + "/end", "/plain": plain.URL, "/metadata": "https://169.254.169.254/latest?sig=s3cret",
			"/private": "https://10.0.0.1/?sig=s3cret", "/user": "https://u:passw0rd@127.0.0.1/", "/loop": "/loop", "/number": "https://2130706433/",
		}[r.URL.Path]
		if r.URL.Path == "/end" {
			echo(w, r)
			return
		}
		http.Redirect(w, r, to, http.StatusFound)
	})
	for path, want := range map[string]struct{ body, refused string }{
		"/same":     {body: "Bearer secret|"},
		"/other":    {body: "|"},
		"/plain":    {refused: "expected https"},
		"/metadata": {refused: "never fetched"},
		"/private":  {refused: "private"},
		"/user":     {refused: "password in it"},
		"/number":   {refused: "neither"},
		"/loop":     {refused: "more than 5 times"},
	} {
		t.Run(path, func(t *testing.T) {
			body, err := get(t, Options{Policy: loopback, RootCAs: pool}, first.URL+path+"?sig=s3cret")
			var f *ForbiddenError
			switch {
			case want.refused == "" && (err != nil || body != want.body):
				t.Errorf("got %q, %v", body, err)
			case want.refused != "" && (!errors.As(err, &f) || !strings.Contains(f.Says, want.refused)):
				t.Errorf("got %v, want %q", err, want.refused)
			case f != nil && (strings.Contains(f.Says, "s3cret") || strings.Contains(f.Says, "passw0rd")):
				t.Errorf("%q holds a credential", f.Says)
			}
		})
	}
	if hits.Load() != 0 {
		t.Errorf("the plain server was asked %d times", hits.Load())
	}
}

func TestAProxyOfTheOperatorIsNotJudgedButItsTargetsAre(t *testing.T) {
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	at, _ := url.Parse(proxy.URL)
	o := Options{Proxy: func(*http.Request) (*url.URL, error) { return at, nil }}
	if _, err := get(t, o, "https://hub.example/"); err == nil || asked.Load() != 1 {
		t.Errorf("the proxy was asked %d times: %v", asked.Load(), err)
	}
	for _, u := range []string{"https://169.254.169.254/", "https://2852039166/"} {
		parsed, _ := url.Parse(u)
		if err := o.CheckURL(parsed, false); err == nil {
			t.Errorf("%s may be asked for", u)
		}
	}
}

func itoa(n int) string { return (&net.TCPAddr{Port: n}).String()[1:] }

// names returns a resolver whose name server answers with what next says, for no time.
func names(t *testing.T, next func() [4]byte) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(reply(b[:n], next), from)
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// reply answers a DNS question for an IPv4 address; others get no answer.
func reply(q []byte, next func() [4]byte) []byte {
	end := 12
	for q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5
	out := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
	if binary.BigEndian.Uint16(q[end-4:]) == 1 {
		a := next()
		out[7] = 1
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, a[0], a[1], a[2], a[3])
	}
	return out
}
