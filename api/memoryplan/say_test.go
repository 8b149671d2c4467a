package memoryplan

import (
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/api/modelfile"
)

// room is what a worker of llama.cpp with 8192 tokens for 16 running and 16 idle sequences asks for.
func room() Options {
	return Options{Engine: LlamaCpp, MemoryBytes: 200 << 30, ContextTokens: 8192, Shared: true, Sequences: 32}
}

func TestASharedRoomIsCountedOnceWhateverTheSequences(t *testing.T) {
	s := llama70(t)
	for _, e := range []Engine{LlamaCpp, VLLM} {
		o := room()
		o.Engine, o.GPUs = e, 1
		for _, n := range []int{1, 32} {
			o.Sequences = n
			if p := plan(t, s, o); p.Devices[0].KV != 8192*p.TokenBytes {
				t.Errorf("%s: the cache of 8192 tokens for %d sequences has %d bytes, at %d a token", e, n, p.Devices[0].KV, p.TokenBytes)
			}
		}
	}
	o := room()
	o.ContextTokens = 131072 // 32 of them would be more than the driver has
	if p := plan(t, s, o); p.Devices[0].KV != 131072*p.TokenBytes {
		t.Errorf("the cache has %d bytes", p.Devices[0].KV)
	}
	o.ContextTokens = maxCells + 1
	if _, err := New(s, o); err == nil {
		t.Error("a room of more tokens than the driver has was planned")
	}
}

// Every way of a shared room makes it fit; for the room itself and the memory, a little less does not.
func TestEveryWayOfASharedRoomFits(t *testing.T) {
	s := llama70(t)
	o := room()
	o.MemoryBytes = 148 << 30 // a little too small
	o.ContextTokens = 32768
	p := plan(t, s, o)
	if p.Fits || len(p.Ways) < 2 {
		t.Fatalf("got %+v", p)
	}
	for _, w := range p.Ways {
		if w.Change == ShorterContext { // of the others TestEveryWayFits speaks
			o.ContextTokens = int(w.Value)
			if !plan(t, s, o).Fits {
				t.Errorf("a room of %d tokens doesn't fit", o.ContextTokens)
			}
			o.ContextTokens += 1024
			if plan(t, s, o).Fits {
				t.Errorf("a room of %d tokens fits, too", o.ContextTokens)
			}
		}
	}
}

func TestAPlanIsSaidInTheWordsOfTheObjects(t *testing.T) {
	terms := Terms{Idle: IdleSequences, Parallelism: "parallelism.tensor"}
	for name, c := range map[string]struct {
		s     *modelfile.Shape
		o     func(*Options)
		terms Terms
		want  []string
		not   []string
	}{
		"it fits": {llama70(t), func(*Options) {}, terms,
			[]string{"a worker needs 134.2 GiB (weights 131.4 GiB, KV cache 2560 MiB, buffers and process ", "and 180.0 GiB may be used (90 % of 200.0 GiB)"}, []string{"enough"}},
		"a container is too small": {llama70(t), func(o *Options) { o.MemoryBytes = 100 << 30 }, terms,
			[]string{"one of these is enough: weights of at most ", "; workerResources.limits.memory: 152736Mi"}, []string{"parallelism", "kvCacheType"}},
		"a container is a little too small": {llama70(t), func(o *Options) { o.MemoryBytes = 148 << 30 }, terms,
			[]string{"engine.kvCacheType: Q8; engine.contextTokens: 4096; weights of at most", "workerResources.limits.memory: "}, nil},
		"GPUs are too small": {llama70(t), func(o *Options) { o.GPUs, o.MemoryBytes = 2, 40960*mib }, terms,
			[]string{"the fullest of a worker's 2 GPUs needs", "parallelism.tensor: 4 (4 GPUs)", "a larger GPU, such as NVIDIA-H100-80GB-HBM3"}, []string{"limits.memory"}},
		"more GPUs than llama.cpp can use": {llama70(t), func(o *Options) { o.GPUs, o.MemoryBytes = 1, 8<<30 }, terms,
			[]string{"a worker's GPU needs"}, []string{"parallelism"}},
		"groups of GPUs": {llama70(t), func(o *Options) { o.Engine, o.GPUs, o.MemoryBytes = VLLM, 1, 81559*mib }, Terms{Parallelism: "parallelism.tensor", Groups: 2},
			[]string{"the fullest of a worker's 2 GPUs needs", "parallelism.tensor: 2 (4 GPUs)"}, nil},
	} {
		o := room()
		c.o(&o)
		said := plan(t, c.s, o).Say(c.terms)
		for _, w := range c.want {
			if !strings.Contains(said, w) {
				t.Errorf("%s: %q lacks %q", name, said, w)
			}
		}
		for _, w := range c.not {
			if strings.Contains(said, w) {
				t.Errorf("%s: %q has %q", name, said, w)
			}
		}
	}
}

func TestGPUsAreKnownByTheLabelOfTheirNode(t *testing.T) {
	for product, mib := range map[string]uint64{
		"NVIDIA-H100-80GB-HBM3": 81559, "NVIDIA-A100-SXM4-80GB": 81920, "NVIDIA-L4": 23034, "Tesla-T4": 15360, "NVIDIA-H200": 143771,
		"Tesla-T4-SHARED": 15360, "nvidia-l4": 23034, "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb": 0, "": 0, "NVIDIA-L": 0,
	} {
		if a, ok := Known(product); a.MiB != mib || ok != (mib > 0) {
			t.Errorf("%q is %+v, %t", product, a, ok)
		}
	}
}
