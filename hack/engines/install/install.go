// Package install puts engines into the user's cache, each into a folder that names its version: a Python environment of
// its own, by the ordinary client of the Python registry. It decides when an installation is complete, says every ten
// seconds what it is at, and never touches an environment that is there. What is done with an engine is the caller's.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ringfleet/ringfleet/hack/image/apt"
	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/hack/image/progress"
)

// Get returns the folder of an engine, which it installs where that has not been done. A second process that wants the
// same waits for the first.
func Get(ctx context.Context, name string, out io.Writer) (string, error) {
	r, ok := recipes[name]
	if !ok {
		return "", fmt.Errorf("install %q: there are %s", name, strings.Join(Names(), ", "))
	}
	cache, err := fetch.New(out)
	if err != nil {
		return "", err
	}
	weights, err := cache.Get(ctx, fetch.Weights())
	if err != nil {
		return "", err
	}
	i := installer{out: out, gguf: filepath.Join(weights, fetch.WeightsFile), python: python}
	return i.get(ctx, r, cache.Root)
}

// Names are all that can be installed.
func Names() []string { return slices.Sorted(maps.Keys(recipes)) }

// installer runs recipes.
type installer struct {
	out    io.Writer
	gguf   string
	python func(ctx context.Context, out io.Writer, dir string) error // makes an environment in dir
}

func (i installer) get(ctx context.Context, r recipe, root string) (string, error) {
	dir := filepath.Join(root, r.key)
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	unlock, err := lock(filepath.Join(root, "."+r.key+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	ready := filepath.Join(dir, "ready")
	if _, err := os.Stat(ready); err == nil {
		return dir, nil
	}
	fmt.Fprintf(i.out, "installing %s into %s (%s)\n", r.title, dir, r.needs)
	start := time.Now()
	if err := i.fill(ctx, r, dir); err != nil {
		return "", fmt.Errorf("install %s: %w", r.title, err)
	}
	if err := os.WriteFile(ready, nil, 0o644); err != nil {
		return "", err
	}
	fmt.Fprintf(i.out, "%s is in %s, %.0f s\n", r.title, dir, time.Since(start).Seconds())
	return dir, nil
}

// fill starts from nothing: half an environment is of no use.
func (i installer) fill(ctx context.Context, r recipe, dir string) error {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	venv := filepath.Join(dir, "venv")
	if err := i.python(ctx, i.out, venv); err != nil {
		return err
	}
	fill := strings.NewReplacer("{dir}", dir, "{py}", filepath.Join(venv, "bin", "python"), "{gguf}", i.gguf)
	for n, s := range r.steps {
		fmt.Fprintf(i.out, "  %d of %d: %s\n", n+1, len(r.steps), s.say)
		if err := i.run(ctx, s, dir, fill); err != nil {
			return err
		}
	}
	return nil
}

func (i installer) run(ctx context.Context, s step, dir string, fill *strings.Replacer) error {
	args := make([]string, len(s.cmd))
	for n, a := range s.cmd {
		args[n] = fill.Replace(a)
	}
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir, c.Env = dir, append(os.Environ(), s.env...)
	stop := progress.Tell(func(passed time.Duration) {
		fmt.Fprintf(i.out, "  still at it: %s, %.0f s so far\n", s.say, passed.Seconds())
	})
	text, err := c.CombinedOutput()
	stop()
	if err != nil {
		return fmt.Errorf("%s: %w; its last lines:\n%s", s.say, err, apt.Tail(text, 20))
	}
	return nil
}

// python makes an environment, and installs from Debian the module that some machines lack for it.
func python(ctx context.Context, out io.Writer, dir string) error {
	try := func() ([]byte, error) { return exec.CommandContext(ctx, "python3", "-m", "venv", dir).CombinedOutput() }
	if _, err := try(); err == nil {
		return nil
	}
	if err := apt.Install(ctx, out, "engines get a Python environment each", "python3", "python3-venv"); err != nil {
		return err
	}
	if text, err := try(); err != nil {
		return fmt.Errorf("make a Python environment: %w; its last lines:\n%s", err, apt.Tail(text, 12))
	}
	return nil
}

// lock waits for the exclusive lock on file.
func lock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
