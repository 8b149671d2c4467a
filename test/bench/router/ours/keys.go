// Package ours runs Ringfleet's router as a program of its own, whole but for what tells it of the cluster: its workers are
// given to it. It also makes the certificates that router and workers show each other.
package ours

import (
	"fmt"
	"path/filepath"

	"github.com/ringfleet/ringfleet/api/identity"
	"github.com/ringfleet/ringfleet/api/identity/identitytest"
)

// Namespace is the one of router and workers.
const Namespace = "bench"

// Keys writes the folders "router" and "worker" with certificates of one authority into dir.
func Keys(dir string) error {
	authority, err := identitytest.New()
	if err != nil {
		return err
	}
	for name, role := range map[string]identity.Role{"router": identity.Router, "worker": identity.Worker} {
		if err := authority.Folder(filepath.Join(dir, name), identity.ID{Namespace: Namespace, Role: role}); err != nil {
			return fmt.Errorf("make the certificate of the %s: %w", name, err)
		}
	}
	return nil
}
