package fetch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringfleet/ringfleet/worker/weights"
	"github.com/ringfleet/ringfleet/worker/weights/source"
)

// inPlace checks weights that lie in a mounted volume. Nothing is copied, linked or kept.
func (f *Fetcher) inPlace(ctx context.Context, u source.URI, r Request, m *meter) (string, error) {
	dir, file, err := f.localFolder(u, r.File)
	if err != nil {
		return "", err
	}
	r.File = file
	files, err := localFiles(dir, file)
	if err != nil {
		return "", err
	}
	chosen, err := choose(files, r, dir)
	if err != nil {
		return "", err
	}
	if r.Digest != "" && !chosen.single {
		return "", refuse(DigestMismatch, "%s: a digest is wanted, but the model has %d files: name one", u, len(chosen.files))
	}
	var total int64
	there := map[string]bool{}
	for _, c := range chosen.files {
		total += c.Bytes
		there[c.Name] = true
	}
	m.begin(Verifying, total)
	for _, c := range chosen.files {
		m.file(Verifying, c.Name, 0)
		if err := f.checkInPlace(ctx, filepath.Join(dir, c.Name), c, r.Digest, m); err != nil {
			return "", err
		}
		m.finished(c.Bytes)
	}
	switch {
	case chosen.single:
		return filepath.Join(dir, chosen.files[0].Name), nil
	case there[indexName]:
		return filepath.Clean(dir), checkIndexFile(filepath.Join(dir, indexName), dir, there)
	}
	return filepath.Clean(dir), nil
}

// localFolder returns the folder that u stands for, and the file that is wanted of it.
func (f *Fetcher) localFolder(u source.URI, file string) (string, string, error) {
	if u.Scheme == source.PVC {
		return f.o.VolumeDir, file, nil // the folder of the claim is what is mounted there
	}
	rel, err := filepath.Rel(f.o.FileRoot, u.Path)
	if f.o.FileRoot == "" || err != nil || !filepath.IsLocal(rel) {
		return "", "", refuse(SourceForbidden, "%s is not below %s, which is where files are taken from", u, f.o.FileRoot)
	}
	if isWeights(u.Path) && file == "" {
		dir, name := filepath.Split(u.Path)
		return dir, name, nil
	}
	return u.Path, file, nil
}

func (f *Fetcher) checkInPlace(ctx context.Context, path string, c source.File, digest string, m *meter) error {
	if err := checkFile(path, path); err != nil || digest == "" {
		return err
	}
	return weights.Compare(ctx, path, digest, func(percent int) { m.file(Verifying, c.Name, c.Bytes*int64(percent)/100) })
}

// localFiles lists a folder: its regular files and, if one is named, that.
func localFiles(dir, file string) ([]source.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, refuse(NotFound, "the weights folder %s can't be read: %v", dir, cause(err))
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if strings.Contains(file, "/") && filepath.IsLocal(file) {
		names = append(names, file)
	}
	var out []source.File
	for _, n := range names {
		info, err := os.Stat(filepath.Join(dir, n)) // the entries of mounted volumes are often links
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, refuse(NotFound, "%s can't be read: %v", filepath.Join(dir, n), cause(err))
		case info.Mode().IsRegular():
			out = append(out, source.File{Name: filepath.ToSlash(n), Bytes: info.Size()})
		}
	}
	return out, nil
}
