package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringfleet/ringfleet/hack/image/build"
	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/hack/image/repo"
)

// kind says whether the user wants kind and Docker instead of the cluster from source.
func kind() bool { return os.Getenv("CLUSTER") == "kind" }

// programs builds what the cluster is made of, and puts its kubectl beside our own programs.
func (d *Demo) programs(ctx context.Context, out io.Writer) error {
	if kind() {
		_, err := exec.LookPath("kubectl")
		if err != nil {
			return fmt.Errorf("CLUSTER=kind: %w; install kubectl", err)
		}
		return nil
	}
	if err := d.run(ctx, out, d.bin("cluster"), "build"); err != nil {
		return err
	}
	dir, err := d.output(ctx, d.bin("cluster"), "assets")
	if err != nil {
		return err
	}
	link := d.bin("kubectl")
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(filepath.Join(strings.TrimSpace(string(dir)), "kubectl"), link)
}

func (d *Demo) cluster(ctx context.Context, out io.Writer) error {
	if err := d.run(ctx, out, d.bin("cluster"), "up"); err != nil {
		return err
	}
	file, err := d.output(ctx, d.bin("cluster"), "kubeconfig")
	if err != nil {
		return err
	}
	d.kubeconfig = strings.TrimSpace(string(file))
	return nil
}

func (d *Demo) build(ctx context.Context, out io.Writer) error {
	version, err := repo.Version(d.Root)
	if err != nil {
		return err
	}
	lines := &indented{out: out}
	cache, err := fetch.New(lines)
	if err != nil {
		return err
	}
	b := &build.Builder{Root: d.Root, Version: version, Dir: d.bin("images"), Cache: cache, Out: lines}
	for _, t := range build.Targets() {
		r, err := b.Build(ctx, t)
		if err != nil {
			return err
		}
		d.images = append(d.images, r)
	}
	return nil
}

func (d *Demo) load(ctx context.Context, out io.Writer) error {
	args := []string{"load"}
	for _, i := range d.images {
		args = append(args, i.File)
	}
	return d.run(ctx, out, d.bin("cluster"), args...)
}

// loaded is an annotation of the system namespace: the digests of the images that its pods were started with.
const loaded = "demo.ringfleet.dev/images"

// install installs or upgrades the chart with its defaults. Our images keep their names from build to build,
// so pods of an older build are replaced here.
func (d *Demo) install(ctx context.Context, out io.Writer) error {
	before, err := d.digests(ctx)
	if err != nil {
		return err
	}
	if err := d.run(ctx, out, d.helm, "upgrade", "--install", Release, "charts/ringfleet", "--namespace", SystemNamespace,
		"--create-namespace", "--wait", "--timeout", "5m", "--hide-notes"); err != nil {
		return err
	}
	now := map[string]string{}
	for _, i := range d.images {
		now[i.Name] = i.Digest.String()
	}
	if err := d.replace(ctx, out, changed(before, now)); err != nil {
		return err
	}
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	_, err = d.kubectl(ctx, "annotate", "namespace", SystemNamespace, "--overwrite", loaded+"="+string(text))
	return err
}

// digests are those that an earlier run recorded; nil before the first.
func (d *Demo) digests(ctx context.Context) (map[string]string, error) {
	text, err := d.kubectl(ctx, "get", "namespace", SystemNamespace, "--ignore-not-found", "-o", "jsonpath={.metadata.annotations."+strings.ReplaceAll(loaded, ".", `\.`)+"}")
	if err != nil || len(text) == 0 {
		return nil, err
	}
	before := map[string]string{}
	if err := json.Unmarshal(text, &before); err != nil {
		return nil, fmt.Errorf("read annotation %s of namespace %s: %w; remove it", loaded, SystemNamespace, err)
	}
	return before, nil
}

// changed returns the components whose image was there before, with another digest; sorted.
func changed(before, now map[string]string) []string {
	var out []string
	for name, digest := range now {
		if was, ok := before[name]; ok && was != digest {
			component, _, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
			out = append(out, component)
		}
	}
	slices.Sort(out)
	return out
}

// replace restarts the pods of components whose image is another one now.
func (d *Demo) replace(ctx context.Context, out io.Writer, components []string) error {
	for _, c := range components {
		label := "app.kubernetes.io/component=" + c
		var steps [][]string
		switch c {
		case "manager":
			steps = [][]string{{"-n", SystemNamespace, "rollout", "restart", "deployment", "-l", label},
				{"-n", SystemNamespace, "rollout", "status", "deployment", "-l", label, "--timeout=2m"}}
		case "router":
			steps = [][]string{{"-n", Namespace, "rollout", "restart", "deployment", "-l", label}}
		case "worker":
			steps = [][]string{{"-n", Namespace, "delete", "pods", "-l", label, "--wait=false"}}
		default:
			continue // weights do not change under their name
		}
		fmt.Fprintf(out, "      the image of the %s is a new one: replacing its pods\n", c)
		for _, args := range steps {
			if _, err := d.kubectl(ctx, args...); err != nil && !strings.Contains(err.Error(), "no objects passed") {
				return err
			}
		}
	}
	return nil
}

func (d *Demo) kubectl(ctx context.Context, args ...string) ([]byte, error) {
	program := d.bin("kubectl")
	if kind() {
		program = "kubectl"
	}
	return d.output(ctx, program, args...)
}
