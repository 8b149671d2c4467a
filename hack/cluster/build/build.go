package build

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// every is how often a running build says how far it is.
const every = 15 * time.Second

// Builder builds components into a cache.
type Builder struct {
	Source string // hack/cluster of the repository
	Cache  string // folder of all components
	Out    io.Writer
	Clock  clock.WithTicker
}

// CacheDir is $XDG_CACHE_HOME or ~/.cache, /ringfleet.
func CacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache folder: %w; set XDG_CACHE_HOME", err)
	}
	return filepath.Join(base, "ringfleet"), nil
}

// FindSource looks from dir upwards for the repository's hack/cluster.
func FindSource(dir string) (string, error) {
	for d := dir; ; d = filepath.Dir(d) {
		candidate := filepath.Join(d, "hack", "cluster")
		if _, err := os.Stat(filepath.Join(candidate, "kube", "go.mod")); err == nil {
			return candidate, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("find hack/cluster/kube/go.mod in %s or above: not there; run inside the repository", dir)
		}
	}
}

// Ensure returns the folder of a component's binaries, and builds them when they are not there.
func (b Builder) Ensure(ctx context.Context, c Component) (string, error) {
	dir := filepath.Join(b.Source, c.Dir)
	s, err := readSource(dir, c)
	if err != nil {
		return "", err
	}
	text, err := goTool(ctx, dir, "env", "GOVERSION", "GOOS", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for its version: %w", err)
	}
	env := strings.Fields(string(text))
	if len(env) != 3 {
		return "", fmt.Errorf("ask go for its version: got %q", text)
	}
	s.goVersion, s.platform = env[0], env[1]+"/"+env[2]
	target := filepath.Join(b.Cache, folder(c, s))
	if exists(target) {
		return target, nil
	}
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := b.lock(ctx, c.Name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(target) { // another builder was here
		return target, nil
	}
	if err := b.build(ctx, c, s, dir, target); err != nil {
		return "", fmt.Errorf("build %s: %w", c.Name, err)
	}
	return target, nil
}

// label names a component to a reader.
func label(c Component, s source) string { return strings.TrimSpace(c.Name + " " + s.version) }

func exists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// lock waits for the lock of a component; the kernel gives it back when its holder ends, however it ends.
func (b Builder) lock(ctx context.Context, name string) (func(), error) {
	f, err := os.OpenFile(filepath.Join(b.Cache, "."+name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the build lock: %w", err)
	}
	began, said := b.Clock.Now(), b.Clock.Now()
	tick := b.Clock.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("take the build lock %s: %w", f.Name(), errors.Join(err, f.Close()))
		}
		if now := b.Clock.Now(); now.Sub(said) >= every || said.Equal(began) {
			said = now.Add(time.Millisecond)
			b.say("%s: another build runs; waiting since %s", name, now.Sub(began).Round(time.Second))
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-tick.C():
		}
	}
}

// build builds into a folder beside the target and renames it, so that a target is always complete.
func (b Builder) build(ctx context.Context, c Component, s source, dir, target string) error {
	left, err := filepath.Glob(filepath.Join(b.Cache, "."+c.Name+"-build-*"))
	if err != nil {
		return err
	}
	for _, old := range left { // of interrupted builders: the lock is ours
		if err := os.RemoveAll(old); err != nil {
			return err
		}
	}
	tmp, err := os.MkdirTemp(b.Cache, "."+c.Name+"-build-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a later build removes what stays
	began := b.Clock.Now()
	b.say("%s: downloading modules and counting packages", label(c, s))
	packages, err := b.watch(ctx, c.Name+": modules downloaded", 0, goTool(ctx, dir, append([]string{"list", "-deps"}, c.Packages...)...))
	if err != nil {
		return err
	}
	total := bytes.Count(packages, []byte("\n"))
	b.say("%s: compiling at most %d packages", label(c, s), total)
	args := append([]string{"build", "-v", "-trimpath", "-ldflags", linkerFlags(c.LinkerFlags, s.version), "-o", tmp + "/"}, c.Packages...)
	if _, err := b.watch(ctx, c.Name+": packages compiled", total, goTool(ctx, dir, args...)); err != nil {
		return err
	}
	for _, name := range c.Binaries {
		if !exists(filepath.Join(tmp, name)) {
			return fmt.Errorf("go build made no %s", name)
		}
	}
	for _, name := range c.Links {
		if err := os.Symlink(c.Binaries[0], filepath.Join(tmp, name)); err != nil {
			return err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.Rename(tmp, target); err != nil {
		return err
	}
	b.say("%s: done in %s, in %s", label(c, s), b.Clock.Since(began).Round(time.Second), target)
	return nil
}

// watch runs a go command, counts the lines of its messages and says every so often how far it is; it
// returns the command's output.
func (b Builder) watch(ctx context.Context, what string, total int, c *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	c.Stdout = &out
	messages, err := c.StderrPipe()
	if err != nil {
		return nil, err
	}
	began := b.Clock.Now()
	if err := c.Start(); err != nil {
		return nil, err
	}
	var count atomic.Int64
	last := make(chan []string, 1)
	go func() { last <- tail(messages, &count) }()
	tick := b.Clock.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case lines := <-last:
			if err := c.Wait(); err != nil {
				return nil, fmt.Errorf("%s: %w:\n%s", strings.Join(c.Args[:2], " "), errors.Join(err, context.Cause(ctx)), strings.Join(lines, "\n"))
			}
			return out.Bytes(), nil
		case <-tick.C():
			b.say("%s: %s, %s", what, progress(count.Load(), total), b.Clock.Since(began).Round(time.Second))
		}
	}
}

// progress says how many of how many; without a total only how many.
func progress(done int64, total int) string {
	if total == 0 {
		return fmt.Sprint(done)
	}
	return fmt.Sprintf("%d of at most %d", done, total)
}

// tail reads lines to the end, counts them and keeps the last ones.
func tail(r io.Reader, count *atomic.Int64) []string {
	const keep = 20
	var lines []string
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		count.Add(1)
		if lines = append(lines, sc.Text()); len(lines) > keep {
			lines = lines[1:]
		}
	}
	return lines
}

// goTool runs go in a module's folder, away from what the user's environment may say about other builds.
func goTool(ctx context.Context, dir string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off", "GOOS=linux")
	return c
}

// say writes a line of progress; a reader who has gone does not stop a build.
func (b Builder) say(format string, args ...any) { _, _ = fmt.Fprintf(b.Out, format+"\n", args...) }
