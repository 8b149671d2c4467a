//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/hack/cluster/archive"
)

// hangs is how long anything may take before it counts as hanging.
const hangs = 60 * time.Second

// tool is the built cluster tool and one cluster's settings.
type tool struct {
	t       *testing.T
	program string
	state   string
	env     []string
	kubectl string
}

// newTool builds the tool. The addresses are those of documentation for benchmarks (RFC 2544) and beside
// them, so that another cluster of this machine may run at the same time.
func newTool(t *testing.T, nodes string) *tool {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a cluster needs root")
	}
	c := &tool{t: t, program: filepath.Join(t.TempDir(), "cluster"), state: filepath.Join(t.TempDir(), "state")}
	c.env = append(os.Environ(), "CLUSTER=", "CLUSTER_NAME=rf-e2e", "CLUSTER_NODES="+nodes, "CLUSTER_STATE="+c.state,
		"CLUSTER_NET=198.18.7.0/24", "CLUSTER_PODNET=198.19.0.0/16", "CLUSTER_SVCNET=198.16.0.0/16")
	goBuild(t, c.program, "..")
	t.Cleanup(func() {
		if t.Failed() {
			c.keepLogs()
		}
		if _, err := c.try("down"); err != nil {
			t.Errorf("down at the end: %v", err)
		}
	})
	c.kubectl = filepath.Join(strings.TrimSpace(c.run("assets")), "kubectl")
	return c
}

func goBuild(t *testing.T, to, dir string) {
	t.Helper()
	c := exec.Command("go", "build", "-o", to, ".")
	c.Dir = dir
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, text)
	}
}

// keepLogs shows the end of every log, since the folder goes.
func (c *tool) keepLogs() {
	files, _ := filepath.Glob(c.state + "/members/*/var/log/*.log")
	inits, _ := filepath.Glob(c.state + "/members/*/init.log")
	for _, f := range append(inits, files...) {
		text, _ := os.ReadFile(f)
		c.t.Logf("=== %s\n%s", f, text[max(0, len(text)-2000):])
	}
}

func (c *tool) command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.program, args...)
	cmd.Env = c.env
	return cmd
}

func (c *tool) try(args ...string) (string, error) {
	cmd := c.command(args...)
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("cluster %s: %w\n%s", strings.Join(args, " "), err, progress.String())
	}
	return out.String(), nil
}

func (c *tool) run(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// kube runs kubectl with the cluster's kubeconfig.
func (c *tool) kube(stdin string, args ...string) string {
	c.t.Helper()
	cmd := exec.Command(c.kubectl, append([]string{"--kubeconfig=" + filepath.Join(c.state, "kubeconfig")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		c.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

// image writes an archive of one image with one file.
func image(t *testing.T, name, file string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	err = archive.Write(f, archive.Image{Name: name, Architecture: runtime.GOARCH, File: file, Content: content})
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func echoImage(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "echo")
	goBuild(t, program, "echo")
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	return image(t, "docker.io/ringfleet/echo:e2e", "/echo", content)
}

// eventually polls until what holds, for as long as it does not hang.
func eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s hangs: %v", what, err)
		case <-tick.C:
		}
	}
}

// get asks a URL from the host.
func get(url string) (string, error) {
	c := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, resp.Status, text)
	}
	return string(text), err
}

// answers asserts that url comes to answer want.
func answers(t *testing.T, url, want string) {
	t.Helper()
	eventually(t, url, func() error {
		got, err := get(url)
		if err == nil && got != want {
			err = fmt.Errorf("got %q, want %q", got, want)
		}
		return err
	})
}
