// Package tlstest gives tests the identities that the manager gives a fleet: folders of credentials as a mounted Secret has
// them, from an authority that lives as long as the test. It is for tests only.
package tlstest

import (
	"testing"

	"github.com/ringfleet/ringfleet/api/identity"
	"github.com/ringfleet/ringfleet/api/identity/identitytest"
)

// Authority issues certificates.
type Authority struct{ of *identitytest.Authority }

// New returns an authority that nobody else trusts.
func New(t testing.TB) *Authority {
	t.Helper()
	a, err := identitytest.New()
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{a}
}

// Folder writes the credentials of id into dir.
func (a *Authority) Folder(t testing.TB, dir string, id identity.ID) {
	t.Helper()
	if err := a.of.Folder(dir, id); err != nil {
		t.Fatal(err)
	}
}
