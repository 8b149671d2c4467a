package fetch

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/worker/weights"
	"github.com/ringfleet/ringfleet/worker/weights/cache"
)

// checkHead reads the head of a file of weights and compares the file's length with what it says. A small file is looked at
// for code that it would make an engine fetch from elsewhere.
func (j *job) checkHead(l cache.Link) error {
	p, _ := j.cache.Blob(l.SHA256, l.Bytes)
	return checkFile(p, j.uri.String()+" "+l.Name)
}

// checkFile checks the file at path; what stands for it in messages and has its ending.
func checkFile(at, what string) error {
	f, err := os.Open(at)
	if err != nil {
		return refuse(NotFound, "%s can't be opened: %v", what, cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return refuse(NotFound, "%s is no regular file", what)
	}
	switch strings.ToLower(path.Ext(what)) {
	case gguf:
		_, err := weights.ReadHeader(f, what, uint64(info.Size()))
		return err
	case safetensors:
		_, err := modelfile.ReadSafetensors(f, info.Size())
		return notSafetensors(what, err)
	case ".json":
		return checkJSON(f, info.Size(), what)
	}
	return nil
}

func notSafetensors(what string, err error) error {
	var e *modelfile.Error
	if err == nil || !errors.As(err, &e) {
		return err
	}
	reason := Unsupported
	switch e.Problem {
	case modelfile.Truncated:
		reason = Truncated
	case modelfile.Unreadable:
		reason = NotFound
	}
	return refuse(reason, "the weights file %s %s", what, e.Says)
}

// configs are the files in which auto_map names classes that a library loads.
var configs = []string{"config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json", "adapter_config.json"}

// checkJSON refuses a configuration whose auto_map names code in another repository: some engines fetch and run that, and
// nothing here has checked it. Names of code in the model's own repository lead nowhere, because no code is fetched.
func checkJSON(f io.Reader, size int64, what string) error {
	name := what[strings.LastIndexAny(what, " /")+1:]
	if !slices.Contains(configs, name) || size > 4<<20 {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, 4<<20))
	if err != nil {
		return refuse(NotFound, "%s can't be read: %v", what, cause(err))
	}
	var c struct {
		AutoMap map[string]any `json:"auto_map"`
	}
	_ = json.Unmarshal(b, &c) // what is no JSON the engine refuses
	for _, v := range c.AutoMap {
		if text, _ := json.Marshal(v); strings.Contains(string(text), "--") {
			return refuse(Unsupported, "%s names code in another repository (auto_map %s): such a model is not loaded", what, text)
		}
	}
	return nil
}

// indexName is the file that says which tensors are in which file of a model in several.
const indexName = "model.safetensors.index.json"

// checkIndex makes sure that every file is there that the index of a model in several files names.
func checkIndex(j *job, links []cache.Link) error {
	there := map[string]bool{}
	for _, l := range links {
		there[l.Name] = true
	}
	for _, l := range links {
		if l.Name != indexName {
			continue
		}
		p, _ := j.cache.Blob(l.SHA256, l.Bytes)
		return checkIndexFile(p, j.uri.String(), there)
	}
	return nil
}

func checkIndexFile(at, where string, there map[string]bool) error {
	b, err := os.ReadFile(at)
	if err != nil {
		return refuse(NotFound, "%s: the index can't be read: %v", where, cause(err))
	}
	var index struct {
		Files map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return refuse(Unsupported, "%s: %s is no JSON that fits", where, indexName)
	}
	for tensor, file := range index.Files {
		if !there[file] {
			return refuse(NotFound, "%s: its index says that tensor %q is in %q, which is not there", where, tensor, file)
		}
	}
	return nil
}

// cause returns err without the path that its message has already.
func cause(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
