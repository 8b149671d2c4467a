package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/identity"
)

// Credentials speak to the workers of a namespace with the certificate of one of its Secrets. Files are written into
// dir, which must live until end is called.
func (c *Cluster) Credentials(ctx context.Context, namespace, secret, dir string) (creds credentials.TransportCredentials, end func(), err error) {
	var s corev1.Secret
	if err := c.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: secret}, &s); err != nil {
		return nil, nil, fmt.Errorf("read secret %s of %s: %w", secret, namespace, err)
	}
	for _, f := range []string{identity.CertFile, identity.KeyFile, identity.RootFile} {
		if len(s.Data[f]) == 0 {
			return nil, nil, fmt.Errorf("secret %s of %s holds no %s", secret, namespace, f)
		}
		if err := os.WriteFile(filepath.Join(dir, f), s.Data[f], 0o600); err != nil {
			return nil, nil, err
		}
	}
	provider, err := identity.Files(dir)
	if err != nil {
		return nil, nil, err
	}
	creds, err = identity.ClientCredentials(provider, identity.In(namespace, identity.Worker))
	if err != nil {
		provider.Close()
		return nil, nil, err
	}
	return creds, provider.Close, nil
}
