// Command coldstart measures how a worker comes to be: from the loss of the only worker of a model, deleted by force, to
// the first token that a client gets from its successor, with each step between. It needs KUBECONFIG, as
// `go run ./hack/demo bench` sets it, and writes bench/out/cold-start.*. It fails only when it can't measure.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/ringfleet/ringfleet/hack/image/repo"
	"github.com/ringfleet/ringfleet/hack/program"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/cluster"
)

// repetitions is how often the worker is deleted.
const repetitions = 5

func main() { os.Exit(program.Run("coldstart", run)) }

func run(ctx context.Context, _ []string, out io.Writer) error {
	root, err := repo.Root(".")
	if err != nil {
		return err
	}
	c, err := cluster.Connect()
	if err != nil {
		return err
	}
	figures, err := measure(ctx, c, out)
	if err != nil {
		return err
	}
	return bench.Write(bench.Out(root), "cold-start", fmt.Sprintf("A worker's cold start, medians of %d", repetitions), figures)
}
