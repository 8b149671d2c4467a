package program

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnErrorIsPrintedAndIsAnExitCode(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		code    int
		printed string
	}{
		"all is well":           {nil, 0, ""},
		"somebody asked for it": {fmt.Errorf("parse: %w", flag.ErrHelp), 0, ""},
		"something is wrong":    {errors.New("no such file"), 1, "tool: no such file\n"},
	} {
		var to bytes.Buffer
		if got := code("tool", c.err, &to); got != c.code || to.String() != c.printed {
			t.Errorf("%s: %d, printed %q", name, got, to.String())
		}
	}
}

func TestAnInterruptAndSIGTERMEndTheContextAndNotTheProcess(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		got := Run("tool", func(ctx context.Context, _ []string, _ io.Writer) error {
			err := syscall.Kill(os.Getpid(), s)
			<-ctx.Done()
			return err
		})
		if got != 0 {
			t.Errorf("%s: %d", s, got)
		}
	}
}
