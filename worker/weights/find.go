// Package weights decides whether a file holds weights that may be loaded: which file it is, that it is GGUF, that it is
// all there, and that it is the file that was asked for. It reads and never writes, and it fetches nothing. Every refusal
// is an engine.LoadError with the file, what was expected and what was found. The C library sees no file that this package
// refused.
package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// The reasons of engine.LoadError, as the model's condition WeightsCached shows them.
const (
	NotFound       = "WeightsNotFound"
	NotGGUF        = "WeightsNotGGUF"
	Truncated      = "WeightsTruncated"
	DigestMismatch = "WeightsDigestMismatch"
	Unsupported    = "WeightsUnsupported"
)

// extension marks a file of weights where none is named.
const extension = ".gguf"

// most is how many names a message lists.
const most = 5

// Find returns the path of the weights in dir. With a file name it is that file, which must lie within dir; without one it
// is the only *.gguf of the folder itself. The error is an *engine.LoadError.
func Find(dir, file string) (string, error) {
	if file != "" {
		return named(dir, file)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", refuse(NotFound, "the weights folder %s can't be read: %v", dir, cause(err))
	}
	if len(entries) == 0 {
		return "", refuse(NotFound, "the weights folder %s is empty, expected one *%s file: an OCI artifact that is no image "+
			"mounts as an empty folder; build an image that holds the file", dir, extension)
	}
	var found, others []string
	for _, e := range entries {
		if strings.HasSuffix(strings.ToLower(e.Name()), extension) && regular(filepath.Join(dir, e.Name())) {
			found = append(found, e.Name())
		} else {
			others = append(others, e.Name())
		}
	}
	switch len(found) {
	case 1:
		return filepath.Join(dir, found[0]), nil
	case 0:
		return "", refuse(NotFound, "the weights folder %s has no *%s file; it holds %s", dir, extension, list(others))
	}
	return "", refuse(NotFound, "the weights folder %s has %d *%s files, expected one: %s; name the one to load", dir,
		len(found), extension, list(found))
}

func named(dir, file string) (string, error) {
	if !filepath.IsLocal(file) {
		return "", refuse(NotFound, "the weights file %q must be a path within the weights folder", file)
	}
	path := filepath.Join(dir, file)
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Mode().IsRegular():
		return path, nil
	case err == nil:
		return "", refuse(NotFound, "the weights %s are no regular file but %s", path, info.Mode().Type())
	case !errors.Is(err, fs.ErrNotExist):
		return "", refuse(NotFound, "the weights file %s can't be read: %v", path, cause(err))
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err != nil:
		return "", refuse(NotFound, "the weights folder %s can't be read: %v", dir, cause(err))
	case len(entries) == 0:
		return "", refuse(NotFound, "there is no weights file %s: the folder is empty; an OCI artifact that is no image "+
			"mounts as an empty folder", path)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return "", refuse(NotFound, "there is no weights file %s; the folder holds %s", path, list(names))
}

// regular reports whether path leads to a regular file. The entries of mounted volumes are often links.
func regular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func list(names []string) string {
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// cause returns err without the path that its message has already.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func refuse(reason, format string, args ...any) *engine.LoadError {
	return &engine.LoadError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
