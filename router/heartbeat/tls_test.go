package heartbeat

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/identity"
)

// authority issues certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ringfleet-ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key}
}

// folder issues a certificate for id and writes it as a mounted Secret would have it.
func (a *authority) folder(t *testing.T, id identity.ID) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), URIs: []*url.URL{id.URI()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		identity.CertFile: {Type: "CERTIFICATE", Bytes: der},
		identity.KeyFile:  {Type: "PRIVATE KEY", Bytes: pkcs8},
		identity.RootFile: {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// serverCredentials are those of a worker that lets the routers of its namespace in.
func (a *authority) serverCredentials(t *testing.T, id identity.ID) credentials.TransportCredentials {
	t.Helper()
	files, err := identity.Files(a.folder(t, id))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(files.Close)
	creds, err := identity.ServerCredentials(files, identity.In(id.Namespace, identity.Router))
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

func (a *authority) clientCredentials(t *testing.T, id identity.ID) credentials.TransportCredentials {
	t.Helper()
	files, err := identity.Files(a.folder(t, id))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(files.Close)
	creds, err := identity.ClientCredentials(files, identity.In(id.Namespace, identity.Worker))
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

func TestOnlyWorkersAndRoutersOfOneNamespaceAndAuthorityHearEachOther(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	router := identity.ID{Namespace: "ns", Role: identity.Router}
	worker := identity.ID{Namespace: "ns", Role: identity.Worker}
	for name, c := range map[string]struct {
		server, client credentials.TransportCredentials
		refused        bool
	}{
		"a worker and a router of one namespace": {
			server: ca.serverCredentials(t, worker), client: ca.clientCredentials(t, router),
		},
		"a worker of another namespace": {
			server: ca.serverCredentials(t, identity.ID{Namespace: "other", Role: identity.Worker}),
			client: ca.clientCredentials(t, router), refused: true,
		},
		"a router that poses as a worker": {
			server: ca.serverCredentials(t, router), client: ca.clientCredentials(t, router), refused: true,
		},
		"a worker that poses as a router": {
			server: ca.serverCredentials(t, worker), client: ca.clientCredentials(t, worker), refused: true,
		},
		"a worker of another authority": {
			server: other.serverCredentials(t, worker), client: ca.clientCredentials(t, router), refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeWorker(t, good("a"), grpc.Creds(c.server))
			config := Config{Interval: 100 * time.Millisecond, Timeout: 100 * time.Millisecond, FailuresToDrop: 3, SuccessesToAdmit: 1}
			f := &fixture{Table: NewTable(Options{Credentials: c.client, Clock: clock.RealClock{}, Log: testr.New(t)}, config)}
			defer f.Close()
			f.SetCandidates([]Candidate{candidate(w)})
			if !c.refused {
				f.state(t, "smollm2-0", Up)
				return
			}
			f.until(t, "smollm2-0", "was refused", func(w Worker) bool {
				return w.State == Lost && w.Report == nil && strings.Contains(w.LastError, "connection")
			})
		})
	}
}
