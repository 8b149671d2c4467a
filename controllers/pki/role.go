package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	"github.com/ringfleet/ringfleet/api/identity"
)

// IssueRole returns the data of a Secret of type kubernetes.io/tls, with the roots in ca.crt, for id: valid for 90 days
// from now, or as long as the authority is when that is less.
func IssueRole(ca *CA, id identity.ID, now time.Time) (map[string][]byte, error) {
	cert, key, err := issue(ca, id, now)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		identity.CertFile: encodeCert(cert.Raw),
		identity.KeyFile:  keyPEM,
		identity.RootFile: ca.rootsPEM,
	}, nil
}

func issue(ca *CA, id identity.ID, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	if !now.Before(ca.cert.NotAfter) {
		return nil, nil, fmt.Errorf("issue a certificate for %s: the certificate authority %q ended at %s; replace it as docs/certificates.md says",
			id.URI(), ca.cert.Subject.CommonName, ca.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for %s: %w", id.URI(), err)
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, nil, err
	}
	until := now.Add(roleValidity)
	if ca.cert.NotAfter.Before(until) {
		until = ca.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"Ringfleet"}, CommonName: string(id.Role)},
		NotBefore:             now.Add(-backdate),
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	template.URIs = append(template.URIs, id.URI())
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign a certificate for %s: %w", id.URI(), err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("read the new certificate for %s: %w", id.URI(), err)
	}
	return cert, key, nil
}

// RenewAt returns when cert should be replaced: after two thirds of its validity.
func RenewAt(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 3 * 2)
}

// credentials is a role's Secret as it was found.
type credentials struct {
	cert  *x509.Certificate
	roots []byte
}

// A check says why found is not what ca would issue for id at now, or returns "".
type check func(found credentials, ca *CA, id identity.ID, now time.Time) string

var fresh = []check{carriesID, signedBy, sameRoots, begun, notDue}

// NeedsRenewal judges the data of a role's Secret: it says why another certificate is needed, or returns "" and when
// one will be.
func NeedsRenewal(data map[string][]byte, ca *CA, id identity.ID, now time.Time) (why string, at time.Time) {
	certs, err := parseCerts(data[identity.CertFile])
	if err != nil {
		return "the certificate can't be read", now
	}
	if _, err := tls.X509KeyPair(data[identity.CertFile], data[identity.KeyFile]); err != nil {
		return "the key is not the certificate's", now
	}
	found := credentials{cert: certs[0], roots: data[identity.RootFile]}
	for _, c := range fresh {
		if why := c(found, ca, id, now); why != "" {
			return why, now
		}
	}
	return "", RenewAt(found.cert)
}

func carriesID(found credentials, _ *CA, id identity.ID, _ time.Time) string {
	if have, err := identity.Of(found.cert); err != nil || have != id {
		return "the certificate is not for " + id.URI().String()
	}
	return ""
}

func signedBy(found credentials, ca *CA, _ identity.ID, _ time.Time) string {
	if found.cert.CheckSignatureFrom(ca.cert) != nil {
		return "another certificate authority signs now"
	}
	return ""
}

func sameRoots(found credentials, ca *CA, _ identity.ID, _ time.Time) string {
	if !bytes.Equal(found.roots, ca.rootsPEM) {
		return "the trusted roots have changed"
	}
	return ""
}

func begun(found credentials, _ *CA, _ identity.ID, now time.Time) string {
	if now.Before(found.cert.NotBefore) {
		return "the certificate begins in the future"
	}
	return ""
}

func notDue(found credentials, _ *CA, _ identity.ID, now time.Time) string {
	if !now.Before(RenewAt(found.cert)) {
		return "two thirds of the certificate's validity are over"
	}
	return ""
}
