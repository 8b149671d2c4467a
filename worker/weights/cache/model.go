package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Link is a file of a model: a name with slashes, and the blob that it leads to.
type Link struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// Model returns a folder with the files of a model, which are links to blobs. Equal files give the same folder, which never
// changes. The error is an *UnwritableError or a *NoSpaceError.
func (c *Cache) Model(files []Link) (string, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b Link) int { return strings.Compare(a.Name, b.Name) })
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%s\x00%s\n", f.Name, f.SHA256)
	}
	dir := c.path(models, hex.EncodeToString(h.Sum(nil))[:32])
	return dir, c.exclusive(func() error {
		if whole(dir) {
			return nil
		}
		id, err := randomID()
		if err != nil {
			return err
		}
		tmp := c.path(models, "tmp-"+id)
		if err := c.link(tmp, files); err != nil {
			_ = os.RemoveAll(tmp)
			return err
		}
		_ = os.RemoveAll(dir) // of links that lead nowhere
		if err := os.Rename(tmp, dir); err != nil {
			_ = os.RemoveAll(tmp)
			return c.fault("make", dir, err)
		}
		return nil
	})
}

func (c *Cache) link(dir string, files []Link) error {
	for _, f := range files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return c.fault("make", path, err)
		}
		up := strings.Repeat("../", 2+strings.Count(f.Name, "/")) // relative, so that the cache may be mounted anywhere
		if err := os.Symlink(up+blobs+"/"+f.SHA256, path); err != nil {
			return c.fault("link", path, err)
		}
	}
	return nil
}

// whole reports whether dir is there and no link in it leads nowhere.
func whole(dir string) bool {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type() == fs.ModeSymlink {
			_, err = os.Stat(p)
		}
		return err
	}) == nil
}

// Point makes link a symbolic link to target, in place of the link that may be there.
func (c *Cache) Point(link, target string) error {
	if info, err := os.Lstat(link); err == nil && info.Mode().Type() != fs.ModeSymlink {
		return &UnwritableError{Says: fmt.Sprintf("%s is no symbolic link: it can't be made to lead to the weights", link)}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c.fault("look at", link, err)
	}
	id, err := randomID()
	if err != nil {
		return err
	}
	tmp := link + ".tmp-" + id
	if err := os.Symlink(target, tmp); err != nil {
		return c.fault("make", link, err)
	}
	if err := os.Rename(tmp, link); err != nil {
		_ = os.Remove(tmp)
		return c.fault("make", link, err)
	}
	return nil
}
