package command

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/api/modelfile/ggufgen"
)

// runPlan runs the command as a user would, and returns what it prints.
func runPlan(args ...string) (string, error) {
	var out bytes.Buffer
	root := Root(Streams{In: strings.NewReader(""), Out: &out, Err: &out}, "test")
	root.SetArgs(append([]string{"plan"}, args...))
	err := root.Execute()
	return out.String(), err
}

// half is a model of Qwen2.5-0.5B's shape, without weights.
func half() ggufgen.Model {
	return ggufgen.Model{Architecture: "qwen2", Name: "Half a billion", Layers: 24, Embedding: 896, FeedForward: 4864, Heads: 14, KVHeads: 2,
		Context: 32768, Vocab: 151936, Type: "Q8_0", Tied: true}
}

// gguf writes a model.
func gguf(t *testing.T, m ggufgen.Model, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := m.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

const llama70, h100 = "testdata/llama-3.1-70b", "--accelerator=NVIDIA-H100-80GB-HBM3"

func TestPlansArePrinted(t *testing.T) {
	small := gguf(t, half(), "half.gguf")
	for name, c := range map[string]struct {
		args []string
		fits bool
	}{
		"plan-h100.txt":       {[]string{llama70, h100}, true},
		"plan-too-big.txt":    {[]string{llama70 + "/config.json", h100, "--gpus=2", "--sequences=6", "--step-tokens=512"}, false},
		"plan-h100.json":      {[]string{llama70, h100, "-o", "json"}, true},
		"plan-gguf.txt":       {[]string{small, "--memory-mib=3072", "--sequences=32", "--context-tokens=2048", "--kv-type=q8"}, true},
		"plan-cpu.txt":        {[]string{small, "--memory-mib=2048", "--gpus=0", "--sequences=4"}, true},
		"plan-impossible.txt": {[]string{llama70, "--accelerator=tesla-t4", "--gpus=1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runPlan(c.args...)
			if c.fits != (err == nil) || err != nil && !errors.Is(err, errAnswered) {
				t.Fatalf("%v\n%s", err, out)
			}
			golden(t, name, out)
		})
	}
}

func TestTheManualShowsWhatIsPrinted(t *testing.T) {
	page, err := os.ReadFile("../../docs/memory.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plan-h100.txt", "plan-too-big.txt"} {
		shown, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), string(shown)) {
			t.Errorf("docs/memory.md doesn't show %s as it is", name)
		}
	}
}

// repository is a folder with the 70B model's config.json and other files.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	config, err := os.ReadFile(filepath.Join(llama70, modelfile.ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	files[modelfile.ConfigName] = string(config)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func safetensors(elements int) string {
	head := fmt.Sprintf(`{"t":{"dtype":"BF16","shape":[%d],"data_offsets":[0,%d]}}`, elements, 2*elements)
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(head)))) + head + strings.Repeat("\x00", 2*elements)
}

