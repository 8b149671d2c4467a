package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringfleet/ringfleet/api/memoryplan"
	"github.com/ringfleet/ringfleet/api/modelfile"
)

// model is a model's shape and where it was read.
type model struct {
	name   string
	engine memoryplan.Engine // what usually runs such files
	shape  *modelfile.Shape
	from   string // what the sizes were read from, for people
}

// Names of files in a repository of Hugging Face.
const (
	configName = "config.json"
	indexName  = "model.safetensors.index.json"
)

// maxText is the most bytes of a JSON file that are read.
const maxText = 64 << 20

// readModel reads the heads of the files that path leads to.
func readModel(path string) (model, error) {
	info, err := os.Stat(path)
	if err != nil {
		return model{}, fmt.Errorf("read the model: %w", err)
	}
	if info.IsDir() {
		return readFolder(path)
	}
	dir := filepath.Dir(path)
	switch name := filepath.Base(path); {
	case strings.EqualFold(filepath.Ext(name), ".gguf"):
		return readGGUF(path)
	case name == configName, name == indexName, filepath.Ext(name) == ".safetensors":
		return readRepository(dir, configName)
	case filepath.Ext(name) == ".json":
		return readRepository(dir, name)
	}
	return model{}, fmt.Errorf("read the model: %s is no GGUF file, %s, safetensors file or index", path, configName)
}

// readFolder reads a repository of Hugging Face, or the only GGUF model of a folder.
func readFolder(dir string) (model, error) {
	if _, err := os.Stat(filepath.Join(dir, configName)); err == nil {
		return readRepository(dir, configName)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.gguf"))
	if err != nil {
		return model{}, fmt.Errorf("read the model: %w", err)
	}
	var found []string
	for _, f := range files {
		if _, part := modelfile.PartName(f, 1); part || !strings.Contains(filepath.Base(f), "-of-") {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		return model{}, fmt.Errorf("read the model: the folder %s has no %s, and %d GGUF models, expected one", dir, configName, len(found))
	}
	return readGGUF(found[0])
}

// readGGUF reads a GGUF file and its further parts.
func readGGUF(path string) (model, error) {
	first, err := readHead(path, modelfile.ReadGGUF)
	if err != nil {
		return model{}, err
	}
	parts := []*modelfile.GGUF{first}
	for i := 2; i <= first.Parts; i++ {
		next, ok := modelfile.PartName(path, i)
		if !ok {
			return model{}, fmt.Errorf("read the model: %s is one of %d parts; name the first, which ends in -00001-of-%05d.gguf", path, first.Parts, first.Parts)
		}
		g, err := readHead(next, modelfile.ReadGGUF)
		if err != nil {
			return model{}, err
		}
		parts = append(parts, g)
	}
	s, err := modelfile.GGUFShape(parts...)
	if err != nil {
		return model{}, explain(path, err)
	}
	return model{name: orElse(s.Name, filepath.Base(path)), engine: memoryplan.LlamaCpp, shape: s, from: filepath.Base(path)}, nil
}

// readRepository reads a config.json and, for the size of the weights, what lies beside it.
func readRepository(dir, name string) (model, error) {
	path := filepath.Join(dir, name)
	raw, err := readText(path)
	if err != nil {
		return model{}, err
	}
	bytes, from, err := weightBytes(dir)
	if err != nil {
		return model{}, err
	}
	s, err := modelfile.ConfigShape(raw, bytes)
	if err != nil {
		return model{}, explain(path, err)
	}
	if s.Counted {
		from = name
	}
	folder, err := filepath.Abs(dir)
	if err != nil {
		return model{}, fmt.Errorf("read the model: %w", err)
	}
	title := filepath.Base(folder)
	if name != configName {
		title = strings.TrimSuffix(name, filepath.Ext(name))
	}
	return model{name: orElse(s.Name, title), engine: memoryplan.VLLM, shape: s, from: from}, nil
}

// weightBytes adds up the tensors of the safetensors files in dir, or reads the sum from their index; 0 without either.
func weightBytes(dir string) (total uint64, from string, err error) {
	raw, err := readText(filepath.Join(dir, indexName))
	switch {
	case err == nil:
		total, _, err = modelfile.IndexBytes(raw)
		if err != nil {
			return 0, "", explain(filepath.Join(dir, indexName), err)
		}
		return total, indexName, nil
	case !errors.Is(err, fs.ErrNotExist):
		return 0, "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil {
		return 0, "", fmt.Errorf("read the model: %w", err)
	}
	for _, f := range files {
		s, err := readHead(f, modelfile.ReadSafetensors)
		if err != nil {
			return 0, "", err
		}
		for _, t := range s.Tensors {
			total += t.Bytes
		}
	}
	return total, count(len(files), "safetensors file", "safetensors files"), nil
}

// readHead opens a file and reads its head.
func readHead[T any](path string, read func(io.ReaderAt, int64) (T, error)) (head T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return head, fmt.Errorf("read the model: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return head, fmt.Errorf("read the model: %w", err)
	}
	if head, err = read(f, info.Size()); err != nil {
		return head, explain(path, err)
	}
	return head, nil
}

func readText(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the model: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxText+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the model: %w", err)
	case len(raw) > maxText:
		return nil, fmt.Errorf("read the model: %s has more than %d bytes", path, maxText)
	}
	return raw, nil
}

// explain puts the file's name into an error of modelfile.
func explain(path string, err error) error {
	var refused *modelfile.Error
	if errors.As(err, &refused) {
		return fmt.Errorf("read the model: %s %s", path, refused.Says)
	}
	return fmt.Errorf("read the model: %s: %w", path, err)
}

func orElse(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}
