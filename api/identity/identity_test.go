package identity

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"
)

func certWith(t testing.TB, uris ...string) *x509.Certificate {
	t.Helper()
	cert := &x509.Certificate{}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			t.Skip("no URL, so in no certificate")
		}
		cert.URIs = append(cert.URIs, u)
	}
	return cert
}

func TestWhoACertificateSaysItsOwnerIs(t *testing.T) {
	for name, c := range map[string]struct {
		uris []string
		want string // the id, or a part of the error
	}{
		"a worker":               {[]string{"spiffe://ringfleet/ns/team-a/role/worker"}, "{team-a worker}"},
		"a router":               {[]string{"spiffe://ringfleet/ns/team-a/role/router"}, "{team-a router}"},
		"the manager":            {[]string{"spiffe://ringfleet/ns/team-a/role/manager"}, "{team-a manager}"},
		"nobody":                 {nil, "has 0 URI names"},
		"two":                    {[]string{"spiffe://ringfleet/ns/a/role/worker", "spiffe://ringfleet/ns/b/role/worker"}, "has 2 URI names"},
		"another trust domain":   {[]string{"spiffe://cluster.local/ns/a/role/worker"}, "is not of the form"},
		"a service account":      {[]string{"spiffe://ringfleet/ns/a/sa/worker"}, "is not of the form"},
		"an authority":           {[]string{"spiffe://ringfleet/ns/a/role/ca"}, "unknown role"},
		"no namespace":           {[]string{"spiffe://ringfleet/ns//role/worker"}, "names no namespace"},
		"a path too long":        {[]string{"spiffe://ringfleet/ns/a/role/worker/x"}, "is not of the form"},
		"a slash in the name":    {[]string{"spiffe://ringfleet/ns/a%2Fb/role/worker"}, "is not of the form"},
		"a query":                {[]string{"spiffe://ringfleet/ns/a/role/worker?role=manager"}, "says more than"},
		"a user before the host": {[]string{"spiffe://x@ringfleet/ns/a/role/worker"}, "says more than"},
		"https":                  {[]string{"https://ringfleet/ns/a/role/worker"}, "is not of the form"},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := Of(certWith(t, c.uris...))
			got := "{" + id.Namespace + " " + string(id.Role) + "}"
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestARoleIsAllowedInItsNamespaceOnly(t *testing.T) {
	allow := In("a", Router, Manager)
	for id, want := range map[ID]bool{{"a", Router}: true, {"a", Manager}: true, {"a", Worker}: false, {"b", Router}: false, {}: false} {
		if allow(id) != want {
			t.Errorf("%+v: allowed %t, want %t", id, !want, want)
		}
	}
}

// FuzzOf holds that whatever is accepted is said in one way only.
func FuzzOf(f *testing.F) {
	f.Add("spiffe://ringfleet/ns/team-a/role/worker")
	f.Add("spiffe://ringfleet/ns/a%20b/role/router?x#y")
	f.Fuzz(func(t *testing.T, text string) {
		cert := certWith(t, text)
		if id, err := Of(cert); err == nil && cert.URIs[0].String() != id.URI().String() {
			t.Errorf("%q is taken for %s", text, id.URI())
		}
	})
}
