package identity

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	clocktesting "k8s.io/utils/clock/testing"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hang bounds what would otherwise never end.
const hang = 60 * time.Second

var (
	aWorker = ID{Namespace: "team", Role: Worker}
	aRouter = ID{Namespace: "team", Role: Router}
)

// authority issues certificates of one root.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	a.cert = a.sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, a.key, nil)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(t *testing.T, c *x509.Certificate, key *ecdsa.PrivateKey, parent *x509.Certificate) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = serial, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// write puts new credentials of id into dir and returns the serial number of their certificate.
func (a *authority) write(t *testing.T, dir string, id ID) string {
	t.Helper()
	key := newKey(t)
	cert := a.sign(t, &x509.Certificate{URIs: []*url.URL{id.URI()},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, key, a.cert)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		CertFile: {Type: "CERTIFICATE", Bytes: cert.Raw},
		KeyFile:  {Type: "PRIVATE KEY", Bytes: der},
		RootFile: {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		put(t, dir, name, pem.EncodeToMemory(block))
	}
	return cert.SerialNumber.String()
}

// put replaces a file at once, as the kubelet does.
func put(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// until repeats a step until it is enough.
func until(t *testing.T, what string, enough func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(hang)
	for !enough() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("hangs: " + what)
		}
	}
}

// echo tells its caller whose certificate it showed, in a stream whenever the test asks for it.
type echo struct {
	workerv1.UnimplementedWorkerServer
	more chan struct{}
}

func shown(p *peer.Peer) string {
	return p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].SerialNumber.String()
}

func (e *echo) Watch(_ *workerv1.WatchRequest, s grpc.ServerStreamingServer[workerv1.Report]) error {
	p, _ := peer.FromContext(s.Context())
	for {
		if err := s.Send(&workerv1.Report{InstanceId: shown(p)}); err != nil {
			return err
		}
		select {
		case <-e.more:
		case <-s.Context().Done():
			return nil
		}
	}
}

// pair is a server and what a client needs to call it, each with a folder of credentials, on a clock that the test moves.
type pair struct {
	t              *testing.T
	clock          *clocktesting.FakeClock
	server, client string // the folders
	address        string
	echo           *echo
}

func newPair(t *testing.T, ca *authority, k keepalive.ServerParameters) *pair {
	t.Helper()
	p := &pair{t: t, clock: clocktesting.NewFakeClock(time.Now()), server: t.TempDir(), client: t.TempDir(),
		echo: &echo{more: make(chan struct{})}}
	ca.write(t, p.server, aWorker)
	ca.write(t, p.client, aRouter)
	creds, err := ServerCredentials(p.files(p.server, aWorker), In("team", Router))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.address = l.Addr().String()
	s := grpc.NewServer(grpc.Creds(creds), grpc.KeepaliveParams(k))
	workerv1.RegisterWorkerServer(s, p.echo)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return p
}

func (p *pair) files(dir string, id ID) *files {
	p.t.Helper()
	f, err := Await(context.Background(), p.clock, logr.Discard(), dir, id)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(f.Close)
	return f.(*files)
}

