package command

import (
	"errors"
	"fmt"
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

// readModel reads the heads of the files that path leads to.
func readModel(path string) (model, error) {
	info, err := os.Stat(path)
	if err != nil {
		return model{}, fmt.Errorf("read the model: %w", err)
	}
	dir, config := filepath.Dir(path), modelfile.ConfigName
	var r *modelfile.Reading
	switch name := filepath.Base(path); {
	case info.IsDir():
		dir = path
		r, err = modelfile.FolderShape(os.DirFS(dir))
	case strings.EqualFold(filepath.Ext(name), ".gguf"):
		r, err = modelfile.FileShape(os.DirFS(dir), name)
	case name == modelfile.IndexName, filepath.Ext(name) == ".safetensors":
		r, err = modelfile.RepositoryShape(os.DirFS(dir), config)
	case filepath.Ext(name) == ".json":
		config = name
		r, err = modelfile.RepositoryShape(os.DirFS(dir), config)
	default:
		return model{}, fmt.Errorf("read the model: %s is no GGUF file, %s, safetensors file or index", path, config)
	}
	if err != nil {
		return model{}, explain(dir, err)
	}
	if r.GGUF {
		return model{name: orElse(r.Name, r.From), engine: memoryplan.LlamaCpp, shape: r.Shape, from: r.From}, nil
	}
	title := strings.TrimSuffix(config, filepath.Ext(config))
	if config == modelfile.ConfigName {
		folder, err := filepath.Abs(dir)
		if err != nil {
			return model{}, fmt.Errorf("read the model: %w", err)
		}
		title = filepath.Base(folder)
	}
	return model{name: orElse(r.Name, title), engine: memoryplan.VLLM, shape: r.Shape, from: r.From}, nil
}

// explain puts the path of the file, or of its folder, into an error of modelfile.
func explain(dir string, err error) error {
	var file *modelfile.FileError
	var refused *modelfile.Error
	var path *fs.PathError
	switch {
	case errors.As(err, &file) && errors.As(err, &refused):
		return fmt.Errorf("read the model: %s %s", filepath.Join(dir, file.Name), refused.Says)
	case errors.As(err, &file):
		return fmt.Errorf("read the model: %s: %w", filepath.Join(dir, file.Name), file.Err)
	case errors.As(err, &path):
		return fmt.Errorf("read the model: %w", &fs.PathError{Op: path.Op, Path: filepath.Join(dir, path.Path), Err: path.Err})
	}
	return fmt.Errorf("read the model: %s: %w", dir, err)
}

func orElse(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}
