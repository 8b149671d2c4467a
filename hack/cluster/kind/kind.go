// Package kind gives the cluster tool's verbs to kind and Docker. It runs their programs and knows nothing
// of what they do.
package kind

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Cluster is a cluster of kind.
type Cluster struct {
	Name       string
	Workers    int       // nodes beside the control plane
	Kubeconfig string    // file that Up writes and Down removes
	Out        io.Writer // progress
}

// config is kind's configuration: the nodes.
func (c Cluster) config() string {
	return "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes:\n- role: control-plane\n" + strings.Repeat("- role: worker\n", c.Workers)
}

// Up makes the cluster when it is not there, and loads images.
func (c Cluster) Up(ctx context.Context, images []string) error {
	all, err := exec.CommandContext(ctx, "kind", "get", "clusters").Output()
	if err != nil {
		return fmt.Errorf("kind get clusters: %w; install kind and Docker, or unset CLUSTER", err)
	}
	if err := os.MkdirAll(filepath.Dir(c.Kubeconfig), 0o700); err != nil {
		return err
	}
	args := []string{"export", "kubeconfig", "--name", c.Name, "--kubeconfig", c.Kubeconfig}
	if !slices.Contains(strings.Fields(string(all)), c.Name) {
		args = []string{"create", "cluster", "--name", c.Name, "--kubeconfig", c.Kubeconfig, "--config", "-", "--wait", "5m"}
	}
	if err := c.kind(ctx, args...); err != nil {
		return err
	}
	return c.LoadImages(ctx, images)
}

// Down removes the cluster.
func (c Cluster) Down(ctx context.Context) error {
	if err := c.kind(ctx, "delete", "cluster", "--name", c.Name, "--kubeconfig", c.Kubeconfig); err != nil {
		return err
	}
	return os.RemoveAll(c.Kubeconfig)
}

// LoadImages loads image archives into every node.
func (c Cluster) LoadImages(ctx context.Context, archives []string) error {
	for _, a := range archives {
		if err := c.kind(ctx, "load", "image-archive", a, "--name", c.Name); err != nil {
			return err
		}
	}
	return nil
}

// KubeconfigFile returns the file that Up has written.
func (c Cluster) KubeconfigFile(context.Context) (string, error) {
	if _, err := os.Stat(c.Kubeconfig); err != nil {
		return "", fmt.Errorf("find the kubeconfig of kind cluster %s: %w; run up", c.Name, err)
	}
	return c.Kubeconfig, nil
}

func (c Cluster) kind(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "kind", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.config()), c.Out, c.Out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kind %s: %w", strings.Join(args[:2], " "), err)
	}
	return nil
}