// dial returns a new connection with the credentials of f.
func (p *pair) dial(f *files) *grpc.ClientConn {
	p.t.Helper()
	creds, err := ClientCredentials(f, In("team", Worker))
	if err != nil {
		p.t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+p.address, grpc.WithTransportCredentials(creds))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// call returns what server and client showed each other, or the error.
func (p *pair) call(conn *grpc.ClientConn) (server, client string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	s, err := workerv1.NewWorkerClient(conn).Watch(ctx, &workerv1.WatchRequest{})
	if err != nil {
		return "", "", err
	}
	r, err := s.Recv()
	if err != nil {
		return "", "", err
	}
	other, _ := peer.FromContext(s.Context())
	return shown(other), r.GetInstanceId(), nil
}

// watch opens a stream, and returns what the client shows on it at the next request.
func (p *pair) watch(conn *grpc.ClientConn) func() string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	p.t.Cleanup(cancel)
	s, err := workerv1.NewWorkerClient(conn).Watch(ctx, &workerv1.WatchRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	first := true
	return func() string {
		p.t.Helper()
		if !first {
			p.echo.more <- struct{}{}
		}
		first = false
		r, err := s.Recv()
		if err != nil {
			p.t.Fatalf("the stream broke: %v", err)
		}
		return r.GetInstanceId()
	}
}

func TestRenewedFilesCountForNewConnectionsAndOldOnesGoOn(t *testing.T) {
	p := newPair(t, newAuthority(t), Keepalive())
	f := p.files(p.client, aRouter)
	old := p.dial(f)
	next := p.watch(old)
	before := next()
	stranger := t.TempDir()
	for _, name := range []string{CertFile, KeyFile, RootFile} {
		b, err := os.ReadFile(filepath.Join(p.client, name))
		if err != nil {
			t.Fatal(err)
		}
		put(t, stranger, name, b)
	}

	ca := newAuthority(t) // nobody trusts the first one any more
	server, client := ca.write(t, p.server, aWorker), ca.write(t, p.client, aRouter)
	until(t, "a handshake with the new certificates of both", func() bool {
		p.clock.Step(Reread)
		conn := p.dial(f)
		defer conn.Close() //nolint:errcheck // the end of the test closes it too
		s, c, err := p.call(conn)
		return err == nil && s == server && c == client
	})
	if got := next(); got != before {
		t.Errorf("the old stream shows %s, it showed %s", got, before)
	}
	if _, c, err := p.call(old); err != nil || c != before {
		t.Errorf("a call on the old connection shows %s, %v; want %s", c, err, before)
	}
	if _, _, err := p.call(p.dial(p.files(stranger, aRouter))); err == nil {
		t.Error("a certificate of the authority that is gone was taken")
	}
}

func TestAnOldConnectionIsReplacedAndItsStreamsGoOn(t *testing.T) {
	k := Keepalive()
	k.MaxConnectionAge = 20 * time.Millisecond
	p := newPair(t, newAuthority(t), k)
	conn := p.dial(p.files(p.client, aRouter))
	next := p.watch(conn)
	before := next()
	ca := newAuthority(t)
	server, client := ca.write(t, p.server, aWorker), ca.write(t, p.client, aRouter)
	until(t, "the new certificates on the same client", func() bool {
		p.clock.Step(Reread)
		s, c, err := p.call(conn)
		return err == nil && s == server && c == client
	})
	addresses := map[string]bool{}
	until(t, "five more connections", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		s, err := workerv1.NewWorkerClient(conn).Watch(ctx, &workerv1.WatchRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		if err != nil {
			t.Fatalf("a call met the end of a connection: %v", err)
		}
		other, _ := peer.FromContext(s.Context())
		addresses[other.LocalAddr.String()] = true
		return len(addresses) > 5
	})
	if got := next(); got != before {
		t.Errorf("the stream shows %s, it showed %s", got, before)
	}
}

// record keeps what is logged.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		fmt.Fprintln(&r.text, prefix, args)
	}, funcr.Options{Verbosity: 9})
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func TestRenewedFilesThatCanNotBeUsedAreLoggedOnceWithoutTheirContent(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		want  string
	}{
		"the key is another's": {func(t *testing.T, dir string) {
			other := t.TempDir()
			newAuthority(t).write(t, other, aWorker)
			b, err := os.ReadFile(filepath.Join(other, KeyFile))
			if err != nil {
				t.Fatal(err)
			}
			put(t, dir, KeyFile, b)
		}, "tls.crt and tls.key don't fit together"},
		"the key is no PEM": {func(t *testing.T, dir string) {
			b, err := os.ReadFile(filepath.Join(dir, KeyFile))
			if err != nil {
				t.Fatal(err)
			}
			put(t, dir, KeyFile, bytes.ReplaceAll(b, []byte("-----"), []byte("--")))
		}, "tls.crt and tls.key don't fit together"},
		"the role is another": {func(t *testing.T, dir string) { newAuthority(t).write(t, dir, aRouter) },
			"tls.crt is for spiffe://ringfleet/ns/team/role/router, this process is spiffe://ringfleet/ns/team/role/worker"},
		"there are no roots": {func(t *testing.T, dir string) { put(t, dir, RootFile, nil) }, "ca.crt holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, log, clock := t.TempDir(), &record{}, clocktesting.NewFakeClock(time.Now())
			newAuthority(t).write(t, dir, aWorker)
			f, err := Await(context.Background(), clock, log.logger(), dir, aWorker)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			before, err := f.KeyMaterial(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			c.spoil(t, dir)
			key, err := os.ReadFile(filepath.Join(dir, KeyFile))
			if err != nil {
				t.Fatal(err)
			}
			until(t, "the line", func() bool { clock.Step(Reread); return strings.Contains(log.String(), c.want) })
			if now, err := f.KeyMaterial(context.Background()); err != nil || now != before {
				t.Errorf("the good files are not in use any more: %v", err)
			}
			newAuthority(t).write(t, dir, aWorker)
			until(t, "the mended files", func() bool {
				clock.Step(Reread)
				now, err := f.KeyMaterial(context.Background())
				return err == nil && now != before
			})
			for line := range strings.Lines(log.String()) {
				if n := strings.Count(log.String(), line); n != 1 {
					t.Errorf("%d times: %s", n, line)
				}
			}
			if body := strings.Split(string(key), "\n")[1]; strings.Contains(log.String(), body) {
				t.Errorf("the log holds the key")
			}
		})
	}
}

