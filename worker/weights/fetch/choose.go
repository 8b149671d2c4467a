package fetch

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ringfleet/ringfleet/worker/weights/source"
)

// Endings of files of weights.
const (
	gguf        = ".gguf"
	safetensors = ".safetensors"
)

// beside are the files that a safetensors model may need, all of them data: shapes, vocabularies, templates. A pattern without
// a slash holds for files at the root.
var beside = []string{
	"*.json", "*.jinja", "*.tiktoken", "merges.txt", "vocab.txt", "tokenizer.model", "tokenizer.model.v*", "spiece.model",
	"sentencepiece.bpe.model", "additional_chat_templates/*.jinja", "1_Pooling/config.json", "2_Normalize/config.json", "2_Dense/config.json",
}

// maxBeside bounds such a file in bytes.
const maxBeside = 128 << 20

// most is how many names a message lists.
const most = 5

func isWeights(name string) bool {
	ext := strings.ToLower(path.Ext(name))
	return ext == gguf || ext == safetensors
}

// choice is what makes up a model.
type choice struct {
	files  []source.File
	single bool // one file, not a folder
}

// choose returns the files that r wants of those that where holds.
func choose(files []source.File, r Request, where string) (choice, error) {
	files = slices.DeleteFunc(slices.Clone(files), func(f source.File) bool { return !allowed(f.Name, r.Allow) })
	if r.File != "" {
		i := slices.IndexFunc(files, func(f source.File) bool { return f.Name == r.File })
		if i < 0 {
			return choice{}, refuse(NotFound, "%s has no file %s; it holds %s", where, r.File, names(files))
		}
		return choice{files[i : i+1], true}, nil
	}
	one, many := ending(files, gguf), ending(files, safetensors)
	switch {
	case len(one) == 1 && len(many) == 0:
		return choice{one, true}, nil
	case len(one) > 1:
		return choice{}, refuse(NotFound, "%s has %d *.gguf files, expected one: %s; name the one to load", where, len(one), names(one))
	case len(one) > 0:
		return choice{}, refuse(NotFound, "%s has both %s and %s: name the file to load, or allow only the one kind", where, names(one), names(many))
	case len(many) == 0:
		return choice{}, refuse(Unsupported, "%s has neither *.gguf nor *.safetensors at its root, and nothing else is loaded; it holds %s",
			where, names(files))
	}
	many = withoutConsolidated(many)
	for _, f := range files {
		if !isBeside(f.Name) {
			continue
		}
		if f.Bytes > maxBeside {
			return choice{}, refuse(Unsupported, "%s: %s has %d bytes, expected at most %d", where, f.Name, f.Bytes, int64(maxBeside))
		}
		many = append(many, f)
	}
	// Small files first: what is wrong with a model shows in them.
	slices.SortStableFunc(many, func(a, b source.File) int {
		if x, y := isWeights(a.Name), isWeights(b.Name); x != y {
			if x {
				return 1
			}
			return -1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return choice{many, false}, nil
}

// allowed reports whether a pattern matches name; without patterns everything is.
func allowed(name string, patterns []string) bool {
	return len(patterns) == 0 || matches(name, path.Base(name), patterns)
}

func matches(name, base string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		of := base
		if strings.Contains(p, "/") {
			of = name
		}
		ok, _ := path.Match(p, of) // patterns are checked before
		return ok
	})
}

// isBeside reports whether name may belong to a safetensors model.
func isBeside(name string) bool { return matches(name, name, beside) }

// ending returns the files at the root with an ending.
func ending(files []source.File, ext string) []source.File {
	var out []source.File
	for _, f := range files {
		if !strings.Contains(f.Name, "/") && strings.ToLower(path.Ext(f.Name)) == ext {
			out = append(out, f)
		}
	}
	return out
}

// withoutConsolidated leaves out the second copy of the weights that some repositories hold for their vendor's own engine.
func withoutConsolidated(files []source.File) []source.File {
	if !slices.ContainsFunc(files, func(f source.File) bool { return strings.HasPrefix(f.Name, "model") }) {
		return files
	}
	return slices.DeleteFunc(files, func(f source.File) bool { return strings.HasPrefix(f.Name, "consolidated") })
}

func names(files []source.File) string {
	var out []string
	for _, f := range files[:min(len(files), most)] {
		out = append(out, f.Name)
	}
	switch {
	case len(files) == 0:
		return "nothing"
	case len(files) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(out, ", "), len(files)-most)
	}
	return strings.Join(out, ", ")
}
