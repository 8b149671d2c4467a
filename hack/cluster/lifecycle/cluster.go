// Package lifecycle brings a cluster up and down and changes it in between. It decides the order of things
// and what an interrupted predecessor's leavings mean; what members consist of is decided by package config,
// how one runs by package member.
package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/hack/cluster/config"
	"github.com/ringfleet/ringfleet/hack/cluster/kubeapi"
	"github.com/ringfleet/ringfleet/hack/cluster/member"
)

// Files of a cluster's state folder.
const (
	settingsFile   = "settings.json"
	kubeconfigFile = "kubeconfig"
	imagesDir      = "images"
	pkiDir         = "pki"
)

// Cluster is one cluster on this machine.
type Cluster struct {
	Settings config.Settings
	Out      io.Writer // progress, a line a step
	Clock    clock.WithTicker
}

// Kubeconfig is the file for the cluster's user.
func (c *Cluster) Kubeconfig() string { return c.file(kubeconfigFile) }

func (c *Cluster) file(parts ...string) string {
	return filepath.Join(append([]string{c.Settings.State}, parts...)...)
}

// say writes a line; a reader who has gone stops no command.
func (c *Cluster) say(format string, args ...any) { _, _ = fmt.Fprintf(c.Out, format+"\n", args...) }

// stored reads the settings that up wrote; ok is false when there is no cluster.
func (c *Cluster) stored() (s config.Settings, ok bool, err error) {
	text, err := os.ReadFile(c.file(settingsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, false, fmt.Errorf("read the cluster's settings: %w", err)
	}
	return s, true, nil
}

// Load takes over the settings of the cluster that exists; without one it is an error that says what to do.
func (c *Cluster) Load() error {
	s, ok, err := c.stored()
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("no cluster in %s; run up", c.Settings.State)
	}
	c.Settings = s
	return nil
}

// lock makes the state folder and holds it against other commands until unlock.
func (c *Cluster) lock(ctx context.Context) (unlock func(), err error) {
	tick := c.Clock.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	said := false
	for {
		if err := os.MkdirAll(c.Settings.State, 0o700); err != nil {
			return nil, fmt.Errorf("make the state folder: %w", err)
		}
		dir, err := os.Open(c.Settings.State)
		if err != nil {
			return nil, fmt.Errorf("open the state folder: %w", err)
		}
		err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && same(dir, c.Settings.State) {
			return func() { _ = dir.Close() }, nil
		}
		if err := dir.Close(); err != nil {
			return nil, err
		}
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock the state folder %s: %w", c.Settings.State, err)
		}
		if !said && err != nil {
			c.say("another command works on this cluster; waiting")
			said = true
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C():
		}
	}
}

// same says whether an open folder is still the one of that name: down may have removed it meanwhile.
func same(f *os.File, name string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Stat(name)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

func (c *Cluster) client() (*kubeapi.Client, error) {
	var pem [3][]byte
	for i, f := range []string{"ca.crt", "admin.crt", "admin.key"} {
		var err error
		if pem[i], err = os.ReadFile(c.file(pkiDir, f)); err != nil {
			return nil, fmt.Errorf("read the cluster's keys: %w", err)
		}
	}
	return kubeapi.New(c.Settings.Server(), pem[0], pem[1], pem[2])
}

// dirOf is a member's folder, after checking that there is such a member.
func (c *Cluster) dirOf(name string) (string, error) {
	if !c.Settings.IP(name).IsValid() {
		return "", fmt.Errorf("no member %q: there are %v", name, c.Settings.Members())
	}
	return member.Dir(c.Settings, name), nil
}

// write replaces a file at once; only its owner may read it.
func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
