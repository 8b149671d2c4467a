package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/api/identity"
)

// fronted serves a handler that says which protocol a request came by, and returns the address.
func fronted(t *testing.T, cert *certificate) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newFront(context.Background(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }), cert, nil)
	ended := make(chan error, 1)
	go func() { ended <- serveFront(s, l, 100) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return l.Addr().String()
}

// spoken asks by a transport of these protocols, and returns what the server saw.
func spoken(t *testing.T, url string, protocols func(*http.Protocols)) string {
	t.Helper()
	p := new(http.Protocols)
	protocols(p)
	transport := &http.Transport{Protocols: p}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func http1(p *http.Protocols) { p.SetHTTP1(true) }
func h2c(p *http.Protocols)   { p.SetUnencryptedHTTP2(true) }

func TestClientsWithoutTLSSpeakHTTP1OrBeginWithHTTP2(t *testing.T) {
	at := "http://" + fronted(t, nil)
	if got := spoken(t, at, http1); got != "HTTP/1.1" {
		t.Errorf("HTTP/1.1 became %s", got)
	}
	if got := spoken(t, at, h2c); got != "HTTP/2.0" {
		t.Errorf("HTTP/2 became %s", got)
	}
}

// served makes a certificate of an authority for clients, in a folder as a Secret has it.
func served(t *testing.T, dir string) {
	t.Helper()
	a := newAuthority(t)
	from := a.folder(identity.ID{Namespace: "ns", Role: identity.Router})
	for _, name := range []string{identity.CertFile, identity.KeyFile} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// shown is the serial number of the certificate that a server shows.
func shown(t *testing.T, address string) string {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // what it shows is looked at
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func TestARenewedCertificateIsShownWithoutARestartAndABadOneIsNot(t *testing.T) {
	dir := t.TempDir()
	served(t, dir)
	c := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	cert, err := openCertificate(c, logr.Discard(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer cert.Close()
	at := fronted(t, cert)
	first := shown(t, at)
	if err := os.WriteFile(filepath.Join(dir, identity.KeyFile), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cert.read(); err == nil || strings.Contains(err.Error(), "no key") {
		t.Errorf("a key that is none: %v", err)
	}
	if got := shown(t, at); got != first {
		t.Error("a certificate without its key is shown")
	}
	served(t, dir)
	for deadline := time.Now().Add(hangs); shown(t, at) == first; c.Step(identity.Reread) {
		if time.Now().After(deadline) {
			t.Fatal("hangs: the renewed certificate is not shown")
		}
	}
}

func TestTLSSpeaksHTTP1AndHTTP2(t *testing.T) {
	dir := t.TempDir()
	served(t, dir)
	cert, err := openCertificate(clocktesting.NewFakeClock(time.Now()), logr.Discard(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer cert.Close()
	at := fronted(t, cert)
	for protocol, want := range map[string]string{"h2": "h2", "http/1.1": "http/1.1"} {
		c, err := tls.Dial("tcp", at, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}) //nolint:gosec // only the protocol counts
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ConnectionState().NegotiatedProtocol; got != want {
			t.Errorf("%s became %q", protocol, got)
		}
		_ = c.Close()
	}
}

func TestAFolderWithoutACertificateIsNamed(t *testing.T) {
	dir := t.TempDir()
	_, err := openCertificate(clocktesting.NewFakeClock(time.Now()), logr.Discard(), dir)
	if err == nil || !strings.Contains(err.Error(), "--client-tls-dir: "+filepath.Join(dir, identity.CertFile)) {
		t.Errorf("got %v", err)
	}
	if cert, err := openCertificate(nil, logr.Discard(), ""); cert != nil || err != nil {
		t.Errorf("without a folder: %v, %v", cert, err)
	}
}
