// Command kubectl-ringfleet is the kubectl plugin of Ringfleet: `kubectl ringfleet chat`, `status`, `check` and `plan`. It
// reads the cluster and talks to routers as any client would; it never changes an object.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ringfleet/ringfleet/cli/command"
)

// version is set by the build.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command.Root(command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, version).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ringfleet:", err)
		os.Exit(1)
	}
}
