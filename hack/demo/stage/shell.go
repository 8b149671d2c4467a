package stage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// grace is how long a program may take to end itself once it is told to.
const grace = 20 * time.Second

func (d *Demo) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.Dir = d.Root
	c.Env = append(os.Environ(), d.env...)
	c.Env = append(c.Env, "PATH="+d.bin("")+string(os.PathListSeparator)+os.Getenv("PATH"))
	if d.kubeconfig != "" {
		c.Env = append(c.Env, "KUBECONFIG="+d.kubeconfig)
	}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = grace
	return c
}

// run runs a program whose lines the user sees, indented.
func (d *Demo) run(ctx context.Context, out io.Writer, program string, args ...string) error {
	c := d.command(ctx, program, args...)
	w := &indented{out: out}
	c.Stdout, c.Stderr = w, w
	err := c.Run()
	w.end()
	if err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(program), strings.Join(args, " "), err)
	}
	return nil
}

// output runs a program and returns what it prints to its standard output.
func (d *Demo) output(ctx context.Context, program string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	c := d.command(ctx, program, args...)
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

// indented passes whole lines on, each behind six spaces.
type indented struct {
	out  io.Writer
	rest []byte
}

// Write implements io.Writer.
func (w *indented) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		line, rest, whole := bytes.Cut(w.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		if _, err := fmt.Fprintf(w.out, "      %s\n", line); err != nil {
			return 0, err
		}
		w.rest = rest
	}
}

// end writes a last line that has no end.
func (w *indented) end() {
	if len(w.rest) > 0 {
		fmt.Fprintf(w.out, "      %s\n", w.rest)
		w.rest = nil
	}
}
