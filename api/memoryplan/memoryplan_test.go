package memoryplan

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringfleet/ringfleet/api/modelfile"
)

// llama70 is Llama-3.1-70B in BF16: 141 GB.
func llama70(t testing.TB) *modelfile.Shape {
	t.Helper()
	s, err := modelfile.ConfigShape([]byte(`{"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
		"num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const gb = 1_000_000_000

func h100s(n int) Options {
	return Options{Engine: VLLM, GPUs: n, MemoryBytes: 81559 * mib, ContextTokens: 8192, Sequences: 16}
}

func plan(t testing.TB, s *modelfile.Shape, o Options) *Plan {
	t.Helper()
	p, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAHundredAndFortyGigabytesLieOnFourGPUsOfEighty(t *testing.T) {
	o := h100s(4)
	o.MemoryBytes = 80 * gb
	p := plan(t, llama70(t), o)
	if !p.Fits || len(p.Devices) != 4 {
		t.Fatalf("got %+v", p)
	}
	// 141.1 GB / 4; 80 layers × 2 of 8 KV heads × 128 numbers × 2 (K and V) × 2 bytes × 16 × 8192 tokens
	if d := p.Devices[3]; d.Weights/gb != 35 || d.KV != 80*2*128*2*2*16*8192 || d.Total() > 72*gb {
		t.Errorf("a GPU holds %+v", d)
	}
	if p.TokenBytes != 320<<10 {
		t.Errorf("a token takes %d bytes, want 320 KiB", p.TokenBytes)
	}
	if p.MostSequences < 40 || p.MostSequences > 52 { // some 31 GB are left for the cache of 671 MB a sequence
		t.Errorf("%d sequences fit", p.MostSequences)
	}
}

func TestOneGPUIsTooSmallAndTheWaysOutAreListed(t *testing.T) {
	p := plan(t, llama70(t), h100s(1))
	if p.Fits || p.MostSequences != 0 {
		t.Fatalf("got %+v", p)
	}
	if len(p.Ways) != 2 || p.Ways[0] != (Way{Change: MoreGPUs, Value: 4}) || p.Ways[1].Change != SmallerWeights || p.Ways[1].Value/gb != 28 {
		t.Errorf("the ways are %+v", p.Ways)
	}
}

func TestWhatIsTooMuchForTwoGPUsCanBeHadInFiveWays(t *testing.T) {
	o := h100s(2)
	o.Sequences, o.StepTokens, o.RuntimeBytes = 6, 512, 1<<30
	p := plan(t, llama70(t), o)
	var changes []string
	for _, w := range p.Ways {
		changes = append(changes, string(w.Change))
	}
	if got, want := strings.Join(changes, " "), "SmallerKV FewerSequences ShorterContext MoreGPUs SmallerWeights"; p.Fits || got != want {
		t.Errorf("fits: %t, the ways are %+v", p.Fits, p.Ways)
	}
}

// Every way makes the plan fit, and one step less does not.
func TestEveryWayFits(t *testing.T) {
	s := llama70(t)
	rapid.Check(t, func(t *rapid.T) {
		o := anyOptions(t)
		p, err := New(s, o)
		if err != nil {
			t.Skip(err)
		}
		for _, w := range p.Ways {
			changed, shape, worse := p.Options, *s, p.Options
			switch w.Change {
			case FewerSequences:
				changed.Sequences, worse.Sequences = int(w.Value), int(w.Value)+1
			case ShorterContext:
				changed.ContextTokens, worse.ContextTokens = int(w.Value), int(w.Value)+1024
			case SmallerKV:
				changed.KV = w.KV
			case MoreGPUs:
				changed.GPUs = int(w.Value)
				for worse.GPUs = int(w.Value) - 1; !shares(s, worse); worse.GPUs-- {
				}
			case SmallerWeights:
				shape = scaled(s, w.Value)
			}
			if got, err := New(&shape, changed); err != nil || !got.Fits {
				t.Fatalf("%+v: %v, %+v", w, err, got)
			}
			if got, err := New(s, worse); err == nil && got.Fits {
				t.Fatalf("%+v is more than is needed: %+v fits", w, worse)
			}
		}
	})
}

// scaled is s with weights of so many bytes.
func scaled(s *modelfile.Shape, bytes uint64) modelfile.Shape {
	c, by := *s, float64(bytes)/float64(s.WeightBytes)*0.999
	scale := func(n uint64) uint64 { return uint64(float64(n) * by) }
	c.WeightBytes, c.InputBytes, c.OutputBytes, c.Layers = scale(s.WeightBytes), scale(s.InputBytes), scale(s.OutputBytes), nil
	for _, l := range s.Layers {
		l.Bytes = scale(l.Bytes)
		c.Layers = append(c.Layers, l)
	}
	return c
}

func anyOptions(t *rapid.T) Options {
	return Options{
		Engine:        rapid.SampledFrom([]Engine{LlamaCpp, VLLM}).Draw(t, "engine"),
		GPUs:          rapid.IntRange(0, 16).Draw(t, "GPUs"),
		MemoryBytes:   rapid.Uint64Range(4<<30, 400<<30).Draw(t, "memory"),
		ContextTokens: rapid.IntRange(1, 200_000).Draw(t, "context"),
		Sequences:     rapid.IntRange(1, 256).Draw(t, "sequences"),
		KV:            rapid.SampledFrom([]KVType{F16, Q8, FP8}).Draw(t, "KV"),
	}
}

func TestTheMostSequencesFitAndOneMoreDoesNot(t *testing.T) {
	s := llama70(t)
	rapid.Check(t, func(t *rapid.T) {
		o := anyOptions(t)
		p, err := New(s, o)
		if err != nil {
			t.Skip(err)
		}
		if p.Fits != (p.MostSequences >= o.Sequences) {
			t.Fatalf("fits: %t, %d of %d sequences fit", p.Fits, p.MostSequences, o.Sequences)
		}
		o.Sequences = p.MostSequences
		if got, err := New(s, o); o.Sequences > 0 && (err != nil || !got.Fits) {
			t.Fatalf("%d sequences don't fit: %v", o.Sequences, err)
		}
		o.Sequences++
		if got, err := New(s, o); err == nil && got.Fits {
			t.Fatalf("%d sequences fit, too", o.Sequences)
		}
	})
}

func TestLayersAreSharedOutWhole(t *testing.T) {
	s := llama70(t)
	for n := 1; n <= 81; n += 5 {
		o := Options{Engine: LlamaCpp, GPUs: min(n, MaxGPUs), MemoryBytes: 80 * gb, ContextTokens: 1024, Sequences: 1}
		p := plan(t, s, o)
		var weights, kv uint64
		for _, d := range p.Devices {
			weights, kv = weights+d.Weights, kv+d.KV
		}
		if weights+s.InputBytes != s.WeightBytes || kv != p.TokenBytes*1024 {
			t.Errorf("%d GPUs hold %d bytes of weights and %d of the cache", n, weights, kv)
		}
	}
}

func TestWhatATokenTakes(t *testing.T) {
	uniform := func(n int, l modelfile.Layer) *modelfile.Shape {
		s := &modelfile.Shape{Embedding: 4096, FeedForward: 4096, Heads: 32, Vocab: 1000, WeightBytes: gb}
		for range n {
			s.Layers = append(s.Layers, l)
		}
		return s
	}
	grouped := uniform(10, modelfile.Layer{KVHeads: 4, KeyLength: 128, ValueLength: 128})
	window := uniform(10, modelfile.Layer{KVHeads: 4, KeyLength: 128, ValueLength: 128, Window: 1000})
	mla := uniform(10, modelfile.Layer{KVHeads: 1, KeyLength: 576})
	mla.MLA = &modelfile.MLA{Rank: 512, Rope: 64, KeyLength: 192, ValueLength: 128}
	for name, c := range map[string]struct {
		s      *modelfile.Shape
		o      Options
		token  uint64
		kvEach uint64 // of one device, for one sequence of 2048
	}{
		"two bytes a number":              {grouped, Options{Engine: LlamaCpp, KV: F16}, 10 * 1024 * 2, 2048 * 10 * 1024 * 2},
		"34 bytes for 32 numbers":         {grouped, Options{Engine: LlamaCpp, KV: Q8}, 10 * 1024 * 34 / 32, 2048 * 10 * 1024 * 34 / 32},
		"a byte a number":                 {grouped, Options{Engine: VLLM, KV: FP8, GPUs: 1}, 10 * 1024, 2048 * 10 * 1024},
		"two GPUs share the heads":        {grouped, Options{Engine: VLLM, GPUs: 2}, 10 * 1024 * 2, 2048 * 10 * 512 * 2},
		"eight GPUs have copies of four":  {grouped, Options{Engine: VLLM, GPUs: 8}, 10 * 1024 * 2 * 2, 2048 * 10 * 256 * 2},
		"llama.cpp keeps a whole window":  {window, Options{Engine: LlamaCpp}, 10 * 1024 * 2, 2048 * 10 * 1024 * 2},
		"vLLM keeps the window":           {window, Options{Engine: VLLM, GPUs: 1, StepTokens: 24}, 0, 1024 * 10 * 1024 * 2},
		"a compressed key":                {mla, Options{Engine: LlamaCpp}, 10 * 576 * 2, 2048 * 10 * 576 * 2},
		"each GPU has the compressed key": {mla, Options{Engine: VLLM, GPUs: 4}, 4 * 10 * 576 * 2, 2048 * 10 * 576 * 2},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.MemoryBytes, c.o.ContextTokens, c.o.Sequences = 80*gb, 2048, 1
			p := plan(t, c.s, c.o)
			if p.TokenBytes != c.token || p.Devices[0].KV != c.kvEach {
				t.Errorf("a token takes %d and the cache %d bytes, want %d and %d", p.TokenBytes, p.Devices[0].KV, c.token, c.kvEach)
			}
		})
	}
}

func TestWithoutAGPUEverythingLiesInTheContainer(t *testing.T) {
	s := llama70(t)
	p := plan(t, s, Options{Engine: LlamaCpp, MemoryBytes: 200 << 30, ContextTokens: 1024, Sequences: 2})
	if len(p.Devices) != 1 || p.Devices[0].Weights != s.WeightBytes || p.HostBytes != 0 || p.Devices[0].Runtime != 256*mib || p.Options.StepTokens != 128 {
		t.Errorf("got %+v", p)
	}
}

func TestOptionsThatCantBeAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"no engine":                 {func(o *Options) { o.Engine = "" }, "expected llamacpp or vllm"},
		"no memory":                 {func(o *Options) { o.MemoryBytes = 0 }, "the memory 0"},
		"memory beyond all":         {func(o *Options) { o.MemoryBytes = 1 << 60 }, "the memory"},
		"negative GPUs":             {func(o *Options) { o.GPUs = -1 }, "GPUs -1"},
		"too many GPUs":             {func(o *Options) { o.GPUs = 65 }, "GPUs 65, expected 0 to 64"},
		"GPUs that can't share":     {func(o *Options) { o.GPUs = 3 }, "64 attention heads can't be shared out among 3 GPUs, expected 1, 2, 4, 8, 16, 32, 64"},
		"no sequence":               {func(o *Options) { o.Sequences = 0 }, "sequences 0"},
		"more than llama.cpp has":   {func(o *Options) { o.Engine, o.Sequences = LlamaCpp, 257 }, "257 sequences of 8192 tokens, expected at most 256"},
		"more tokens than it has":   {func(o *Options) { o.Engine, o.Sequences, o.ContextTokens = LlamaCpp, 33, 131072 }, "expected at most 32"},
		"a cache of another engine": {func(o *Options) { o.KV = Q8 }, `vllm has no KV cache of type "Q8"`},
		"an unknown cache":          {func(o *Options) { o.KV = "Q1" }, `"Q1"`},
		"more than all":             {func(o *Options) { o.UsePercent = 101 }, "percentage 101"},
		"a negative step":           {func(o *Options) { o.StepTokens = -1 }, "tokens of a step -1"},
	} {
		t.Run(name, func(t *testing.T) {
			o := h100s(4)
			c.change(&o)
			if _, err := New(llama70(t), o); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestTheContextIsTheModelsWhereNoneIsAsked(t *testing.T) {
	o := h100s(8)
	o.ContextTokens = 0
	if p := plan(t, llama70(t), o); p.Options.ContextTokens != 131072 {
		t.Errorf("planned for %d tokens", p.Options.ContextTokens)
	}
}
