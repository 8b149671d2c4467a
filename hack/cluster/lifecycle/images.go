package lifecycle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ringfleet/ringfleet/hack/cluster/archive"
	"github.com/ringfleet/ringfleet/hack/cluster/config"
	"github.com/ringfleet/ringfleet/hack/cluster/member"
)

// stock is the list of image archives that every node has; it lies beside them.
type stock struct {
	Next     int     `json:"next"`
	Archives []entry `json:"archives"` // in the order of their loading
}

type entry struct {
	File   string   `json:"file"` // in the folder of archives; sorts in the order of loading
	Digest string   `json:"digest"`
	Names  []string `json:"names"`
}

// add enters an archive. It returns the entry, whether it is new, and the files that nobody needs any more,
// because every image in them has a newer archive.
func (s *stock) add(digest string, names []string) (e entry, isNew bool, unneeded []string) {
	overlaps := func(other entry) bool {
		return slices.ContainsFunc(other.Names, func(n string) bool { return slices.Contains(names, n) })
	}
	for i, have := range s.Archives {
		if have.Digest == digest && !slices.ContainsFunc(s.Archives[i+1:], overlaps) {
			return have, false, nil
		}
	}
	e = entry{File: fmt.Sprintf("%05d-%s.tar", s.Next, digest[:12]), Digest: digest, Names: names}
	s.Next++
	kept := s.Archives[:0:0]
	for _, have := range s.Archives {
		covered := !slices.ContainsFunc(have.Names, func(n string) bool { return !slices.Contains(names, n) })
		if covered {
			unneeded = append(unneeded, have.File)
		} else {
			kept = append(kept, have)
		}
	}
	s.Archives = append(kept, e)
	return e, true, unneeded
}

const stockFile = "stock.json"

func (c *Cluster) stock() (stock, error) {
	var s stock
	text, err := os.ReadFile(c.file(imagesDir, stockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read the list of images: %w", err)
	}
	return s, nil
}

// remember copies an archive into the stock. The list is written after the copy, and files that it does not
// name are nobody's.
func (c *Cluster) remember(file string) (entry, error) {
	names, err := archive.Names(file)
	if err != nil {
		return entry{}, err
	}
	s, err := c.stock()
	if err != nil {
		return entry{}, err
	}
	tmp := c.file(imagesDir, "incoming.new")
	digest, err := copyFile(file, tmp)
	if err != nil {
		return entry{}, fmt.Errorf("copy the image archive %s: %w", file, err)
	}
	e, isNew, unneeded := s.add(digest, names)
	if !isNew {
		return e, os.Remove(tmp)
	}
	if err := os.Rename(tmp, c.file(imagesDir, e.File)); err != nil {
		return e, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return e, err
	}
	if err := write(c.file(imagesDir, stockFile), text); err != nil {
		return e, fmt.Errorf("write the list of images: %w", err)
	}
	for _, f := range unneeded {
		if err := os.Remove(c.file(imagesDir, f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return e, err
		}
	}
	return e, nil
}

// dropStrays removes archives that an interrupted command copied but did not enter.
func (c *Cluster) dropStrays() error {
	s, err := c.stock()
	if err != nil {
		return err
	}
	files, err := os.ReadDir(c.file(imagesDir))
	if err != nil {
		return err
	}
	for _, f := range files {
		known := f.Name() == stockFile || slices.ContainsFunc(s.Archives, func(e entry) bool { return e.File == f.Name() })
		if !known {
			if err := os.Remove(c.file(imagesDir, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(from, to string) (digest string, err error) {
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, h), in)
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, out.Close())
}

// LoadImages brings image archives to every running node; nodes that start later have them too.
func (c *Cluster) LoadImages(ctx context.Context, files []string) error {
	if err := c.Load(); err != nil { // before the lock, which would make the folder
		return err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.Load(); err != nil {
		return err
	}
	return c.loadImages(ctx, files)
}

func (c *Cluster) loadImages(ctx context.Context, files []string) error {
	for _, f := range files {
		e, err := c.remember(f)
		if err != nil {
			return err
		}
		began := c.Clock.Now()
		g, gctx := errgroup.WithContext(ctx)
		for _, n := range c.Settings.Nodes {
			g.Go(func() error { return c.importInto(gctx, n, e) })
		}
		if err := g.Wait(); err != nil {
			return fmt.Errorf("load %s: %w", f, err)
		}
		c.say("loaded %s (%s) in %.1f s", strings.Join(e.Names, ", "), filepath.Base(f), c.Clock.Since(began).Seconds())
	}
	return nil
}

// importInto imports an archive into a node, unless the node does not run or has all of its images from it.
func (c *Cluster) importInto(ctx context.Context, node string, e entry) error {
	dir := member.Dir(c.Settings, node)
	up, err := member.Started(dir)
	if err != nil || !up {
		return err
	}
	if member.Imported(dir, e.File) {
		have, err := member.Enter(ctx, dir, config.ListImagesCommand())
		if err != nil {
			return err
		}
		if contains(strings.Fields(have), e.Names) {
			return nil
		}
	}
	if _, err := member.Enter(ctx, dir, config.ImportCommand(e.File)); err != nil {
		return err
	}
	return member.MarkImported(dir, e.File)
}

func contains(have, want []string) bool {
	return !slices.ContainsFunc(want, func(n string) bool { return !slices.Contains(have, n) })
}