func TestTheSizeOfTheWeightsIsReadWhereItCanBe(t *testing.T) {
	indexed := repository(t, map[string]string{modelfile.IndexName: `{"metadata": {"total_size": 70000000000}, "weight_map": {}}`})
	tensors := repository(t, map[string]string{"a.safetensors": safetensors(1000), "b.safetensors": safetensors(500)})
	for name, c := range map[string]struct{ path, says string }{
		"an index":           {filepath.Join(indexed, modelfile.IndexName), "70.0 GB of BF16 as read from model.safetensors.index.json"},
		"a folder with one":  {indexed, "70.0 GB of BF16 as read from model.safetensors.index.json"},
		"safetensors files":  {filepath.Join(tensors, "a.safetensors"), "0.0 GB of BF16 as read from 2 safetensors files"},
		"one whole file":     {repository(t, map[string]string{"model.safetensors": safetensors(1000), "consolidated.safetensors": safetensors(1000)}), "as read from 1 safetensors file"},
		"a config alone":     {llama70, "141.1 GB of BF16 worked out from config.json"},
		"a folder with GGUF": {filepath.Dir(gguf(t, ggufgen.Golden(), "g.gguf")), "Golden: 3.0 M parameters, 0.0 GB of Q8_0 as read from g.gguf"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runPlan(c.path, "--memory-mib=1000000", "--gpus=1")
			if err != nil || !strings.Contains(out, c.says) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestQuestionsThatCantBeAnsweredSayWhy(t *testing.T) {
	small, cut := gguf(t, ggufgen.Golden(), "g.gguf"), gguf(t, ggufgen.Golden(), "cut.gguf")
	if err := os.Truncate(cut, 1000); err != nil {
		t.Fatal(err)
	}
	broken := repository(t, map[string]string{"a.safetensors": safetensors(10)[:40]})
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no path":               {nil, "accepts 1 arg"},
		"nothing there":         {[]string{"gone.gguf", h100}, "gone.gguf"},
		"another kind of file":  {[]string{"plan.go", h100}, "plan.go is no GGUF file"},
		"an empty folder":       {[]string{t.TempDir(), h100}, "0 GGUF models, expected one"},
		"a file cut off":        {[]string{cut, h100}, "cut.gguf is cut off within its head: expected more than 1000 bytes"},
		"a broken tensor file":  {[]string{broken, h100}, "a.safetensors is cut off within its head"},
		"no GPU named":          {[]string{small}, "--accelerator or --memory-mib"},
		"an unknown GPU":        {[]string{small, "--accelerator=H1000"}, `"H1000" is unknown: give --memory-mib instead`},
		"two sizes":             {[]string{small, h100, "--memory-mib=5"}, "give one"},
		"a container's size":    {[]string{small, h100, "--gpus=0"}, "how much memory the container has"},
		"an absurd size":        {[]string{small, "--memory-mib=99999999999"}, "expected at most"},
		"an unknown output":     {[]string{small, h100, "-o", "yaml"}, `-o is "yaml", expected json`},
		"an unknown engine":     {[]string{small, h100, "--engine=tgi"}, `"tgi", expected llamacpp or vllm`},
		"another engine's type": {[]string{small, h100, "--kv-type=fp8"}, `llamacpp has no KV cache of type "FP8"`},
		"too many sequences":    {[]string{small, h100, "--sequences=1000"}, "1000 sequences of 2048 tokens, expected at most 256"},
		"a number of GPUs":      {[]string{llama70, h100, "--gpus=3"}, "can't be shared out among 3 GPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := runPlan(c.args...); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q\n%s", err, c.says, out)
			}
		})
	}
}

func TestAllPartsOfAModelAreRead(t *testing.T) {
	path := gguf(t, ggufgen.Golden(), "big-00001-of-00002.gguf")
	other := filepath.Join(filepath.Dir(path), "big-00002-of-00002.gguf")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Each part is the whole model here, with one entry more: that there are two parts. Its data begins up to 32 bytes later.
	part := binary.LittleEndian.AppendUint64(slices.Clone(whole[:16]), binary.LittleEndian.Uint64(whole[16:])+1)
	part = append(binary.LittleEndian.AppendUint64(part, 11), "split.count"...)
	part = append(part, 2, 0, 0, 0, 2, 0) // a number of 16 bits
	part = append(append(part, whole[24:]...), make([]byte, 32)...)
	for _, p := range []string{path, other} {
		if err := os.WriteFile(p, part, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{path, filepath.Dir(path)} {
		if out, err := runPlan(p, h100); err != nil || !strings.Contains(out, "6.0 M parameters") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if _, err := runPlan(path, h100); err == nil || !strings.Contains(err.Error(), "big-00002-of-00002.gguf") {
		t.Errorf("got %v", err)
	}
}

func TestTheShellCompletesFlags(t *testing.T) {
	for flag, want := range map[string]string{"--accelerator": "NVIDIA-H100-80GB-HBM3", "--kv-type": "FP8", "--engine": "llamacpp", "-o": "json"} {
		var out bytes.Buffer
		root := Root(Streams{In: strings.NewReader(""), Out: &out, Err: &out}, "test")
		root.SetArgs([]string{"__complete", "plan", "x", flag, ""})
		if err := root.Execute(); err != nil || !slices.Contains(strings.Split(out.String(), "\n"), want) {
			t.Errorf("%s completes to %q: %v", flag, out.String(), err)
		}
	}
	var out bytes.Buffer
	root := Root(Streams{In: strings.NewReader(""), Out: &out, Err: &out}, "test")
	root.SetArgs([]string{"__complete", "plan", ""})
	if err := root.Execute(); err != nil || !strings.Contains(out.String(), "gguf\njson\nsafetensors\n") {
		t.Errorf("files complete to %q: %v", out.String(), err)
	}
}
