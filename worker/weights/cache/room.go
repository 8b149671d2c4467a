package cache

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// slack is what is left free on the disk for journals and records.
const slack = 1 << 20

// Ages of what is swept away.
const (
	oldPartial = 7 * 24 * time.Hour
	oldFact    = 90 * 24 * time.Hour
	oldTmp     = time.Hour
)

// item is something that may go when room is needed.
type item struct {
	path  string
	key   string // of a file on its way
	bytes int64
	used  time.Time
}

// content is what the cache holds.
type content struct {
	items  []item // oldest use first; those that are used by somebody are left out
	bytes  int64  // in all
	inUse  int64
	owners int
}

// Room makes room for need more bytes, by removing what nobody uses, the longest unused first: blobs, and files on their way
// that nobody fetches, except those of keep. The error is a *NoSpaceError with the numbers, in which case nothing was removed,
// or an *UnwritableError.
func (c *Cache) Room(need int64, keep ...string) error {
	if need <= 0 {
		return nil
	}
	return c.exclusive(func() error {
		h, err := c.content(keep)
		if err != nil {
			return err
		}
		free, err := c.free()
		if err != nil {
			return err
		}
		short := need + slack - free
		if c.o.MaxBytes > 0 {
			short = max(short, h.bytes+need-c.o.MaxBytes)
		}
		var give int64
		for _, i := range h.items {
			give += i.bytes
		}
		if short > give {
			return c.noRoom(need, free, give, h)
		}
		for _, i := range h.items {
			if short <= 0 {
				break
			}
			if c.evict(i) {
				short -= i.bytes
			}
		}
		c.prune()
		return nil
	})
}

func (c *Cache) noRoom(need, free, give int64, h content) error {
	says := fmt.Sprintf("%s are needed in the cache %s, and %s to work with; %s of the disk are free and %s of %s cached may go, the rest is used by %d processes",
		Size(need), c.dir, Size(slack), Size(free), Size(give), Size(h.bytes), h.owners)
	if c.o.MaxBytes > 0 {
		says += fmt.Sprintf("; the cache may hold %s", Size(c.o.MaxBytes))
	}
	return &NoSpaceError{Says: says}
}

// content looks at what there is.
func (c *Cache) content(keep []string) (h content, err error) {
	used, owners, err := c.inUse()
	if err != nil {
		return h, err
	}
	h.owners = owners
	for _, folder := range []string{blobs, partials} {
		entries, err := os.ReadDir(c.path(folder))
		if err != nil {
			return h, c.fault("read", c.path(folder), err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				continue // gone meanwhile
			}
			i := item{path: c.path(folder, e.Name()), bytes: allocated(info), used: info.ModTime()}
			h.bytes += i.bytes
			switch {
			case folder == blobs && used[e.Name()]:
				h.inUse += i.bytes
				continue
			case folder == partials && (strings.HasSuffix(e.Name(), ".json") || strings.HasPrefix(e.Name(), "tmp-")):
				continue
			case folder == partials:
				i.key = e.Name()
				if slices.Contains(keep, i.key) || c.fetching(i.key) {
					h.inUse += i.bytes
					continue
				}
			}
			h.items = append(h.items, i)
		}
	}
	slices.SortFunc(h.items, func(a, b item) int { return a.used.Compare(b.used) })
	return h, nil
}

// fetching reports whether anybody has the lock of key, on any node.
func (c *Cache) fetching(key string) bool {
	f, err := c.flock(c.path(locks, key))
	if err != nil || f == nil {
		return true
	}
	defer f.Close()
	info, err := f.Stat()
	return err != nil || info.Size() > 0 && c.o.Clock.Since(info.ModTime()) < stale
}

// evict removes an item, unless somebody has begun to fetch it.
func (c *Cache) evict(i item) bool {
	if i.key == "" {
		return os.Remove(i.path) == nil
	}
	f, err := c.flock(c.path(locks, i.key))
	if err != nil || f == nil {
		return false
	}
	defer f.Close()
	c.Discard(i.key)
	return true
}

// prune removes folders of models whose blobs have gone.
func (c *Cache) prune() {
	entries, err := os.ReadDir(c.path(models))
	if err != nil {
		return // the next one tells
	}
	for _, e := range entries {
		if dir := c.path(models, e.Name()); !strings.HasPrefix(e.Name(), "tmp-") && !whole(dir) {
			_ = os.RemoveAll(dir)
		}
	}
}

// sweep removes what nobody will come back for: files on their way that are a week old, temporary ones, locks and facts that
// nobody has asked for since.
func (c *Cache) sweep() error {
	return c.exclusive(func() error {
		for _, s := range []struct {
			folder string
			age    time.Duration
			temp   bool
		}{{partials, oldPartial, false}, {partials, oldTmp, true}, {models, oldTmp, true}, {known, oldFact, false}, {locks, oldPartial, false}} {
			entries, err := os.ReadDir(c.path(s.folder))
			if err != nil {
				return c.fault("read", c.path(s.folder), err)
			}
			for _, e := range entries {
				info, err := e.Info()
				if err != nil || strings.HasPrefix(e.Name(), "tmp-") != s.temp || c.o.Clock.Since(info.ModTime()) < s.age {
					continue
				}
				c.sweepOne(s.folder, e.Name())
			}
		}
		return nil
	})
}

func (c *Cache) sweepOne(folder, name string) {
	path := filepath.Join(c.path(folder), name)
	switch {
	case folder == partials && !strings.HasPrefix(name, "tmp-"):
		c.evict(item{path: path, key: strings.TrimSuffix(name, ".json")})
	case folder == locks && name != "cache":
		if f, err := c.flock(path); err == nil && f != nil {
			_ = os.Remove(path)
			_ = f.Close()
		}
	case folder != locks:
		_ = os.RemoveAll(path)
	}
}
