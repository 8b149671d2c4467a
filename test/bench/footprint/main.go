// Command footprint measures what Ringfleet takes: the sizes of its programs, the memory of its processes while nothing
// happens, and which packages they link. It needs KUBECONFIG, as `go run ./hack/demo bench` sets it, and root, as the
// cluster does. It writes bench/out/footprint.* with the packages beside them, and fails only when it can't measure.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ringfleet/ringfleet/hack/image/repo"
	"github.com/ringfleet/ringfleet/hack/program"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/cluster"
)

// namespace is made for the bench and removed in the end.
const namespace = "bench-footprint"

func main() { os.Exit(program.Run("footprint", run)) }

func run(ctx context.Context, _ []string, out io.Writer) error {
	root, err := repo.Root(".")
	if err != nil {
		return err
	}
	c, err := cluster.Connect()
	if err != nil {
		return err
	}
	dir := bench.Out(root)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	linked, err := linked(ctx, root, filepath.Join(dir, "footprint-packages.txt"))
	if err != nil {
		return err
	}
	sizes, err := sizes(ctx, c, root, out)
	if err != nil {
		return err
	}
	return bench.Write(dir, "footprint", "Footprint: programs, idle memory, packages", append(sizes, linked...))
}

// sizes brings up a model, and measures the programs and processes that then run.
func sizes(ctx context.Context, c *cluster.Cluster, root string, out io.Writer) (f []bench.Figure, err error) {
	cli, err := cliSize(ctx, root)
	if err != nil {
		return nil, err
	}
	if err := c.Namespace(ctx, namespace); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Remove(context.WithoutCancel(ctx), namespace)) }()
	m := cluster.Model(namespace, "idle")
	if err := c.API.Create(ctx, m); err != nil {
		return nil, fmt.Errorf("create model %s: %w", m.Name, err)
	}
	if err := c.UntilReady(ctx, m); err != nil {
		return nil, err
	}
	url, err := c.URL(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if err := warm(ctx, url, m.Name); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "the model has answered; nothing is asked for %s\n", settle)
	found, err := processes(ctx, c)
	if err != nil {
		return nil, err
	}
	idle, err := rest(ctx, found)
	if err != nil {
		return nil, err
	}
	return sizeFigures(idle, cli), nil
}
