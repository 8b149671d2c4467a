package modelfile_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/api/modelfile/ggufgen"
)

const smallConfig = `{"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,
	"num_key_value_heads":2,"vocab_size":300,"max_position_embeddings":512,"torch_dtype":"bfloat16"}`

// tensors is a safetensors file with one tensor of n bytes.
func tensors(n string, bytes int) string {
	head := `{"` + n + `":{"dtype":"U8","shape":[` + number(bytes) + `],"data_offsets":[0,` + number(bytes) + `]}}`
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	return string(append(append(b, head...), make([]byte, bytes)...))
}

func number(n int) string {
	var digits []byte
	for ; n > 0; n /= 10 {
		digits = append([]byte{byte('0' + n%10)}, digits...)
	}
	return string(digits)
}

func gguf(t *testing.T) string {
	t.Helper()
	m := ggufgen.Golden()
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func folder(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func TestAFolderHasTheShapeOfItsModel(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string]string
		weights uint64
		layers  int
	}{
		"a config alone counts": {map[string]string{"config.json": smallConfig}, 224_896, 2},
		"safetensors are added up": {map[string]string{"config.json": smallConfig, "model-00001-of-00002.safetensors": tensors("a", 1000),
			"model-00002-of-00002.safetensors": tensors("b", 500)}, 1500, 2},
		"one file is the whole model": {map[string]string{"config.json": smallConfig, "model.safetensors": tensors("a", 1000),
			"consolidated.safetensors": tensors("a", 1000), "adapter_model.safetensors": tensors("b", 50)}, 1000, 2},
		"an index states the sum": {map[string]string{"config.json": smallConfig, "model.safetensors": tensors("a", 10),
			"model.safetensors.index.json": `{"metadata":{"total_size":4096},"weight_map":{}}`}, 4096, 2},
		"the only GGUF file": {map[string]string{"m.gguf": gguf(t), "README.md": "x"}, 0, 4},
	} {
		s, err := modelfile.FolderShape(folder(c.files))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(s.Layers) != c.layers || c.weights > 0 && s.WeightBytes != c.weights {
			t.Errorf("%s: %d layers and %d bytes, want %d and %d", name, len(s.Layers), s.WeightBytes, c.layers, c.weights)
		}
	}
}

func TestAFolderThatDoesNotTellIsSaidOfByItsFile(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"nothing":                {map[string]string{}, "no config.json, and 0 GGUF models"},
		"two models":             {map[string]string{"a.gguf": "", "b.gguf": ""}, "2 GGUF models"},
		"no JSON":                {map[string]string{"config.json": "{"}, "config.json: the file is no config.json"},
		"an index without a sum": {map[string]string{"config.json": smallConfig, "model.safetensors.index.json": "{}"}, "model.safetensors.index.json: the file is an index without"},
		"a damaged head":         {map[string]string{"config.json": smallConfig, "m.safetensors": "x"}, "m.safetensors: the file"},
		"a damaged GGUF":         {map[string]string{"m.gguf": "x"}, "m.gguf: the file"},
	} {
		if s, err := modelfile.FolderShape(folder(c.files)); s != nil || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.says)
		}
	}
}
