package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// maxRedirects is how often one request is sent on: the hub needs two.
const maxRedirects = 5

// Options are what a client needs besides its policy.
type Options struct {
	Policy
	// RootCAs are trusted; nil: the system's.
	RootCAs *x509.CertPool
	// Proxy returns the proxy for a request; nil: that of the environment. A proxy's own address is not checked: it is
	// the operator's, and it decides what it reaches. Names that it resolves can't be checked here, literal addresses are.
	Proxy func(*http.Request) (*url.URL, error)
	// Resolver looks names up; nil: the system's.
	Resolver *net.Resolver
	// Connections bounds the connections to one host.
	Connections int
}

// Transport returns a transport that dials only what o allows.
func Transport(o Options) *http.Transport {
	proxy := o.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	proxies := &proxyHosts{find: proxy}
	dialer := &net.Dialer{Timeout: 20 * time.Second, KeepAlive: 30 * time.Second, Resolver: o.Resolver}
	guarded := *dialer
	guarded.Control = func(_, address string, _ syscall.RawConn) error {
		a, err := controlled(address)
		if err != nil {
			return err
		}
		return o.Check(a)
	}
	return &http.Transport{
		Proxy: proxies.proxy,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if proxies.has(address) {
				return dialer.DialContext(ctx, network, address)
			}
			return guarded.DialContext(ctx, network, address)
		},
		TLSClientConfig:        &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    20 * time.Second,
		ResponseHeaderTimeout:  60 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    o.Connections,
		MaxConnsPerHost:        0, // a redirect to the same host must not wait for the request that it is part of
		IdleConnTimeout:        60 * time.Second,
		DisableCompression:     true, // the bytes of a range are those of the file
		// One HTTP/2 connection would carry all ranges, at the speed of one.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
}

// Client returns a client over t that follows redirects within bounds: at most 5, never from https to http, only to hosts
// that p allows, and with credentials only to the origin that they were given for.
func Client(p Policy, t http.RoundTripper) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: p.redirect}
}

func (p Policy) redirect(next *http.Request, via []*http.Request) error {
	first, last := via[0].URL, via[len(via)-1].URL
	if len(via) > maxRedirects {
		return forbid("%s redirects more than %d times", Shorten(first), maxRedirects)
	}
	if err := p.CheckURL(next.URL, last.Scheme == "http" && first.Scheme == "http"); err != nil {
		var f *ForbiddenError
		if errors.As(err, &f) {
			return forbid("%s redirects to %s: %s", Shorten(last), Shorten(next.URL), f.Says)
		}
		return err
	}
	if origin(next.URL) != origin(first) {
		next.Header.Del("Authorization")
		next.Header.Del("Cookie")
	}
	next.Header.Del("Referer") // it may hold the signature of the URL before
	return nil
}

// origin is what credentials are bound to.
func origin(u *url.URL) string { return u.Scheme + "://" + hostPort(u) }

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
