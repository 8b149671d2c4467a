package target

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

// Settings say how a target is run.
type Settings struct {
	// Root is the folder of the tree.
	Root string
	// Time is what `go test -fuzztime` takes: a duration, or a number of executions such as 1000x.
	Time string
	// Parallel is how many processes try inputs at once.
	Parallel int
}

// Result is what a run of a target did.
type Result struct {
	// Executions is how many inputs were tried, New how many of them reached what no input had reached before.
	Executions, New int
	// Found is the file that holds the input which broke the target, relative to the root; empty where none did.
	Found string
	// Output is all that go test said.
	Output string
}

// shorten is how often Go's fuzzer may try to make an input shorter. Its own minute for each that reaches something new would
// be all the time there is, above all where servers run beside the target and reach new things by themselves.
const shorten = "100x"

// mostOutput bounds what is kept of what go test says.
const mostOutput = 1 << 20

// Run tries inputs on t. The error says that the target broke, or that it could not be run; what was read until then is in
// the result.
func Run(ctx context.Context, s Settings, t Target) (Result, error) {
	c := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.Name+"$", "-fuzztime", s.Time,
		"-fuzzminimizetime", shorten, "-parallel", strconv.Itoa(s.Parallel), "./"+t.Dir)
	c.Dir = s.Root
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // so that the fuzzer ends its own processes
	c.WaitDelay = 10 * time.Second
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	var said tail
	c.Stdout, c.Stderr = &said, &said
	err := c.Run()
	r := read(t, said.String())
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case r.Found != "":
		return r, fmt.Errorf("%s breaks; the input is in %s", t.Name, r.Found)
	case err != nil:
		return r, fmt.Errorf("%s in %s: %w", t.Name, t.Dir, err)
	}
	return r, nil
}

var (
	progress = regexp.MustCompile(`fuzz: elapsed: \S+, execs: (\d+) \(\d+/sec\), new interesting: (\d+)`)
	written  = regexp.MustCompile(`Failing input written to (\S+)`)
	// seed is how a file of the corpus that breaks the target is named.
	seed = regexp.MustCompile(`(?m)^\s*(?:--- FAIL: |failure while testing seed corpus entry: )(Fuzz\w+/\S+)`)
)

// read takes the figures out of what go test said of t.
func read(t Target, output string) Result {
	r := Result{Output: output}
	if all := progress.FindAllStringSubmatch(output, -1); all != nil {
		last := all[len(all)-1]
		r.Executions, _ = strconv.Atoi(last[1]) // digits, by the pattern
		r.New, _ = strconv.Atoi(last[2])
	}
	if m := written.FindStringSubmatch(output); m != nil {
		r.Found = path.Join(t.Dir, m[1])
	} else if m := seed.FindStringSubmatch(output); m != nil {
		r.Found = path.Join(t.Dir, "testdata/fuzz", m[1])
	}
	return r
}

// tail keeps the last mostOutput bytes of what is written.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n, err := t.Buffer.Write(p)
	if over := t.Len() - mostOutput; over > 0 {
		t.Next(over)
	}
	return n, err
}
