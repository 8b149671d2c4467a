package lifecycle

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
	"github.com/ringfleet/ringfleet/hack/cluster/member"
	"github.com/ringfleet/ringfleet/hack/cluster/pki"
)

// keys are what the files of all members are made from.
type keys struct {
	authority *pki.Authority
	saPrivate []byte
	saPublic  []byte
}

// loadKeys reads the cluster's keys, or makes them. The authority's certificate is written last: while it is
// missing, the rest does not count.
func (c *Cluster) loadKeys() (keys, error) {
	var k keys
	cert, err := os.ReadFile(c.file(pkiDir, "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return c.makeKeys()
	}
	var rest [3][]byte
	for i, f := range []string{"ca.key", "sa.key", "sa.pub"} {
		if err == nil {
			rest[i], err = os.ReadFile(c.file(pkiDir, f))
		}
	}
	if err != nil {
		return k, fmt.Errorf("read the cluster's keys: %w; run down, then up", err)
	}
	k.saPrivate, k.saPublic = rest[1], rest[2]
	k.authority, err = pki.LoadAuthority(cert, rest[0])
	return k, err
}

func (c *Cluster) makeKeys() (keys, error) {
	var k keys
	var err error
	if k.authority, err = pki.NewAuthority(c.Clock.Now()); err != nil {
		return k, err
	}
	if k.saPrivate, k.saPublic, err = pki.ServiceAccountKey(); err != nil {
		return k, err
	}
	admin, err := k.authority.Issue(pki.Admin(), c.Clock.Now())
	if err != nil {
		return k, err
	}
	if err := write(c.Kubeconfig(), []byte(c.kubeconfig(k, admin))); err != nil {
		return k, err
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{"ca.key", k.authority.KeyPEM}, {"sa.key", k.saPrivate}, {"sa.pub", k.saPublic}, {"admin.crt", admin.Cert},
		{"admin.key", admin.Key}, {"ca.crt", k.authority.CertPEM}} {
		if err := write(c.file(pkiDir, f.name), f.text); err != nil {
			return k, fmt.Errorf("write the cluster's keys: %w", err)
		}
	}
	return k, nil
}

func (c *Cluster) kubeconfig(k keys, p pki.Pair) string {
	b := base64.StdEncoding.EncodeToString
	return c.Settings.Kubeconfig(b(k.authority.CertPEM), b(p.Cert), b(p.Key))
}

// configure writes the files of a member that is about to start.
func (c *Cluster) configure(name string, k keys, m config.Machine) error {
	files := map[string][]byte{"ca.crt": k.authority.CertPEM}
	pairs, clients := pki.NodePairs(c.Settings, name), pki.NodeClients(name)
	if name == config.Hub {
		pairs, clients = pki.HubPairs(c.Settings), pki.HubClients()
		for f, text := range c.Settings.HubFiles() {
			files[f] = []byte(text)
		}
		files["ca.key"], files["sa.key"], files["sa.pub"] = k.authority.KeyPEM, k.saPrivate, k.saPublic
	} else {
		for f, text := range c.Settings.NodeFiles(name, m) {
			files[f] = []byte(text)
		}
	}
	for f, n := range pairs {
		p, err := k.authority.Issue(n, c.Clock.Now())
		if err != nil {
			return err
		}
		files[f+".crt"], files[f+".key"] = p.Cert, p.Key
	}
	for f, n := range clients {
		p, err := k.authority.Issue(n, c.Clock.Now())
		if err != nil {
			return err
		}
		files[f+".kubeconfig"] = []byte(c.kubeconfig(k, p))
	}
	for f, text := range files {
		if err := write(filepath.Join(member.Dir(c.Settings, name), member.ConfigDir, f), text); err != nil {
			return fmt.Errorf("write the files of %s: %w", name, err)
		}
	}
	return nil
}

// machine is what a kubelet reports as its own.
func machine() (config.Machine, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return config.Machine{}, fmt.Errorf("read the machine's memory: %w", err)
	}
	mib, err := totalMiB(string(text))
	return config.Machine{MilliCPU: int64(runtime.NumCPU()) * 1000, MiB: mib}, err
}

// totalMiB reads MemTotal of /proc/meminfo.
func totalMiB(meminfo string) (int64, error) {
	for _, line := range strings.Split(meminfo, "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("read the machine's memory: no MemTotal in /proc/meminfo")
}
