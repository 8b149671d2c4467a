package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/credentials/tls/certprovider"
	"k8s.io/utils/clock"
)

// Names of the files in a folder of credentials, as a Secret of type kubernetes.io/tls has them.
const (
	CertFile = "tls.crt"
	KeyFile  = "tls.key"
	RootFile = "ca.crt"
)

// A Secret may be mounted a little after the process starts: patience is how long its files may be absent or unfit,
// poll how often they are looked at until then.
const (
	patience = 30 * time.Second
	poll     = 500 * time.Millisecond
)

// Files reads a folder's key, certificate and roots, whoever they are for, and reads them again as they change. Close it
// when done.
func Files(dir string) (certprovider.Provider, error) {
	return open(dir, nil, clock.RealClock{}, logr.Discard())
}

// Await waits 30 seconds for the credentials of want in dir, and returns them as Files does. Renewed files that don't
// fit together or are for another than want are logged and leave the last good ones in use. The error names the file,
// what it holds and what is wanted; when ctx ends, it is the last one.
func Await(ctx context.Context, c clock.WithTicker, log logr.Logger, dir string, want ID) (certprovider.Provider, error) {
	deadline := c.Now().Add(patience)
	for told := false; ; told = true {
		p, err := open(dir, &want, c, log)
		if err == nil {
			return p, nil
		}
		if !c.Now().Before(deadline) {
			return nil, fmt.Errorf("%w; waited %s for it. The manager writes the Secret that is mounted at %s", err, patience, dir)
		}
		if !told {
			log.Info("The certificate is not there yet", "dir", dir, "why", err.Error())
		}
		timer := c.NewTimer(poll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		case <-timer.C():
		}
	}
}

// files is a certprovider.Provider of a folder. It stands in for gRPC's own, which prints the whole private key in a
// warning when key and certificate don't fit.
type files struct {
	*certprovider.Distributor
	follower *Follower
}

// open reads dir once, and then at every Reread. want nil is anybody.
func open(dir string, want *ID, c clock.WithTicker, log logr.Logger) (*files, error) {
	f := &files{Distributor: certprovider.NewDistributor()}
	renew := func() error {
		material, err := read(dir, want)
		if err == nil {
			f.Set(material, nil)
		}
		return err
	}
	if err := renew(); err != nil {
		return nil, err
	}
	f.follower = Follow(c, renew, func(why string) {
		log.Info("The renewed certificate can't be used; the last one stays in use", "dir", dir, "why", why)
	})
	return f, nil
}

// Close ends the reading.
func (f *files) Close() {
	f.follower.Close()
	f.Stop()
}

// read reads and judges the files. Its errors never hold what is in them.
func read(dir string, want *ID) (*certprovider.KeyMaterial, error) {
	content := map[string][]byte{}
	for _, name := range []string{CertFile, KeyFile, RootFile} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s does not exist", filepath.Join(dir, name))
		}
		if err != nil {
			return nil, fmt.Errorf("read the certificate: %w", err)
		}
		content[name] = b
	}
	pair, err := tls.X509KeyPair(content[CertFile], content[KeyFile])
	if err != nil {
		return nil, fmt.Errorf("%s and %s don't fit together: %w", filepath.Join(dir, CertFile), KeyFile, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content[RootFile]) {
		return nil, fmt.Errorf("%s holds no certificate", filepath.Join(dir, RootFile))
	}
	if want != nil {
		if id, err := Of(pair.Leaf); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, CertFile), err)
		} else if id != *want {
			return nil, fmt.Errorf("%s is for %s, this process is %s", filepath.Join(dir, CertFile), id.URI(), want.URI())
		}
	}
	return &certprovider.KeyMaterial{Certs: []tls.Certificate{pair}, Roots: roots}, nil
}
