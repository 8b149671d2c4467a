// Package pki makes the keys and certificates of a cluster: one authority, and a certificate for each part.
// It returns PEM and writes nothing; who is called what is decided here, where files go by package lifecycle.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"
)

const (
	authorityLife   = 10 * 365 * 24 * time.Hour
	certificateLife = 365 * 24 * time.Hour
	// skew tolerates a clock that is behind.
	skew = time.Hour
)

// Authority signs the cluster's certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// CertPEM and KeyPEM are the authority as files.
	CertPEM, KeyPEM []byte
}

// Pair is a certificate and its key, in PEM.
type Pair struct{ Cert, Key []byte }

// Name is who a certificate speaks for, and on which addresses it serves; without any it is a client's.
type Name struct {
	Organization, CommonName string
	DNS                      []string
	IPs                      []netip.Addr
}

// NewAuthority makes an authority that is valid from now for ten years.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: "ringfleet-cluster"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:  x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLife),
	}
	der, err := sign(t, t, key, key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return LoadAuthority(encode("CERTIFICATE", der), keyPEM)
}

// LoadAuthority reads an authority back from its two files.
func LoadAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	c, _ := pem.Decode(certPEM)
	k, _ := pem.Decode(keyPEM)
	if c == nil || k == nil {
		return nil, errors.New("read the authority: no PEM block; run down, then up")
	}
	cert, err := x509.ParseCertificate(c.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	key, err := x509.ParseECPrivateKey(k.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the authority's key: %w", err)
	}
	return &Authority{cert: cert, key: key, CertPEM: certPEM, KeyPEM: keyPEM}, nil
}

// Issue makes a key and a certificate for n that is valid from now for a year.
func (a *Authority) Issue(n Name, now time.Time) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make the key of %s: %w", n.CommonName, err)
	}
	t := &x509.Certificate{
		Subject:  pkix.Name{CommonName: n.CommonName},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames: n.DNS, NotBefore: now.Add(-skew), NotAfter: now.Add(certificateLife),
	}
	if n.Organization != "" {
		t.Subject.Organization = []string{n.Organization}
	}
	for _, ip := range n.IPs {
		t.IPAddresses = append(t.IPAddresses, net.IP(ip.AsSlice()))
	}
	if len(n.DNS)+len(n.IPs) > 0 {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	der, err := sign(t, a.cert, key, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign the certificate of %s: %w", n.CommonName, err)
	}
	keyPEM, err := encodeKey(key)
	return Pair{Cert: encode("CERTIFICATE", der), Key: keyPEM}, err
}

// ServiceAccountKey makes the key that signs service account tokens: private and public half.
func ServiceAccountKey() (private, public []byte, err error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, nil, fmt.Errorf("make the service account key: %w", err)
	}
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the service account key: %w", err)
	}
	return encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)), encode("PUBLIC KEY", pub), nil
}

func sign(t, parent *x509.Certificate, key, by *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	t.SerialNumber = serial
	return x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, by)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return encode("EC PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
