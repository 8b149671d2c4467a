package peers

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/ringfleet/ringfleet/api/identity"
	"github.com/ringfleet/ringfleet/controllers/pki"
)

// namespace is that of the certificates.
const namespace = "bench"

// Fleet is an authority of its own with the credentials of a worker and of a router, as the manager issues them.
type Fleet struct {
	folder string // of the worker's credentials
	router credentials.TransportCredentials
	close  func()
}

// NewFleet writes the credentials below dir.
func NewFleet(dir string) (*Fleet, error) {
	now := time.Now()
	ca, err := pki.NewCA(now)
	if err != nil {
		return nil, err
	}
	folders := map[identity.Role]string{}
	for _, role := range []identity.Role{identity.Worker, identity.Router} {
		data, err := pki.IssueRole(ca, identity.ID{Namespace: namespace, Role: role}, now)
		if err != nil {
			return nil, err
		}
		folders[role] = filepath.Join(dir, string(role))
		if err := os.MkdirAll(folders[role], 0o700); err != nil {
			return nil, err
		}
		for name, content := range data {
			if err := os.WriteFile(filepath.Join(folders[role], name), content, 0o600); err != nil {
				return nil, fmt.Errorf("write the credentials of a %s: %w", role, err)
			}
		}
	}
	files, err := identity.Files(folders[identity.Router])
	if err != nil {
		return nil, err
	}
	creds, err := identity.ClientCredentials(files, identity.In(namespace, identity.Worker))
	if err != nil {
		files.Close()
		return nil, err
	}
	return &Fleet{folder: folders[identity.Worker], router: creds, close: files.Close}, nil
}

// Close ends the reading of the files.
func (f *Fleet) Close() { f.close() }
