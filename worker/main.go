// Command worker serves one model to the routers of its namespace. Its settings are in package agent.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ringfleet/ringfleet/worker/agent"
)

// version is set by the build.
var version = "dev"

func main() {
	o := agent.Options{Version: version}
	o.Bind(flag.CommandLine)
	flag.Parse()
	o.ShareProcessors()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := agent.Run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}
