package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/ringfleet/ringfleet/api/identity"
	"github.com/ringfleet/ringfleet/controllers/pki"
)

// Namespace is the one of all processes.
const Namespace = "faults"

// writeKeys writes the folders router, worker and manager into dir, as the manager issues their certificates.
func writeKeys(dir string) error {
	now := time.Now()
	ca, err := pki.NewCA(now)
	if err != nil {
		return err
	}
	for _, role := range []identity.Role{identity.Worker, identity.Router, identity.Manager} {
		data, err := pki.IssueRole(ca, identity.ID{Namespace: Namespace, Role: role}, now)
		if err != nil {
			return err
		}
		folder := filepath.Join(dir, string(role))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		for name, content := range data {
			if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
				return fmt.Errorf("write the certificate of the %s: %w", role, err)
			}
		}
	}
	return nil
}

// asManager are the credentials with which a router is asked.
func asManager(keys string) (credentials.TransportCredentials, func(), error) {
	files, err := identity.Files(filepath.Join(keys, string(identity.Manager)))
	if err != nil {
		return nil, nil, err
	}
	creds, err := identity.ClientCredentials(files, identity.In(Namespace, identity.Router))
	if err != nil {
		files.Close()
		return nil, nil, err
	}
	return creds, files.Close, nil
}

// AsWorker are the credentials with which a double of a worker serves; the second result ends them.
func (r *Rig) AsWorker() (credentials.TransportCredentials, func(), error) {
	files, err := identity.Files(filepath.Join(r.keys, string(identity.Worker)))
	if err != nil {
		return nil, nil, err
	}
	creds, err := identity.ServerCredentials(files, identity.In(Namespace, identity.Router))
	if err != nil {
		files.Close()
		return nil, nil, err
	}
	return creds, files.Close, nil
}
