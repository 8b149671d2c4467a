// Command cluster runs a real Kubernetes of several nodes on one Linux machine, each node in namespaces of
// its own, without Docker. docs/cluster.md says how.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ringfleet/ringfleet/hack/cluster/command"
	"github.com/ringfleet/ringfleet/hack/cluster/member"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == member.InitCommand {
		exit(member.Init(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root, err := command.New(os.Getenv, os.Stdout, os.Stderr)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
