// Command image builds the container images of this repository without a container engine, and fetches what
// they hold besides our own programs. See package command for its flags.
package main

import (
	"context"
	"io"
	"os"

	"github.com/ringfleet/ringfleet/hack/image/command"
	"github.com/ringfleet/ringfleet/hack/program"
)

func main() {
	os.Exit(program.Run("image", func(ctx context.Context, _ []string, out io.Writer) error {
		return command.New(out, os.Stderr).ExecuteContext(ctx)
	}))
}
