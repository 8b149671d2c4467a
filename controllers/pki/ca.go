// Package pki decides which certificates a fleet has and when they are renewed: one certificate authority for an
// installation, one certificate for the workers and one for the routers of each namespace, and the manager's own, which
// never leaves its memory. Issuing and judging are pure functions of their arguments and the time; Authority, Issuer and
// Reconciler keep the Secrets. It never decides who may talk to whom: that is api/identity.
//
// Keys come from the system's source of randomness, the only one that Go's key generation takes.
package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/ringfleet/ringfleet/api/identity"
)

// Validity of certificates. Each begins backdate before it is issued, for clocks that are behind.
const (
	caValidity   = 10 * 365 * 24 * time.Hour
	roleValidity = 90 * 24 * time.Hour
	backdate     = 5 * time.Minute
)

// Types of PEM blocks.
const (
	blockCertificate = "CERTIFICATE"
	blockKey         = "PRIVATE KEY"
)

// CA is a certificate authority: what it signs with, and the roots that peers trust. It never changes.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// rootsPEM are the certificates of roots in one file, as a Secret's ca.crt has them.
	rootsPEM []byte
	roots    []*x509.Certificate
}

// NewCA makes an authority that is valid for ten years from now.
func NewCA(now time.Time) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of the certificate authority: %w", err)
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	// The name differs from authority to authority, so that a bundle of several is unambiguous.
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"Ringfleet"}, CommonName: fmt.Sprintf("ringfleet-ca-%.8s", serial.Text(16))},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of the certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the new certificate of the certificate authority: %w", err)
	}
	return &CA{cert: cert, key: key, rootsPEM: encodeCert(der), roots: []*x509.Certificate{cert}}, nil
}

// ParseCA reads an authority from a Secret's data: tls.crt and tls.key sign, and ca.crt holds every root that peers
// trust. The signing certificate is a root whether ca.crt names it or not.
func ParseCA(data map[string][]byte) (*CA, error) {
	certs, err := parseCerts(data[identity.CertFile])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", identity.CertFile, err)
	}
	key, err := parseKey(data[identity.KeyFile])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", identity.KeyFile, err)
	}
	cert := certs[0]
	if !cert.IsCA {
		return nil, fmt.Errorf("%s: the certificate %q may not sign others", identity.CertFile, cert.Subject.CommonName)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("%s is not the key of the certificate in %s", identity.KeyFile, identity.CertFile)
	}
	ca := &CA{cert: cert, key: key, roots: []*x509.Certificate{cert}}
	if len(data[identity.RootFile]) > 0 {
		more, err := parseCerts(data[identity.RootFile])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", identity.RootFile, err)
		}
		for _, root := range more {
			if !root.Equal(cert) {
				ca.roots = append(ca.roots, root)
			}
		}
	}
	for _, root := range ca.roots {
		ca.rootsPEM = append(ca.rootsPEM, encodeCert(root.Raw)...)
	}
	return ca, nil
}

// Data returns the authority as a Secret of type kubernetes.io/tls holds it.
func (ca *CA) Data() (map[string][]byte, error) {
	key, err := encodeKey(ca.key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		identity.CertFile: encodeCert(ca.cert.Raw),
		identity.KeyFile:  key,
		identity.RootFile: ca.rootsPEM,
	}, nil
}

// NotAfter is when the signing certificate ends.
func (ca *CA) NotAfter() time.Time { return ca.cert.NotAfter }

// Pool returns the roots that peers trust.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, root := range ca.roots {
		pool.AddCert(root)
	}
	return pool
}

func serialNumber() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: der}), nil
}

// parseCerts reads one certificate or more and nothing else.
func parseCerts(text []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for rest := bytes.TrimSpace(text); len(rest) > 0; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil || block.Type != blockCertificate {
			return nil, fmt.Errorf("expected PEM blocks of type %s, found something else after %d of them", blockCertificate, len(certs))
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(certs)+1, err)
		}
		certs, rest = append(certs, cert), bytes.TrimSpace(rest)
	}
	if len(certs) == 0 {
		return nil, errors.New("no certificate")
	}
	return certs, nil
}

func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no private key in PEM form")
	}
	var key any
	var err error
	switch block.Type {
	case blockKey:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("expected a PEM block of type %s, found %q", blockKey, block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("read the private key: %w", err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("expected an ECDSA private key, found %T", key)
	}
	return ec, nil
}
