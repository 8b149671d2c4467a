// Package command is the command line of the cluster tool: flags, environment, and which package does what.
// It decides nothing about a cluster.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/hack/cluster/build"
	"github.com/ringfleet/ringfleet/hack/cluster/config"
	"github.com/ringfleet/ringfleet/hack/cluster/kind"
	"github.com/ringfleet/ringfleet/hack/cluster/lifecycle"
)

// tool is what the commands share.
type tool struct {
	flags    config.Flags
	getenv   func(string) string
	out, err io.Writer
}

// New makes the root command. Results go to out, progress to errOut.
func New(getenv func(string) string, out, errOut io.Writer) (*cobra.Command, error) {
	t := &tool{getenv: getenv, out: out, err: errOut}
	root := &cobra.Command{
		Use:   "cluster",
		Short: "A real Kubernetes of several nodes on this machine",
		Long: "cluster runs a Kubernetes control plane and nodes, each in Linux namespaces of its own, from programs\n" +
			"that it builds from source and keeps in the user's cache. CLUSTER=kind uses kind and Docker instead\n" +
			"for up, down, load and kubeconfig. A flag's environment variable stands in brackets.",
		SilenceUsage: true, SilenceErrors: true,
	}
	if err := t.flags.Bind(root.PersistentFlags(), getenv); err != nil {
		return nil, err
	}
	root.SetOut(out)
	root.SetErr(errOut)
	root.AddCommand(t.up(), t.down(), t.status(), t.kubeconfig(), t.load(), t.build(), t.assets(), t.node(), t.exec())
	return root, nil
}

// engine is what both kinds of cluster can do.
type engine interface {
	Up(ctx context.Context, images []string) error
	Down(ctx context.Context) error
	LoadImages(ctx context.Context, archives []string) error
	// KubeconfigFile returns the path of the file for the cluster's user.
	KubeconfigFile(ctx context.Context) (string, error)
}

func (t *tool) engine() (engine, error) {
	switch kindOf := t.getenv("CLUSTER"); kindOf {
	case "":
		c, err := t.cluster()
		return native{tool: t, cluster: c}, err
	case "kind":
		home, err := stateHome(t.getenv)
		return kind.Cluster{Name: t.flags.Name, Workers: len(t.flags.Nodes),
			Kubeconfig: filepath.Join(home, "kind-"+t.flags.Name+".kubeconfig"), Out: t.err}, err
	default:
		return nil, fmt.Errorf("CLUSTER=%s: want kind, or nothing for the cluster from source", kindOf)
	}
}

// cluster is the cluster from source that the flags describe.
func (t *tool) cluster() (*lifecycle.Cluster, error) {
	if k := t.getenv("CLUSTER"); k != "" {
		return nil, fmt.Errorf("CLUSTER=%s has no such command; unset CLUSTER", k)
	}
	home, err := stateHome(t.getenv)
	if err != nil {
		return nil, err
	}
	s, err := t.flags.Settings(home)
	return &lifecycle.Cluster{Settings: s, Out: t.err, Clock: clock.RealClock{}}, err
}

// stateHome is $XDG_STATE_HOME or ~/.local/state, /ringfleet.
func stateHome(getenv func(string) string) (string, error) {
	if d := getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "ringfleet"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the home folder: %w; give --state", err)
	}
	return filepath.Join(home, ".local", "state", "ringfleet"), nil
}

func (t *tool) builder() (build.Builder, error) {
	wd, err := os.Getwd()
	if err != nil {
		return build.Builder{}, err
	}
	source, err := build.FindSource(wd)
	if err != nil {
		return build.Builder{}, err
	}
	cache, err := build.CacheDir()
	return build.Builder{Source: source, Cache: cache, Out: t.err, Clock: clock.RealClock{}}, err
}

// programs are all that a cluster runs from, built where they are missing.
func (t *tool) programs(ctx context.Context) (lifecycle.Programs, error) {
	var p lifecycle.Programs
	b, err := t.builder()
	if err != nil {
		return p, err
	}
	if p.Containerd, err = b.Ensure(ctx, build.Containerd()); err != nil {
		return p, err
	}
	if p.CoreDNS, err = b.Ensure(ctx, build.CoreDNS()); err != nil {
		return p, err
	}
	if p.Pause, err = b.EnsurePause(ctx); err != nil {
		return p, err
	}
	p.Kube, err = b.Ensure(ctx, build.Kube())
	return p, err
}

// native is a cluster from source as an engine.
type native struct {
	*tool
	cluster *lifecycle.Cluster
}

func (n native) Up(ctx context.Context, images []string) error {
	if err := asRoot(); err != nil {
		return err
	}
	if err := build.Packages(ctx, n.err); err != nil {
		return err
	}
	p, err := n.programs(ctx)
	if err != nil {
		return err
	}
	return n.cluster.Up(ctx, p, images)
}

func (n native) Down(ctx context.Context) error {
	if err := asRoot(); err != nil {
		return err
	}
	return n.cluster.Down(ctx)
}

func (n native) LoadImages(ctx context.Context, archives []string) error {
	if err := asRoot(); err != nil {
		return err
	}
	return n.cluster.LoadImages(ctx, archives)
}

func (n native) KubeconfigFile(context.Context) (string, error) {
	return n.cluster.Kubeconfig(), n.cluster.Load()
}

// asRoot: namespaces, mounts and routes need it. It also completes PATH, for a user's often lacks sbin.
func asRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("this command makes namespaces and routes: run it as root, with sudo -E")
	}
	path := filepath.SplitList(os.Getenv("PATH"))
	for _, d := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if !slices.Contains(path, d) {
			path = append(path, d)
		}
	}
	joined := ""
	for i, d := range path {
		if i > 0 {
			joined += string(os.PathListSeparator)
		}
		joined += d
	}
	return os.Setenv("PATH", joined)
}
