package pki_test

import (
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/hack/cluster/pki"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func authority(t *testing.T) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func certificate(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	b, _ := pem.Decode(text)
	if b == nil {
		t.Fatal("no PEM")
	}
	c, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func verify(t *testing.T, a *pki.Authority, c *x509.Certificate, at time.Time, usage x509.ExtKeyUsage) error {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(certificate(t, a.CertPEM))
	_, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func TestAServersCertificateHoldsForItsAddressesAndForNoClient(t *testing.T) {
	a := authority(t)
	p, err := a.Issue(pki.Name{CommonName: "n1", IPs: []netip.Addr{netip.MustParseAddr("10.245.0.2")}}, now)
	if err != nil {
		t.Fatal(err)
	}
	c := certificate(t, p.Cert)
	if err := verify(t, a, c, now, x509.ExtKeyUsageServerAuth); err != nil {
		t.Error(err)
	}
	if err := c.VerifyHostname("10.245.0.2"); err != nil {
		t.Error(err)
	}
	if err := c.VerifyHostname("10.245.0.3"); err == nil {
		t.Error("it holds for another address too")
	}
	if err := verify(t, a, c, now, x509.ExtKeyUsageClientAuth); err == nil {
		t.Error("it holds for a client too")
	}
}

func TestAClientsCertificateSaysWhoItIsForAYear(t *testing.T) {
	a := authority(t)
	p, err := a.Issue(pki.Admin(), now)
	if err != nil {
		t.Fatal(err)
	}
	c := certificate(t, p.Cert)
	if c.Subject.CommonName != "admin" || len(c.Subject.Organization) != 1 || c.Subject.Organization[0] != "system:masters" {
		t.Errorf("got %s", c.Subject)
	}
	if err := verify(t, a, c, now.Add(360*24*time.Hour), x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
	if err := verify(t, a, c, now.Add(370*24*time.Hour), x509.ExtKeyUsageClientAuth); err == nil {
		t.Error("it holds after its end")
	}
}

func TestAnAuthorityReadFromItsFilesSignsAsBefore(t *testing.T) {
	a := authority(t)
	b, err := pki.LoadAuthority(a.CertPEM, a.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.Issue(pki.Admin(), now)
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(t, a, certificate(t, p.Cert), now, x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
}

func TestATornAuthorityIsRefused(t *testing.T) {
	a := authority(t)
	if _, err := pki.LoadAuthority(a.CertPEM, a.KeyPEM[:20]); err == nil {
		t.Error("no error")
	}
}