func TestCredentialsAreWaitedForAndThenNamed(t *testing.T) {
	ca := newAuthority(t)
	for name, c := range map[string]struct {
		spoil func(dir string)
		want  string
	}{
		"no certificate":  {func(dir string) { _ = os.Remove(filepath.Join(dir, CertFile)) }, "tls.crt does not exist"},
		"no key":          {func(dir string) { _ = os.Remove(filepath.Join(dir, KeyFile)) }, "tls.key does not exist"},
		"no roots":        {func(dir string) { _ = os.Remove(filepath.Join(dir, RootFile)) }, "ca.crt does not exist"},
		"another's":       {func(dir string) { ca.write(t, dir, aRouter) }, "is for spiffe://ringfleet/ns/team/role/router, this process is spiffe://ringfleet/ns/team/role/worker"},
		"another place's": {func(dir string) { ca.write(t, dir, ID{Namespace: "other", Role: Worker}) }, "ns/other"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, clock := t.TempDir(), clocktesting.NewFakeClock(time.Now())
			ca.write(t, dir, aWorker)
			c.spoil(dir)
			done := make(chan error, 1)
			go func() {
				_, err := Await(context.Background(), clock, logr.Discard(), dir, aWorker)
				done <- err
			}()
			var err error
			until(t, "the end of patience", func() bool {
				select {
				case err = <-done:
					return true
				default:
					clock.Step(poll)
					return false
				}
			})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "Secret") || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestCredentialsThatComeLateAreTaken(t *testing.T) {
	dir, clock, log := t.TempDir(), clocktesting.NewFakeClock(time.Now()), &record{}
	done := make(chan error, 1)
	go func() {
		f, err := Await(context.Background(), clock, log.logger(), dir, aWorker)
		if err == nil {
			f.Close()
		}
		done <- err
	}()
	until(t, "the wait", clock.HasWaiters)
	newAuthority(t).write(t, dir, aWorker)
	clock.Step(poll)
	if err := <-done; err != nil || !strings.Contains(log.String(), "tls.crt does not exist") {
		t.Errorf("%v, log %s", err, log)
	}
}

func TestTheEndOfTheProcessEndsTheWait(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Await(ctx, clocktesting.NewFakeClock(time.Now()), logr.Discard(), t.TempDir(), aWorker); err == nil {
		t.Error("no error")
	}
}
