package modelfile_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/api/modelfile/ggufgen"
)

func head(t *testing.T, m ggufgen.Model) *modelfile.GGUF {
	t.Helper()
	m.Seed, m.Vocab, m.Type, m.Context = 0, 300, "F16", 4096
	var b bytes.Buffer
	n, err := m.WriteTo(&b)
	if err != nil {
		t.Fatal(err)
	}
	g, err := modelfile.ReadGGUF(bytes.NewReader(b.Bytes()), n)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestAHeadDescribesTheModel(t *testing.T) {
	dense := ggufgen.Model{Architecture: "llama", Layers: 3, Embedding: 64, FeedForward: 96, Heads: 4, KVHeads: 2}
	g := head(t, dense)
	s, err := modelfile.GGUFShape(g)
	if err != nil {
		t.Fatal(err)
	}
	if s.Architecture != "llama" || s.Embedding != 64 || s.FeedForward != 96 || s.Heads != 4 || s.Vocab != 300 || s.Context != 4096 ||
		s.Type != "F16" || s.Tied || len(s.Layers) != 3 || s.Parameters != g.Parameters {
		t.Errorf("got %+v", *s)
	}
	if l := s.Layers[2]; l.KVHeads != 2 || l.KeyLength != 16 || l.ValueLength != 16 || l.Window != 0 {
		t.Errorf("the last layer is %+v", l)
	}
	const norm = 64 * 4 // bytes of the vector that belongs to no layer
	if sum := s.InputBytes + s.OutputBytes + 3*s.Layers[0].Bytes + norm; sum != s.WeightBytes || s.InputBytes != 300*64*2 {
		t.Errorf("the parts add up to %d of %d bytes", sum, s.WeightBytes)
	}
	if s.AttentionWidth() != 64 || s.OutputWidth() != 64 || s.KVWidth() != 32 {
		t.Errorf("the widths are %d, %d and %d", s.AttentionWidth(), s.OutputWidth(), s.KVWidth())
	}
}

func TestATiedMatrixIsInputAndOutput(t *testing.T) {
	s, err := modelfile.GGUFShape(head(t, ggufgen.Model{Architecture: "qwen2", Layers: 1, Embedding: 64, FeedForward: 96, Heads: 4, KVHeads: 2, Tied: true}))
	if err != nil || !s.Tied || s.OutputBytes != s.InputBytes || s.InputBytes == 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestFiveOfSixLayersSlide(t *testing.T) {
	s, err := modelfile.GGUFShape(head(t, ggufgen.Model{Architecture: "gemma3", Layers: 7, Embedding: 64, FeedForward: 96, Heads: 4, KVHeads: 1,
		HeadLength: 32, SlidingWindow: 512}))
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range s.Layers {
		if want := map[bool]int{true: 0, false: 512}[i == 5]; l.Window != want || l.KeyLength != 32 {
			t.Errorf("layer %d is %+v", i, l)
		}
	}
}

func TestCompressedAttentionCachesOneKey(t *testing.T) {
	s, err := modelfile.GGUFShape(head(t, ggufgen.Model{Architecture: "deepseek2", Layers: 2, Embedding: 64, FeedForward: 128, Heads: 4, KVHeads: 4, HeadLength: 96,
		Experts: 8, ExpertsUsed: 2, ExpertFeedForward: 32, MLA: &ggufgen.MLA{QRank: 32, KVRank: 64, Rope: 32, ValueLength: 64, DenseLayers: 1, SharedExperts: 2}}))
	if err != nil {
		t.Fatal(err)
	}
	if l := s.Layers[1]; l.KVHeads != 1 || l.KeyLength != 96 || l.ValueLength != 0 || s.MLA == nil || *s.MLA != (modelfile.MLA{Rank: 64, Rope: 32, KeyLength: 96, ValueLength: 64}) {
		t.Errorf("got %+v and %+v", l, s.MLA)
	}
	if s.Experts != 8 || s.ExpertsUsed != 2 || s.ExpertFeedForward != 32 || s.SharedFeedForward != 64 || s.OutputWidth() != 4*64 {
		t.Errorf("got %+v", *s)
	}
}

func TestAllPartsOfAModelAreNeeded(t *testing.T) {
	g := head(t, ggufgen.Model{Architecture: "llama", Layers: 1, Embedding: 64, FeedForward: 96, Heads: 4, KVHeads: 2})
	g.Parts = 2
	var refused *modelfile.Error
	if _, err := modelfile.GGUFShape(g); !errors.As(err, &refused) || !strings.Contains(refused.Says, "one of 2 parts; expected all, found 1") {
		t.Errorf("got %v", err)
	}
	s, err := modelfile.GGUFShape(g, g)
	if err != nil || s.Parameters != 2*g.Parameters {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestARecurrentStateIsNotGuessed(t *testing.T) {
	g := head(t, ggufgen.Model{Architecture: "llama", Layers: 1, Embedding: 64, FeedForward: 96, Heads: 4, KVHeads: 2})
	g.Architecture = "mamba"
	if _, err := modelfile.GGUFShape(g); err == nil || !strings.Contains(err.Error(), "recurrent state") {
		t.Errorf("got %v", err)
	}
}

func TestPartsAreCalledByTheirNumbers(t *testing.T) {
	if name, ok := modelfile.PartName("Big-Q8_0-00001-of-00012.gguf", 12); !ok || name != "Big-Q8_0-00012-of-00012.gguf" {
		t.Errorf("got %q, %t", name, ok)
	}
	for _, bad := range []string{"Big.gguf", "Big-00002-of-00003.gguf", "Big-00001-of-00003.bin"} {
		if name, ok := modelfile.PartName(bad, 2); ok {
			t.Errorf("%s has a part %s", bad, name)
		}
	}
}
