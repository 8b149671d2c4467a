// Package identitytest issues short-lived credentials for tests and benchmarks, as the manager does for a fleet: folders as a
// mounted Secret has them, from an authority that nobody else trusts. No binary has it.
package identitytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/ringfleet/ringfleet/api/identity"
)

// lifetime is how long what is issued is good.
const lifetime = 24 * time.Hour

// Authority issues certificates.
type Authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// New returns an authority.
func New() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	a := &Authority{key: key}
	root := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, err = a.sign(root, root, &key.PublicKey)
	return a, err
}

// Folder writes the credentials of id into dir, which it makes where there is none.
func (a *Authority) Folder(dir string, id identity.ID) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	cert, err := a.sign(&x509.Certificate{
		URIs:        []*url.URL{id.URI()},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &key.PublicKey)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	for name, block := range map[string]*pem.Block{
		identity.CertFile: {Type: "CERTIFICATE", Bytes: cert.Raw},
		identity.KeyFile:  {Type: "PRIVATE KEY", Bytes: private},
		identity.RootFile: {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return fmt.Errorf("write credentials: %w", err)
		}
	}
	return nil
}

// sign issues c for a key.
func (a *Authority) sign(c, parent *x509.Certificate, key *ecdsa.PublicKey) (*x509.Certificate, error) {
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(lifetime)
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate: %w", err)
	}
	return cert, nil
}
