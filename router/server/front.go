package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/identity"
)

// Limits of what clients may send ahead, and how long a connection may be silent.
const (
	streamBuffer     = 256 << 10 // bytes of a body that nobody has read yet, by stream
	connectionBuffer = 1 << 20   // and by connection
	frontStreams     = 100       // at once, by connection of HTTP/2
	headBytes        = 32 << 10  // of a request line and its header
	headSlack        = 4 << 10   // net/http takes that much more of HTTP/1.1 than it is told
	pingAfter        = 15 * time.Second
	pingTimeout      = 15 * time.Second
	writeTimeout     = 30 * time.Second // of any byte of HTTP/2
)

// newFront returns the server that clients meet. It speaks HTTP/1.1 and HTTP/2, over TLS where there is a certificate, and
// otherwise HTTP/2 by prior knowledge.
func newFront(requests context.Context, handler http.Handler, cert *certificate, lines *log.Logger) *http.Server {
	s := &http.Server{
		Handler: guarded(requests, oneEnd(handler)), ErrorLog: lines,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 120 * time.Second, MaxHeaderBytes: headBytes - headSlack,
		BaseContext: func(net.Listener) context.Context { return requests }, ConnContext: withGuard,
		Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:      frontStreams,
			MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: connectionBuffer,
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: writeTimeout,
		},
	}
	s.Protocols.SetHTTP1(true)
	if cert == nil {
		s.Protocols.SetUnencryptedHTTP2(true)
		return s
	}
	s.Protocols.SetHTTP2(true)
	s.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: cert.get}
	return s
}

// oneEnd closes the connection behind every request of HTTP/1 that a proxy on the way may have seen end elsewhere, so that
// nothing behind it is taken for another client's request: chunked ones, whose Content-Length net/http ignores and removes
// where there is one, and those of HTTP/1.0, of which it ignores Transfer-Encoding.
func oneEnd(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// serveFront serves clients on l, at most as many connections as may be open at once. Those beyond wait to be accepted.
func serveFront(s *http.Server, l net.Listener, most int) error {
	l = guards{netutil.LimitListener(brief{l}, most), clock.RealClock{}}
	if s.TLSConfig != nil {
		return s.ServeTLS(l, "", "")
	}
	return s.Serve(l)
}

// certificate is what clients see; it follows its files.
type certificate struct {
	dir      string
	now      atomic.Pointer[tls.Certificate]
	follower *identity.Follower
}

// openCertificate reads the files in dir, and reads them again as they change. It is nil where dir is empty.
func openCertificate(c clock.WithTicker, log logr.Logger, dir string) (*certificate, error) {
	if dir == "" {
		return nil, nil
	}
	f := &certificate{dir: dir}
	if err := f.read(); err != nil {
		return nil, fmt.Errorf("--client-tls-dir: %w", err)
	}
	f.follower = identity.Follow(c, f.read, func(why string) {
		log.Info("The renewed certificate for clients can't be used; the last one stays in use", "dir", dir, "why", why)
	})
	return f, nil
}

// Close ends the reading. A nil certificate has nothing to close.
func (f *certificate) Close() {
	if f != nil {
		f.follower.Close()
	}
}

func (f *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.now.Load(), nil }

// read takes the files as they are now. Its error holds nothing of them.
func (f *certificate) read() error {
	cert, key := filepath.Join(f.dir, identity.CertFile), filepath.Join(f.dir, identity.KeyFile)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", cert, identity.KeyFile, err)
	}
	f.now.Store(&pair)
	return nil
}
