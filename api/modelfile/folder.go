package modelfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Names of files in a repository of Hugging Face.
const (
	ConfigName = "config.json"
	IndexName  = "model.safetensors.index.json"
	wholeName  = "model.safetensors"
)

// Reading is the shape of a model and what it was read from.
type Reading struct {
	*Shape
	// From is the file that the sizes were read from, or how many files they were.
	From string
	// GGUF: the model is in GGUF files; else a config.json describes it.
	GGUF bool
}

// FileError is what is wrong with one file of a folder.
type FileError struct {
	Name string
	Err  error
}

func (e *FileError) Error() string { return e.Name + ": " + e.Err.Error() }

func (e *FileError) Unwrap() error { return e.Err }

// FolderShape returns the shape of the model in a folder: by its config.json, as RepositoryShape does, or without one that of
// the only GGUF model. An error about a file is a *FileError or an *fs.PathError.
func FolderShape(folder fs.FS) (*Reading, error) {
	if _, err := fs.Stat(folder, ConfigName); !errors.Is(err, fs.ErrNotExist) {
		return RepositoryShape(folder, ConfigName)
	}
	files, err := fs.Glob(folder, "*.gguf")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, f := range files {
		if _, first := PartName(f, 1); first || !strings.Contains(path.Base(f), "-of-") {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("the folder has no %s, and %d GGUF models, expected one", ConfigName, len(found))
	}
	return FileShape(folder, found[0])
}

// FileShape returns the shape of the GGUF model whose first part, or only file, has a name in a folder. Its errors are those
// of FolderShape.
func FileShape(folder fs.FS, name string) (*Reading, error) {
	first, err := readHead(folder, name, ReadGGUF)
	if err != nil {
		return nil, err
	}
	parts := []*GGUF{first}
	for i := 2; i <= first.Parts; i++ {
		next, ok := PartName(name, i)
		if !ok {
			return nil, &FileError{name, refuse(Unsupported, "is one of %d parts; name the first, which ends in -00001-of-%05d.gguf", first.Parts, first.Parts)}
		}
		g, err := readHead(folder, next, ReadGGUF)
		if err != nil {
			return nil, err
		}
		parts = append(parts, g)
	}
	s, err := GGUFShape(parts...)
	if err != nil {
		return nil, &FileError{name, err}
	}
	return &Reading{Shape: s, From: name, GGUF: true}, nil
}

// RepositoryShape returns the shape of the model that a config.json, of whatever name, describes in a folder; the size of its
// weights is what the index of the folder's safetensors files states, or else their heads. Its errors are those of FolderShape.
func RepositoryShape(folder fs.FS, config string) (*Reading, error) {
	raw, err := readText(folder, config)
	if err != nil {
		return nil, err
	}
	bytes, from, err := tensorBytes(folder)
	if err != nil {
		return nil, err
	}
	s, err := ConfigShape(raw, bytes)
	if err != nil {
		return nil, &FileError{config, err}
	}
	if s.Counted {
		from = config
	}
	return &Reading{Shape: s, From: from}, nil
}

// tensorBytes adds up the tensors of the safetensors files of a folder, or reads the sum from their index; 0 without either.
// Beside a model in one file, others hold no part of it: adapters, or the same weights in another form.
func tensorBytes(folder fs.FS) (total uint64, from string, err error) {
	raw, err := readText(folder, IndexName)
	switch {
	case err == nil:
		if total, _, err = IndexBytes(raw); err != nil {
			return 0, "", &FileError{IndexName, err}
		}
		return total, IndexName, nil
	case !errors.Is(err, fs.ErrNotExist):
		return 0, "", err
	}
	files, err := fs.Glob(folder, "*.safetensors")
	if err != nil {
		return 0, "", err
	}
	if slices.Contains(files, wholeName) {
		files = []string{wholeName}
	}
	for _, f := range files {
		s, err := readHead(folder, f, ReadSafetensors)
		if err != nil {
			return 0, "", err
		}
		for _, t := range s.Tensors {
			total += t.Bytes
		}
	}
	if len(files) == 1 {
		return total, "1 safetensors file", nil
	}
	return total, fmt.Sprintf("%d safetensors files", len(files)), nil
}

// readHead opens a file and reads its head.
func readHead[T any](folder fs.FS, name string, read func(io.ReaderAt, int64) (T, error)) (head T, err error) {
	f, err := folder.Open(name)
	if err != nil {
		return head, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return head, err
	}
	r, ok := f.(io.ReaderAt)
	if !ok {
		return head, &FileError{name, errors.New("it can't be read from any place")}
	}
	if head, err = read(r, info.Size()); err != nil {
		return head, &FileError{name, err}
	}
	return head, nil
}

// readText reads a file of bounded length.
func readText(folder fs.FS, name string) ([]byte, error) {
	f, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	raw, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, &FileError{name, err}
	}
	return raw, nil // what is longer is refused by who reads it
}
