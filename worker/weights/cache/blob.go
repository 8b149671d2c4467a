package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Key is what a file is called on its way: by its digest if that is known before, else by anything that identifies it.
func Key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = h.Write([]byte(p))
		_, _ = h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Blob returns the path of the blob with a SHA-256 in hexadecimal; size is its size in bytes, or -1 if that is not known. ok
// is false where there is none. A blob of another size is removed.
func (c *Cache) Blob(sum string, size int64) (path string, ok bool) {
	path = c.path(blobs, sum)
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return path, false
	}
	if size >= 0 && info.Size() != size {
		_ = os.Remove(path)
		return path, false
	}
	return path, true
}

// Use marks blobs as used by this process until Close, whether they are there or not, and as used just now.
func (c *Cache) Use(sums ...string) error {
	return c.exclusive(func() error {
		now := c.o.Clock.Now()
		for _, s := range sums {
			_ = os.Chtimes(c.path(blobs, s), now, now) // of a foreign owner's file: then it goes earlier
		}
		return c.owner.use(sums)
	})
}

// Commit makes p the blob with a SHA-256, which its content has, and marks it as used. It ends p; after an error Close does.
func (c *Cache) Commit(p *Partial, sum string) (path string, err error) {
	path = c.path(blobs, sum)
	return path, c.exclusive(func() error {
		if err := c.owner.use([]string{sum}); err != nil {
			return err
		}
		return p.commit(path)
	})
}

// Hold marks the blobs that path leads to as used by this process until Close: path is what an earlier Ensure returned, in
// this process or another, or a link to it. It does nothing for a path outside the cache.
func (c *Cache) Hold(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return c.fault("find", path, err)
	}
	root, err := filepath.EvalSymlinks(c.dir)
	if err != nil {
		return c.fault("find", c.dir, err)
	}
	var sums []string
	err = filepath.WalkDir(real, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target, err := filepath.EvalSymlinks(p)
		if err != nil {
			return err
		}
		if rel, err := filepath.Rel(filepath.Join(root, blobs), target); err == nil && !strings.Contains(rel, "/") && rel != "." && rel != ".." {
			sums = append(sums, rel)
		}
		return nil
	})
	if err != nil {
		return c.fault("find", path, err)
	}
	if len(sums) == 0 {
		return nil
	}
	return c.Use(sums...)
}

// Fact is what is known of a file or of a request, by a key.
type Fact struct {
	// SHA256 is what a source's file turned out to have.
	SHA256 string `json:"sha256,omitempty"`
	// At is when that was found.
	At time.Time `json:"at,omitzero"`
	// Files are what a request led to, and Revision the source's name of that.
	Files    []Link `json:"files,omitempty"`
	Revision string `json:"revision,omitempty"`
	// Single: the model is its one file, not the folder.
	Single bool `json:"single,omitempty"`
}

// Learn writes down a fact.
func (c *Cache) Learn(key string, f Fact) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return c.replace(c.path(known, key), b)
}

// Known returns the fact of key.
func (c *Cache) Known(key string) (f Fact, ok bool) {
	b, err := os.ReadFile(c.path(known, key))
	if err != nil || json.Unmarshal(b, &f) != nil {
		return Fact{}, false
	}
	now := c.o.Clock.Now()
	_ = os.Chtimes(c.path(known, key), now, now) // facts that nobody asks for go
	return f, true
}
