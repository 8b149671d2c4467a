// Command demo brings up a cluster with a model that answers, and removes it. See package command.
package main

import (
	"context"
	"io"
	"os"

	"github.com/ringfleet/ringfleet/hack/demo/command"
	"github.com/ringfleet/ringfleet/hack/program"
)

func main() {
	os.Exit(program.Run("demo", func(ctx context.Context, _ []string, out io.Writer) error {
		return command.New(out).ExecuteContext(ctx)
	}))
}
