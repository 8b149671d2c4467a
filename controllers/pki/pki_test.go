package pki

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/api/identity"
)

var (
	start  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	worker = identity.ID{Namespace: "team-a", Role: identity.Worker}
)

func newCA(t *testing.T, now time.Time) *CA {
	t.Helper()
	ca, err := NewCA(now)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issueRole(t *testing.T, ca *CA, id identity.ID, now time.Time) map[string][]byte {
	t.Helper()
	data, err := IssueRole(ca, id, now)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func leaf(t *testing.T, data map[string][]byte) *x509.Certificate {
	t.Helper()
	certs, err := parseCerts(data[identity.CertFile])
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

func TestARoleCertificateIsAcceptedAsServerAndAsClient(t *testing.T) {
	ca := newCA(t, start)
	cert := leaf(t, issueRole(t, ca, worker, start))
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		for when, at := range map[string]time.Time{"four minutes before": start.Add(-4 * time.Minute), "after 89 days": start.Add(89 * 24 * time.Hour)} {
			if _, err := cert.Verify(x509.VerifyOptions{Roots: ca.Pool(), CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
				t.Errorf("%s, usage %v: %v", when, usage, err)
			}
		}
	}
	if id, err := identity.Of(cert); err != nil || id != worker {
		t.Errorf("the certificate is for %v (%v), want %v", id, err, worker)
	}
	other := newCA(t, start)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: other.Pool(), CurrentTime: start}); err == nil {
		t.Error("another authority's roots accept the certificate")
	}
}

func TestACertificateNeverOutlivesItsAuthority(t *testing.T) {
	ca := newCA(t, start)
	cert := leaf(t, issueRole(t, ca, worker, ca.NotAfter().Add(-time.Hour)))
	if !cert.NotAfter.Equal(ca.NotAfter()) {
		t.Errorf("the certificate ends at %s, its authority at %s", cert.NotAfter, ca.NotAfter())
	}
	_, err := IssueRole(ca, worker, ca.NotAfter())
	if err == nil || !strings.Contains(err.Error(), "ended at") {
		t.Errorf("an authority that has ended issues: %v", err)
	}
}

func TestACertificateIsRenewedWhen(t *testing.T) {
	ca, other := newCA(t, start), newCA(t, start)
	both := bundle(t, ca, other)
	due := RenewAt(leaf(t, issueRole(t, ca, worker, start)))
	without := func(file string) map[string][]byte {
		data := issueRole(t, ca, worker, start)
		data[file] = nil
		return data
	}
	for name, c := range map[string]struct {
		data map[string][]byte
		ca   *CA
		now  time.Time
		want string
	}{
		"it is new: not":                             {issueRole(t, ca, worker, start), ca, start, ""},
		"two thirds are nearly over: not":            {issueRole(t, ca, worker, start), ca, due.Add(-time.Second), ""},
		"two thirds are over":                        {issueRole(t, ca, worker, start), ca, due, "two thirds"},
		"it has ended":                               {issueRole(t, ca, worker, start), ca, start.Add(roleValidity), "two thirds"},
		"the clock was ahead when it was issued":     {issueRole(t, ca, worker, start.Add(time.Hour)), ca, start, "in the future"},
		"it is another role's":                       {issueRole(t, ca, identity.ID{Namespace: "team-a", Role: identity.Router}, start), ca, start, "not for spiffe://ringfleet/ns/team-a/role/worker"},
		"it is another namespace's":                  {issueRole(t, ca, identity.ID{Namespace: "team-b", Role: identity.Worker}, start), ca, start, "not for"},
		"another authority signs":                    {issueRole(t, other, worker, start), ca, start, "another certificate authority"},
		"a root was added":                           {issueRole(t, ca, worker, start), both, start, "roots"},
		"it was issued with the added root: not":     {issueRole(t, both, worker, start), both, start, ""},
		"the Secret is empty":                        {nil, ca, start, "can't be read"},
		"the key is missing":                         {without(identity.KeyFile), ca, start, "key"},
		"the roots are missing":                      {without(identity.RootFile), ca, start, "roots"},
		"the key is another certificate's":           {mixed(t, ca), ca, start, "key"},
		"something follows the certificate":          {trailing(t, ca), ca, start, "can't be read"},
		"the signer moved to the added root":         {issueRole(t, both, worker, start), moved(t, both, other), start, "another certificate authority"},
		"it was issued by the signer that moved: ok": {issueRole(t, moved(t, both, other), worker, start), moved(t, both, other), start, ""},
	} {
		t.Run(name, func(t *testing.T) {
			why, at := NeedsRenewal(c.data, c.ca, worker, c.now)
			if c.want == "" && (why != "" || !at.After(c.now)) {
				t.Errorf("renewed because %q, next at %s", why, at)
			}
			if c.want != "" && !strings.Contains(why, c.want) {
				t.Errorf("why is %q, want %q in it", why, c.want)
			}
		})
	}
}

// bundle is ca with the roots of others beside its own.
func bundle(t *testing.T, ca *CA, others ...*CA) *CA {
	t.Helper()
	data, err := ca.Data()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range others {
		data[identity.RootFile] = append(data[identity.RootFile], encodeCert(o.cert.Raw)...)
	}
	return parseCA(t, data)
}

// moved is old's bundle with next as the one that signs.
func moved(t *testing.T, old, next *CA) *CA {
	t.Helper()
	data, err := next.Data()
	if err != nil {
		t.Fatal(err)
	}
	data[identity.RootFile] = old.rootsPEM
	return parseCA(t, data)
}

func parseCA(t *testing.T, data map[string][]byte) *CA {
	t.Helper()
	ca, err := ParseCA(data)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func mixed(t *testing.T, ca *CA) map[string][]byte {
	data := issueRole(t, ca, worker, start)
	data[identity.KeyFile] = issueRole(t, ca, worker, start)[identity.KeyFile]
	return data
}

func trailing(t *testing.T, ca *CA) map[string][]byte {
	data := issueRole(t, ca, worker, start)
	data[identity.CertFile] = append(data[identity.CertFile], "more"...)
	return data
}

func TestAnAuthoritySurvivesItsSecret(t *testing.T) {
	ca := newCA(t, start)
	data, err := ca.Data()
	if err != nil {
		t.Fatal(err)
	}
	again := parseCA(t, data)
	if why, _ := NeedsRenewal(issueRole(t, ca, worker, start), again, worker, start); why != "" {
		t.Errorf("what the authority issued before needs renewal after: %s", why)
	}
}

func TestTheRootsOfOldAndNewAuthorityAcceptBoth(t *testing.T) {
	old, next := newCA(t, start), newCA(t, start)
	for name, ca := range map[string]*CA{"old signs": bundle(t, old, next), "new signs": moved(t, bundle(t, old, next), next)} {
		for whose, issuer := range map[string]*CA{"old": old, "new": next} {
			cert := leaf(t, issueRole(t, issuer, worker, start))
			if _, err := cert.Verify(x509.VerifyOptions{Roots: ca.Pool(), CurrentTime: start}); err != nil {
				t.Errorf("%s, a certificate of the %s one: %v", name, whose, err)
			}
		}
	}
}

func TestABrokenAuthorityIsRefused(t *testing.T) {
	ca, other := newCA(t, start), newCA(t, start)
	for name, c := range map[string]struct {
		spoil func(data map[string][]byte)
		want  string
	}{
		"no certificate":         {func(d map[string][]byte) { delete(d, identity.CertFile) }, "tls.crt: no certificate"},
		"no key":                 {func(d map[string][]byte) { delete(d, identity.KeyFile) }, "tls.key: no private key"},
		"a certificate as key":   {func(d map[string][]byte) { d[identity.KeyFile] = d[identity.CertFile] }, "expected a PEM block"},
		"another key":            {func(d map[string][]byte) { d[identity.KeyFile], _ = encodeKey(other.key) }, "is not the key"},
		"a role's certificate":   {func(d map[string][]byte) { d[identity.CertFile] = issueRole(t, ca, worker, start)[identity.CertFile] }, "may not sign"},
		"roots that are garbage": {func(d map[string][]byte) { d[identity.RootFile] = []byte("garbage") }, "ca.crt: expected PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := ca.Data()
			if err != nil {
				t.Fatal(err)
			}
			c.spoil(data)
			if _, err := ParseCA(data); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func FuzzParseCA(f *testing.F) {
	ca, err := NewCA(start)
	if err != nil {
		f.Fatal(err)
	}
	data, err := ca.Data()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[identity.CertFile], data[identity.KeyFile], data[identity.RootFile])
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"), []byte(nil), []byte("x"))
	f.Fuzz(func(t *testing.T, cert, key, roots []byte) {
		ca, err := ParseCA(map[string][]byte{identity.CertFile: cert, identity.KeyFile: key, identity.RootFile: roots})
		if err != nil {
			return
		}
		if !ca.key.PublicKey.Equal(ca.cert.PublicKey) || len(ca.roots) == 0 {
			t.Error("an authority whose key is not its certificate's, or without roots, was accepted")
		}
	})
}
