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

// FolderShape returns the shape of the model in a folder: by its config.json, and by the size that the index of its safetensors
// files states, or else their heads. Without a config.json the folder must have one GGUF model. An error is about the file
// that it names.
func FolderShape(folder fs.FS) (*Shape, error) {
	config, err := readText(folder, ConfigName)
	if errors.Is(err, fs.ErrNotExist) {
		return onlyGGUF(folder)
	}
	if err != nil {
		return nil, err
	}
	bytes, err := tensorBytes(folder)
	if err != nil {
		return nil, err
	}
	s, err := ConfigShape(config, bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ConfigName, err)
	}
	return s, nil
}

// FileShape returns the shape of the GGUF model whose first part, or only file, has a name in a folder.
func FileShape(folder fs.FS, name string) (*Shape, error) {
	first, err := readHead(folder, name, ReadGGUF)
	if err != nil {
		return nil, err
	}
	parts := []*GGUF{first}
	for i := 2; i <= first.Parts; i++ {
		next, ok := PartName(name, i)
		if !ok {
			return nil, fmt.Errorf("%s: %w", name, refuse(Unsupported, "is not the first of its %d parts", first.Parts))
		}
		g, err := readHead(folder, next, ReadGGUF)
		if err != nil {
			return nil, err
		}
		parts = append(parts, g)
	}
	s, err := GGUFShape(parts...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// onlyGGUF is the shape of the only GGUF model of a folder.
func onlyGGUF(folder fs.FS) (*Shape, error) {
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

// tensorBytes adds up the tensors of the safetensors files of a folder, or reads the sum from their index; 0 without either.
// Beside a model in one file, others hold no part of it: adapters, or the same weights in another form.
func tensorBytes(folder fs.FS) (total uint64, err error) {
	raw, err := readText(folder, IndexName)
	switch {
	case err == nil:
		if total, _, err = IndexBytes(raw); err != nil {
			return 0, fmt.Errorf("%s: %w", IndexName, err)
		}
		return total, nil
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	files, err := fs.Glob(folder, "*.safetensors")
	if err != nil {
		return 0, err
	}
	if slices.Contains(files, wholeName) {
		files = []string{wholeName}
	}
	for _, f := range files {
		s, err := readHead(folder, f, ReadSafetensors)
		if err != nil {
			return 0, err
		}
		for _, t := range s.Tensors {
			total += t.Bytes
		}
	}
	return total, nil
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
		return head, fmt.Errorf("%s can't be read from any place", name)
	}
	if head, err = read(r, info.Size()); err != nil {
		return head, fmt.Errorf("%s: %w", name, err)
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
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return raw, nil // what is longer is refused by who reads it
}
