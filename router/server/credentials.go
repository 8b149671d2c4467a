package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/credentials"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/identity"
)

// keys are the router's credentials on both sides. Close ends the reading of its files.
type keys struct {
	toWorkers, fromManager credentials.TransportCredentials
	Close                  func()
}

// openKeys waits for the files of the router's certificate, and returns credentials that follow them.
func openKeys(ctx context.Context, c clock.WithTicker, log logr.Logger, dir, namespace string) (*keys, error) {
	provider, err := identity.Await(ctx, c, log, dir, identity.ID{Namespace: namespace, Role: identity.Router})
	if err != nil {
		return nil, fmt.Errorf("--tls-dir: %w", err)
	}
	to, err := identity.ClientCredentials(provider, identity.In(namespace, identity.Worker))
	from, err2 := identity.ServerCredentials(provider, identity.In(namespace, identity.Manager))
	if err := errors.Join(err, err2); err != nil {
		provider.Close()
		return nil, fmt.Errorf("use the credentials in %s: %w", dir, err)
	}
	return &keys{toWorkers: to, fromManager: from, Close: provider.Close}, nil
}
