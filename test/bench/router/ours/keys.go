// Package ours runs Ringfleet's router as a program of its own, whole but for what tells it of the cluster: its workers are
// given to it. It also makes the certificates that router and workers show each other.
package ours

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

// Namespace is the one of router and workers.
const Namespace = "bench"

// Keys writes the folders "router" and "worker" with certificates of one authority into dir.
func Keys(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	root := &x509.Certificate{Subject: pkix.Name{CommonName: "bench"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	authority := authority{key: key}
	if authority.cert, err = authority.sign(root, root, &key.PublicKey); err != nil {
		return err
	}
	for name, role := range map[string]identity.Role{"router": identity.Router, "worker": identity.Worker} {
		if err := authority.folder(filepath.Join(dir, name), identity.ID{Namespace: Namespace, Role: role}); err != nil {
			return fmt.Errorf("make the certificate of the %s: %w", name, err)
		}
	}
	return nil
}

type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func (a authority) sign(c, parent *x509.Certificate, key *ecdsa.PublicKey) (*x509.Certificate, error) {
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// folder writes what a Secret of the manager holds.
func (a authority) folder(dir string, id identity.ID) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert, err := a.sign(&x509.Certificate{URIs: []*url.URL{id.URI()},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, a.cert, &key.PublicKey)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		identity.CertFile: {Type: "CERTIFICATE", Bytes: cert.Raw},
		identity.KeyFile:  {Type: "PRIVATE KEY", Bytes: private},
		identity.RootFile: {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}
