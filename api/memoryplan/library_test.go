package memoryplan

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/hybridgroup/yzma/pkg/llama"
	"golang.org/x/sys/unix"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/api/modelfile/ggufgen"
)

// journal keeps what the library says of itself.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

var said journal

func (j *journal) write(_ int32, text *byte, _ uintptr) uintptr {
	j.mu.Lock()
	defer j.mu.Unlock()
	if text != nil {
		j.text.WriteString(unix.BytePtrToString(text))
	}
	return 0
}

// take returns what was said since the last call.
func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.text.Reset()
	return j.text.String()
}

var library = sync.OnceValue(func() error {
	if err := llama.Load(os.Getenv("RINGFLEET_TEST_LIBS")); err != nil {
		return err
	}
	llama.LogSet(purego.NewCallback(said.write))
	llama.Init()
	return nil
})

// allocated is what the library says that it has allocated, in bytes.
type allocated struct{ weights, kv, compute, output float64 }

// sizes finds "… compute buffer size = 12.34 MiB" and "size = 12.34 MiB (4096 cells, …".
var sizes = regexp.MustCompile(`(model buffer size|output buffer size|compute buffer size|llama_kv_cache: size) = +([0-9.]+) MiB`)

// load opens m as the worker's driver does and returns what the library allocated for it. With simulate it allocates
// nothing, and says what it would.
func load(t *testing.T, m *ggufgen.Model, o Options, simulate bool) (*modelfile.Shape, allocated) {
	t.Helper()
	if os.Getenv("RINGFLEET_TEST_LIBS") == "" {
		t.Fatal("RINGFLEET_TEST_LIBS is not set: run make unit, or export RINGFLEET_TEST_LIBS=$(go run ./hack/image libs)")
	}
	if err := library(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := m.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	said.take()
	params := llama.ModelDefaultParams()
	params.LoadMode, params.UseExtraBufts = llama.LoadModeMmap, 0 // no second copy for the instructions of this CPU
	if simulate {
		params.LoadMode, params.NoAlloc = llama.LoadModeNone, 1
	}
	model, err := llama.ModelLoadFromFile(path, params)
	if err != nil {
		t.Fatal(err, said.take())
	}
	defer llama.ModelFree(model)
	c := llama.ContextDefaultParams()
	c.NCtx, c.NBatch, c.NUbatch = uint32(o.ContextTokens*o.Sequences), 512, uint32(o.StepTokens)
	c.NSeqMax, c.NOutputsMax = uint32(o.Sequences), uint32(o.Sequences)
	c.KVUnified, c.SwaFull, c.NThreads, c.NThreadsBatch = 1, 1, 1, 1
	if o.KV == Q8 {
		c.TypeK, c.TypeV = llama.GGMLTypeQ8_0, llama.GGMLTypeQ8_0
	}
	context, err := llama.InitFromModel(model, c)
	if err != nil {
		t.Fatal(err, said.take())
	}
	defer llama.Free(context)
	var a allocated
	for _, found := range sizes.FindAllStringSubmatch(said.take(), -1) {
		n, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		*map[string]*float64{"model buffer size": &a.weights, "output buffer size": &a.output, "compute buffer size": &a.compute,
			"llama_kv_cache: size": &a.kv}[found[1]] += n * mib
	}
	if simulate {
		a.weights = float64(llama.ModelSize(model))
	}
	return shapeOf(t, path), a
}

func shapeOf(t *testing.T, path string) *modelfile.Shape {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	g, err := modelfile.ReadGGUF(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	s, err := modelfile.GGUFShape(g)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The plan of each shape is held against what llama.cpp allocates for it: each part and the sum within 5 %.
func TestPlansAreWhatTheLibraryAllocates(t *testing.T) {
	llama70 := ggufgen.Model{Architecture: "llama", Layers: 80, Embedding: 8192, FeedForward: 28672, Heads: 64, KVHeads: 8, Context: 131072,
		Vocab: 128256, Type: "F16"}
	for name, c := range map[string]struct {
		m        ggufgen.Model
		o        Options
		simulate bool
	}{
		"grouped queries, tied": {m: ggufgen.Model{Architecture: "qwen2", Layers: 24, Embedding: 896, FeedForward: 4864, Heads: 14, KVHeads: 2,
			Context: 32768, Vocab: 30000, Type: "Q8_0", Tied: true}, o: Options{ContextTokens: 1024, Sequences: 8, StepTokens: 128}},
		"one KV head, sliding windows": {m: ggufgen.Model{Architecture: "gemma3", Layers: 26, Embedding: 1152, FeedForward: 6912, Heads: 4,
			KVHeads: 1, HeadLength: 256, Context: 32768, Vocab: 50000, Type: "Q8_0", Tied: true, SlidingWindow: 512},
			o: Options{ContextTokens: 1024, Sequences: 4, StepTokens: 512}},
		"experts": {m: ggufgen.Model{Architecture: "qwen3moe", Layers: 6, Embedding: 2048, FeedForward: 6144, Heads: 32, KVHeads: 4,
			HeadLength: 128, Context: 32768, Vocab: 30000, Type: "Q4_0", Experts: 32, ExpertsUsed: 8, ExpertFeedForward: 768},
			o: Options{ContextTokens: 2048, Sequences: 8, StepTokens: 512}},
		"compressed attention": {m: ggufgen.Model{Architecture: "deepseek2", Layers: 6, Embedding: 2048, FeedForward: 10944, Heads: 16,
			KVHeads: 16, HeadLength: 192, Context: 32768, Vocab: 30000, Type: "Q4_0", Experts: 16, ExpertsUsed: 6, ExpertFeedForward: 1408,
			MLA: &ggufgen.MLA{QRank: 1536, KVRank: 512, Rope: 64, ValueLength: 128, DenseLayers: 1, SharedExperts: 2}},
			o: Options{ContextTokens: 4096, Sequences: 4, StepTokens: 512}},
		"a long context of 8 bits": {m: ggufgen.Model{Architecture: "llama", Layers: 16, Embedding: 2048, FeedForward: 8192, Heads: 32, KVHeads: 8,
			Context: 131072, Vocab: 30000, Type: "Q4_0"}, o: Options{ContextTokens: 32768, Sequences: 1, StepTokens: 256, KV: Q8}},
		"Llama-3.1-70B, 16 sequences of 8,192 tokens": {m: llama70, o: Options{ContextTokens: 8192, Sequences: 16, StepTokens: 512}, simulate: true},
		"Llama-3.1-70B at its full length":            {m: llama70, o: Options{ContextTokens: 131072, Sequences: 1, StepTokens: 512, KV: Q8}, simulate: true},
		"Mixtral-8x7B": {m: ggufgen.Model{Architecture: "llama", Layers: 32, Embedding: 4096, FeedForward: 14336, Heads: 32, KVHeads: 8,
			Context: 32768, Vocab: 32000, Type: "Q4_0", Experts: 8, ExpertsUsed: 2, ExpertFeedForward: 14336},
			o: Options{ContextTokens: 4096, Sequences: 16, StepTokens: 512}, simulate: true},
		"Qwen3-30B-A3B": {m: ggufgen.Model{Architecture: "qwen3moe", Layers: 48, Embedding: 2048, FeedForward: 6144, Heads: 32, KVHeads: 4,
			HeadLength: 128, Context: 40960, Vocab: 151936, Type: "Q4_0", Experts: 128, ExpertsUsed: 8, ExpertFeedForward: 768},
			o: Options{ContextTokens: 8192, Sequences: 32, StepTokens: 512}, simulate: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.o
			o.Engine, o.MemoryBytes = LlamaCpp, 1<<40
			if o.KV == "" {
				o.KV = F16
			}
			s, got := load(t, &c.m, o, c.simulate)
			p, err := New(s, o)
			if err != nil {
				t.Fatal(err)
			}
			d := p.Devices[0]
			within(t, "weights", float64(d.Weights), got.weights)
			within(t, "KV cache", float64(d.KV), got.kv)
			within(t, "compute", float64(d.Compute), got.compute+got.output)
			within(t, "sum", float64(d.Total()-d.Runtime), got.weights+got.kv+got.compute+got.output)
		})
	}
}

// within checks that a figure is no more than 5 % off.
func within(t *testing.T, what string, planned, allocated float64) {
	t.Helper()
	off := 100 * (planned/allocated - 1)
	t.Logf("%-8s planned %10.2f MiB, allocated %10.2f MiB, %+.2f %%", what, planned/mib, allocated/mib, off)
	if !(off >= -5 && off <= 5) {
		t.Errorf("%s: planned %.2f MiB, the library allocates %.2f MiB: %+.1f %%", what, planned/mib, allocated/mib, off)
	}
}
