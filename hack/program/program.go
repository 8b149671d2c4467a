// Package program runs what a command of the tree does until it is done or somebody ends it, and makes of its error an exit
// code. Flags and output are the command's own; only its main ends the process.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Run does what a command of that name does with its arguments, in a context that an interrupt or SIGTERM ends, and returns
// its exit code: 0, or 1 where there is an error, which is printed. That somebody asked for help is none.
func Run(name string, do func(ctx context.Context, args []string, out io.Writer) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := do(ctx, os.Args[1:], os.Stdout)
	stop()
	return code(name, err, os.Stderr)
}

func code(name string, err error, to io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(to, "%s: %v\n", name, err)
	return 1
}
