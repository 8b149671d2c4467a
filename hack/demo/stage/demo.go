// Package stage holds the steps of the demo: which programs it runs, in which order, and what it tells the
// user at the end. Everything that lasts is in the cluster or in a cache, so that each step finds what an
// earlier run has done; nothing here decides how a cluster, an image or a model works.
package stage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/hack/demo/phase"
	"github.com/ringfleet/ringfleet/hack/image/build"
)

// What the demo makes.
const (
	Release         = "ringfleet"
	SystemNamespace = "ringfleet-system"
	Namespace       = "default" // of the model
	Sample          = "config/samples/smollm2.yaml"
	Model           = "smollm2" // the object's name
	// Prompt is one that the demo model answers alike on every CPU: by the kernels of some it takes others for a riddle.
	Prompt = "Tell me the name of the capital of France."
)

// Demo is one run.
type Demo struct {
	Root  string // of the repository
	Out   io.Writer
	Clock clock.WithTicker
	HTTP  *http.Client

	env        []string // of every program, beside the environment
	helm       string   // path, once the tools are built
	kubeconfig string   // once the cluster is up
	images     []build.Result
}

// New makes a run for the repository at root. env is added to the environment of every program.
func New(root string, out io.Writer, env ...string) *Demo {
	return &Demo{Root: root, Out: out, Clock: clock.RealClock{}, HTTP: &http.Client{}, env: env}
}

// Up brings up everything and asks the model one question.
func (d *Demo) Up(ctx context.Context) error {
	var answer reached
	phases := append(d.Install(),
		phase.Phase{Name: "apply " + Sample, Run: d.apply, Look: d.kubectlHint("get events")},
		phase.Phase{Name: "wait until the model is in the ring", Run: d.wait, Look: d.kubectlHint("describe inferencemodel "+Model) + ", kubectl logs -l app.kubernetes.io/component=worker"},
		phase.Phase{Name: "ask it: " + Prompt, Run: func(ctx context.Context, out io.Writer) (err error) { answer, err = d.ask(ctx, out); return err },
			Look: d.kubectlHint("logs -l app.kubernetes.io/component=router")},
	)
	if err := phase.Run(ctx, d.Clock, d.Out, phases); err != nil {
		return err
	}
	_, err := io.WriteString(d.Out, Next(d.bin(""), d.kubeconfig, answer.URL, answer.Model, answer.Forward))
	return err
}

// Install are the phases up to an installed chart without a model.
func (d *Demo) Install() []phase.Phase {
	return []phase.Phase{
		{Name: "build the tools", Run: d.tools, Look: "the compiler's lines above; go env GOPROXY"},
		{Name: "build the cluster's programs, or find them in the cache", Run: d.programs, Look: "the compiler's lines above; free disk space with df -h"},
		{Name: "start the cluster", Run: d.cluster, Look: "go run ./hack/cluster status"},
		{Name: "build the images", Run: d.build, Look: "the lines above; the registry settings of npm and pip"},
		{Name: "load the images into the nodes", Run: d.load, Look: "go run ./hack/cluster status"},
		{Name: "install the chart", Run: d.install, Look: d.kubectlHint("-n " + SystemNamespace + " get pods,events")},
	}
}

// Down removes the cluster.
func (d *Demo) Down(ctx context.Context) error {
	if err := d.goBuild(ctx, d.Out, "cluster", "./hack/cluster"); err != nil {
		return err
	}
	return d.run(ctx, d.Out, d.bin("cluster"), "down")
}

// With brings up a cluster with the installed chart, runs a command against it, and removes the cluster
// unless keep is set. The command finds KUBECONFIG set, and the repository's bin, with kubectl, in its PATH.
func (d *Demo) With(ctx context.Context, keep bool, command []string) error {
	return d.on(ctx, keep, []phase.Phase{{Name: "run " + command[0], Run: func(ctx context.Context, out io.Writer) error {
		return d.run(ctx, out, command[0], command[1:]...)
	}}})
}

// on brings up a cluster with the installed chart, runs phases, and removes the cluster unless keep is set.
func (d *Demo) on(ctx context.Context, keep bool, phases []phase.Phase) error {
	err := phase.Run(ctx, d.Clock, d.Out, append(d.Install(), phases...))
	if keep {
		return err
	}
	// The cluster goes even if the user has had enough.
	if down := d.Down(context.WithoutCancel(ctx)); down != nil && err == nil {
		err = down
	}
	return err
}

// bin is the path of a program of ours; bin("") is their folder.
func (d *Demo) bin(name string) string { return filepath.Join(d.Root, "bin", name) }

// kubectlHint is a command that a user may type.
func (d *Demo) kubectlHint(args string) string {
	return fmt.Sprintf("KUBECONFIG=$(go run ./hack/cluster kubeconfig) %s %s", d.bin("kubectl"), args)
}

// tools builds the programs that the demo and its user run on this machine. The flags are those of the images'
// programs, so that the packages they share are compiled once.
func (d *Demo) tools(ctx context.Context, out io.Writer) error {
	if err := os.MkdirAll(d.bin(""), 0o755); err != nil {
		return err
	}
	fmt.Fprintln(out, "      compiling cluster")
	if err := d.goBuild(ctx, out, "cluster", "./hack/cluster"); err != nil {
		return err
	}
	fmt.Fprintln(out, "      compiling kubectl-ringfleet")
	if err := d.goBuild(ctx, out, "kubectl-ringfleet", "-trimpath", "./cli"); err != nil {
		return err
	}
	fmt.Fprintln(out, "      compiling helm, or finding it in the cache")
	path, err := d.output(ctx, "go", "tool", "-n", "-modfile=hack/tools.mod", "helm")
	d.helm = strings.TrimSpace(string(path))
	return err
}

// goBuild builds a program into bin, without the C library.
func (d *Demo) goBuild(ctx context.Context, out io.Writer, name string, args ...string) error {
	return d.run(ctx, out, "env", append([]string{"CGO_ENABLED=0", "go", "build", "-buildvcs=false", "-o", d.bin(name)}, args...)...)
}
