// Package cache is a folder of weights that any number of workers and models share: on one node, or over nodes on a shared
// volume. Files lie in it under their SHA-256, so models that share a file share the copy. It decides who fetches a file
// while others wait, what is in use, what goes when room is needed, and what a process that was killed left behind is worth.
// It fetches nothing and looks into no file; package fetch does.
//
//	CACHE/version        the layout
//	CACHE/blobs/HEX      whole, checked files by SHA-256, read-only
//	CACHE/partial/KEY    files on their way, and KEY.json with what of them is there
//	CACHE/locks/KEY      who fetches
//	CACHE/refs/ID        who uses which blobs
//	CACHE/models/ID      folders of links to blobs, as engines want them
//	CACHE/known/ID       what sources' files turned out to be: a SHA-256, a rejection, a model
package cache

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// layout is what the file version holds.
const layout = "ringfleet weights 1\n"

// The folders.
const (
	blobs    = "blobs"
	partials = "partial"
	locks    = "locks"
	refs     = "refs"
	models   = "models"
	known    = "known"
)

// Options are the settings of a cache.
type Options struct {
	Clock clock.WithTicker
	// MaxBytes bounds what the cache holds, files on their way included; 0: only the disk bounds it.
	MaxBytes int64
	// PieceBytes is the unit in which the cache remembers what of a file is there; 0: 4 MiB.
	PieceBytes int64
	// Reserve gives a new file its size; nil: with blocks for it, where the file system can.
	Reserve func(*os.File, int64) error
	// Boot identifies the running kernel: locks are coherent between processes with equal ones. Empty: as /proc has it.
	Boot string
}

// Cache is an open cache folder. Its methods may be called from any goroutine.
type Cache struct {
	dir   string
	o     Options
	host  string
	owner *owner

	mu sync.Mutex // serialises this process's changes of what is there; Lock("cache") those of all
}

// UnwritableError is a cache folder that can't be used.
type UnwritableError struct{ Says string }

func (e *UnwritableError) Error() string { return e.Says }

// NoSpaceError is a file that there is no room for.
type NoSpaceError struct{ Says string }

func (e *NoSpaceError) Error() string { return e.Says }

// Open opens the cache in dir, which it makes if it is not there, and tries whether it can write. The error is an
// *UnwritableError or a *NoSpaceError.
func Open(dir string, o Options) (*Cache, error) {
	if o.PieceBytes == 0 {
		o.PieceBytes = 4 << 20
	}
	if o.Reserve == nil {
		o.Reserve = reserve
	}
	if o.Boot == "" {
		b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return nil, &UnwritableError{Says: fmt.Sprintf("the kernel's boot id can't be read: %v", err)}
		}
		o.Boot = strings.TrimSpace(string(b))
	}
	host, _ := os.Hostname() // for people only
	c := &Cache{dir: dir, o: o, host: host}
	for _, d := range []string{"", blobs, partials, locks, refs, models, known} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, c.fault("make the folder", filepath.Join(dir, d), err)
		}
	}
	err := c.start()
	var full *NoSpaceError
	if errors.As(err, &full) && c.Room(1) == nil { // what fills the disk may be ours
		err = c.start()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// start makes the first writes, which tell whether one can.
func (c *Cache) start() (err error) {
	if err := c.claim(); err != nil {
		return err
	}
	if c.owner, err = c.newOwner(); err != nil {
		return err
	}
	if err := c.sweep(); err != nil {
		return errors.Join(err, c.Close())
	}
	return nil
}

// Close gives up what this process uses: its files may go when room is needed. A process that ends without Close keeps
// them for some minutes, so that an init container can hand over to the next container.
func (c *Cache) Close() error { return c.owner.close() }

// Dir returns the folder.
func (c *Cache) Dir() string { return c.dir }

// claim checks the layout, or writes it into a new folder.
func (c *Cache) claim() error {
	path := c.path("version")
	b, err := os.ReadFile(path)
	if err == nil && string(b) != layout {
		return &UnwritableError{Says: fmt.Sprintf("the folder %s holds another layout than %q: it is no cache of this version; empty it or name another",
			c.dir, strings.TrimSpace(layout))}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return c.replace(path, []byte(layout))
	}
	if err != nil {
		return c.fault("read", path, err)
	}
	return nil
}

func (c *Cache) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

// replace writes a small file whole or not at all.
func (c *Cache) replace(path string, b []byte) error {
	id, err := randomID()
	if err != nil {
		return err
	}
	tmp := c.path(partials, "tmp-"+id)
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		_ = os.Remove(tmp)
		return c.fault("write", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		_ = os.Remove(tmp)
		return c.fault("write", path, err)
	}
	return nil
}

// fault makes of a file system's error what a user can act on.
func (c *Cache) fault(verb, path string, err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		err = p.Err
	case errors.As(err, &l):
		err = l.Err
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		free, _ := c.free() // 0 says the same
		return &NoSpaceError{Says: fmt.Sprintf("the cache %s is full: %s %s: %v; %s are free", c.dir, verb, c.inside(path), err, Size(free))}
	}
	return &UnwritableError{Says: fmt.Sprintf("the cache %s can't be used by user %d: %s %s: %v", c.dir, os.Getuid(), verb, c.inside(path), err)}
}

func (c *Cache) inside(path string) string {
	if rel, err := filepath.Rel(c.dir, path); err == nil && rel != "." {
		return rel
	}
	return path
}

// free returns how many bytes this process may write to the disk.
func (c *Cache) free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(c.dir, &st); err != nil {
		return 0, c.fault("look at the disk of", c.dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// allocated returns the bytes that a file takes on the disk.
func allocated(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}

func randomID() (string, error) {
	b := make([]byte, 12)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("cache: make an id: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// Size writes bytes as people read them.
func Size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/unit, 0
	for v >= unit && i < 4 {
		v, i = v/unit, i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[i])
}

// wait waits d, or until done.
func (c *Cache) wait(done <-chan struct{}, d time.Duration) bool {
	t := c.o.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-done:
		return false
	}
}
