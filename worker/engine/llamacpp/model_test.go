package llamacpp

import (
	"os"
	"strings"
	"testing"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/api/modelfile/ggufgen"
)

func tensorsOf(t *testing.T, m ggufgen.Model) map[string]modelfile.Tensor {
	t.Helper()
	path := written(t, m)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	about, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	head, err := modelfile.ReadGGUF(f, about.Size())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]modelfile.Tensor{}
	for _, tensor := range head.Tensors {
		out[tensor.Name] = tensor
	}
	return out
}

// latent is a small model with multi-head latent attention.
func latent() ggufgen.Model {
	return ggufgen.Model{Architecture: "deepseek2", Name: "Latent", Layers: 2, Embedding: 256, FeedForward: 128, Heads: 2, KVHeads: 2,
		HeadLength: 96, Context: 512, Vocab: 300, Type: "Q8_0", Seed: 5, Experts: 4, ExpertsUsed: 2, ExpertFeedForward: 64,
		MLA: &ggufgen.MLA{QRank: 64, KVRank: 64, Rope: 32, ValueLength: 64, DenseLayers: 1, SharedExperts: 1}}
}

func TestLatentAttentionOnACPUWithAMXUsesNoExtraBuffers(t *testing.T) {
	const without = "CPU : SSE3 = 1 | AVX512 = 1 | AVX512_VNNI = 1 | REPACK = 1 | "
	const with = without + "AMX_INT8 = 1 | "
	cases := map[string]struct {
		model  ggufgen.Model
		system string
		want   uint8
	}{
		"latent attention, AMX":    {latent(), with, 0},
		"latent attention, no AMX": {latent(), without, 1},
		"other attention, AMX":     {small(), with, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := extraBuffers(tensorsOf(t, c.model), c.system); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestTheLibraryTellsTheCPUsFeaturesAsTheyAreRead(t *testing.T) {
	openMade(t, latent())
	if info := llama.PrintSystemInfo(); !strings.Contains(info, " SSE3 = 1") && !strings.Contains(info, " NEON = 1") {
		t.Errorf("the library says of the CPU %q", info)
	}
}
