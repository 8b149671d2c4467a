// Package oci writes images as OCI archives: the same files make the same bytes, whoever builds them and
// when. It knows nothing about what an image is for, and talks to no registry and no engine.
package oci

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is an image to write.
type Image struct {
	Name       string // full: registry, repository and tag
	Entrypoint []string
	User       string
	Env        []string
	Labels     map[string]string
	Layers     []Layer // the lowest first; what changes rarely goes below
}

// Layer is a set of files.
type Layer struct {
	Title string // what it holds, for people
	Files []File
}

// File is one file of a layer. Exactly one of Source, Content, Link and Dir is set.
type File struct {
	Path    string // absolute, in the image
	Mode    int64  // permission bits; default 0644, for a folder 0755
	Owner   int    // user and group id
	Source  string // file on this machine
	Content []byte
	Link    string // target of a symbolic link
	Dir     bool
}

// epoch is the time of everything in an image: it must not depend on when it was built.
var epoch = time.Unix(0, 0).UTC()

// Build makes the image. Sources are read now for their digests, and again when the image is written.
func Build(i Image, arch string) (v1.Image, error) {
	img := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	for _, l := range i.Layers {
		layer, err := newLayer(l.Files)
		if err != nil {
			return nil, fmt.Errorf("layer %q of %s: %w", l.Title, i.Name, err)
		}
		if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, MediaType: types.OCIUncompressedLayer,
			History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "ringfleet hack/image", Comment: l.Title}}); err != nil {
			return nil, fmt.Errorf("layer %q of %s: %w", l.Title, i.Name, err)
		}
	}
	c, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Created = "linux", arch, v1.Time{Time: epoch}
	c.Config = v1.Config{Entrypoint: i.Entrypoint, User: i.User, Env: i.Env, Labels: i.Labels, WorkingDir: "/"}
	return mutate.ConfigFile(img, c)
}

// layer is an uncompressed layer whose bytes are made each time they are asked for.
type layer struct {
	files  []File
	digest v1.Hash
	size   int64
}

func newLayer(files []File) (*layer, error) {
	sorted, err := complete(files)
	if err != nil {
		return nil, err
	}
	l := &layer{files: sorted}
	r, err := l.Uncompressed()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	l.digest, l.size, err = v1.SHA256(r)
	return l, err
}

func (l *layer) Digest() (v1.Hash, error)            { return l.digest, nil }
func (l *layer) DiffID() (v1.Hash, error)            { return l.digest, nil }
func (l *layer) Size() (int64, error)                { return l.size, nil }
func (l *layer) MediaType() (types.MediaType, error) { return types.OCIUncompressedLayer, nil }
func (l *layer) Compressed() (io.ReadCloser, error)  { return l.Uncompressed() }
func (l *layer) Uncompressed() (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeTar(w, l.files)) }()
	return r, nil
}

// complete adds the parent folders of files, and sorts. A path that stands twice is an error.
func complete(files []File) ([]File, error) {
	all := map[string]File{}
	for _, f := range files {
		p := path.Clean(f.Path)
		if !path.IsAbs(f.Path) || p == "/" {
			return nil, fmt.Errorf("path %q must be absolute and below /", f.Path)
		}
		if _, twice := all[p]; twice {
			return nil, fmt.Errorf("path %s stands twice", p)
		}
		f.Path = p
		all[p] = f
	}
	for _, f := range files {
		for d := path.Dir(path.Clean(f.Path)); d != "/"; d = path.Dir(d) {
			if _, ok := all[d]; !ok {
				all[d] = File{Path: d, Dir: true}
			} else if !all[d].Dir {
				return nil, fmt.Errorf("path %s is a file and a folder", d)
			}
		}
	}
	out := make([]File, 0, len(all))
	for _, f := range all {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

func writeTar(w io.Writer, files []File) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		if err := writeFile(t, f); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, err)
		}
	}
	return t.Close()
}

func writeFile(t *tar.Writer, f File) error {
	h := &tar.Header{Name: strings.TrimPrefix(f.Path, "/"), Mode: f.Mode, Uid: f.Owner, Gid: f.Owner, ModTime: epoch, Format: tar.FormatUSTAR}
	content := io.NopCloser(io.Reader(bytes.NewReader(f.Content)))
	h.Size = int64(len(f.Content))
	switch {
	case f.Dir:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		if h.Mode == 0 {
			h.Mode = 0o755
		}
	case f.Link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
	case f.Source != "":
		s, err := os.Open(f.Source)
		if err != nil {
			return err
		}
		st, err := s.Stat()
		if err != nil {
			return errors.Join(err, s.Close())
		}
		content, h.Size = s, st.Size()
	}
	defer content.Close()
	if h.Typeflag == 0 {
		h.Typeflag = tar.TypeReg
	}
	if h.Mode == 0 {
		h.Mode = 0o644
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(t, content)
	return err
}
