package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/credentials"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/identity"
)

// A Secret may be mounted a little after the process starts.
const (
	secretWait = 30 * time.Second
	secretPoll = 500 * time.Millisecond
)

// keys are the router's credentials on both sides. Close ends the reading of its files.
type keys struct {
	toWorkers, fromManager credentials.TransportCredentials
	Close                  func()
}

// openKeys waits for the files of the router's certificate, and returns credentials that follow them.
func openKeys(ctx context.Context, c clock.Clock, log *slog.Logger, dir, namespace string) (*keys, error) {
	if err := awaitFiles(ctx, c, log, dir, namespace); err != nil {
		return nil, err
	}
	provider, err := identity.Files(dir)
	if err != nil {
		return nil, fmt.Errorf("read the credentials in %s: %w", dir, err)
	}
	to, err := identity.ClientCredentials(provider, identity.In(namespace, identity.Worker))
	from, err2 := identity.ServerCredentials(provider, identity.In(namespace, identity.Manager))
	if err := errors.Join(err, err2); err != nil {
		provider.Close()
		return nil, fmt.Errorf("use the credentials in %s: %w", dir, err)
	}
	return &keys{toWorkers: to, fromManager: from, Close: provider.Close}, nil
}

// awaitFiles returns when the files are there and fit, or says which is not.
func awaitFiles(ctx context.Context, c clock.Clock, log *slog.Logger, dir, namespace string) error {
	deadline := c.Now().Add(secretWait)
	for told := false; ; told = true {
		err := checkFiles(dir, namespace)
		if err == nil {
			return nil
		}
		if !c.Now().Before(deadline) {
			return fmt.Errorf("%w; waited %s for it. The manager writes the Secret that is mounted at %s", err, secretWait, dir)
		}
		if !told {
			log.Info("the certificate is not there yet", "dir", dir, "why", err.Error())
		}
		timer := c.NewTimer(secretPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C():
		}
	}
}

// checkFiles reads the files as the credentials will.
func checkFiles(dir, namespace string) error {
	for _, name := range []string{identity.CertFile, identity.KeyFile, identity.RootFile} {
		if _, err := os.ReadFile(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s does not exist", filepath.Join(dir, name))
		} else if err != nil {
			return fmt.Errorf("read the certificate: %w", err)
		}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, identity.CertFile), filepath.Join(dir, identity.KeyFile))
	if err != nil {
		return fmt.Errorf("%s and %s don't fit together: %w", filepath.Join(dir, identity.CertFile), identity.KeyFile, err)
	}
	roots, err := os.ReadFile(filepath.Join(dir, identity.RootFile))
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(roots) {
		return fmt.Errorf("%s holds no certificate", filepath.Join(dir, identity.RootFile))
	}
	id, err := identity.Of(pair.Leaf)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, identity.CertFile), err)
	}
	if want := (identity.ID{Namespace: namespace, Role: identity.Router}); id != want {
		return fmt.Errorf("%s is for %s, this router is %s", filepath.Join(dir, identity.CertFile), id.URI(), want.URI())
	}
	return nil
}
