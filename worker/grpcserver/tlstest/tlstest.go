// Package tlstest issues short-lived identities for tests, as the manager does for a fleet: folders of credentials as a
// mounted Secret has them, from an authority that lives as long as the test. It is for tests only.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/api/identity"
)

// Authority issues certificates.
type Authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// New returns an authority that nobody else trusts.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{key: newKey(t)}
	a.cert = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, a.key, nil)
	return a
}

// Folder writes the credentials of id into dir.
func (a *Authority) Folder(t testing.TB, dir string, id identity.ID) {
	t.Helper()
	key := newKey(t)
	cert := a.sign(t, &x509.Certificate{
		URIs:        []*url.URL{id.URI()},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, key, a.cert)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		identity.CertFile: {Type: "CERTIFICATE", Bytes: cert.Raw},
		identity.KeyFile:  {Type: "PRIVATE KEY", Bytes: der},
		identity.RootFile: {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign issues c for key; a nil parent makes it its own.
func (a *Authority) sign(t testing.TB, c *x509.Certificate, key *ecdsa.PrivateKey, parent *x509.Certificate) *x509.Certificate {
	t.Helper()
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
