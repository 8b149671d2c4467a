package ggufgen

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/api/modelfile"
)

// mixed is a small model with experts behind a dense layer and compressed attention.
func mixed() Model {
	return Model{Architecture: "deepseek2", Layers: 2, Embedding: 64, FeedForward: 128, Heads: 2, KVHeads: 2, HeadLength: 96, Context: 128,
		Vocab: 300, Experts: 4, ExpertsUsed: 2, ExpertFeedForward: 32, Type: "F16", Seed: 7,
		MLA: &MLA{QRank: 32, KVRank: 64, Rope: 32, ValueLength: 64, DenseLayers: 1, SharedExperts: 1}}
}

func TestTheGoldenModelIsTheSameOnEveryMachine(t *testing.T) {
	golden := Golden()
	hash := sha256.New()
	n, err := golden.WriteTo(hash)
	if err != nil {
		t.Fatal(err)
	}
	const want = "c6882f1717bfc8013c355dd493fcadcc26b5aca866ff9f6ec95eba3e1ce30b66"
	if got := fmt.Sprintf("%x", hash.Sum(nil)); got != want || n < 3<<20 || n > 4<<20 {
		t.Errorf("%d bytes of sha256 %s, want %s", n, got, want)
	}
}

func TestFilesAreSound(t *testing.T) {
	small := Model{Architecture: "llama", Layers: 2, Embedding: 64, FeedForward: 96, Heads: 4, KVHeads: 2, Context: 128, Vocab: 300, Type: "Q4_0", Seed: 3}
	for name, m := range map[string]Model{
		"dense":             small,
		"tied, single":      {Architecture: "qwen2", Layers: 1, Embedding: 32, FeedForward: 64, Heads: 1, KVHeads: 1, Context: 64, Vocab: 259, Type: "F32", Seed: 1, Tied: true},
		"a sliding window":  {Architecture: "gemma3", Layers: 2, Embedding: 32, FeedForward: 64, Heads: 1, KVHeads: 1, Context: 64, Vocab: 259, Type: "Q8_0", Seed: 1, SlidingWindow: 16, Tied: true},
		"experts":           {Architecture: "qwen3moe", Layers: 2, Embedding: 64, FeedForward: 96, Heads: 4, KVHeads: 2, Context: 128, Vocab: 300, Type: "Q8_0", Seed: 3, Experts: 4, ExpertsUsed: 2, ExpertFeedForward: 32},
		"compressed":        mixed(),
		"with a template":   {Architecture: "qwen3", Layers: 1, Embedding: 32, FeedForward: 64, Heads: 1, KVHeads: 1, Context: 64, Vocab: 259, Type: "F16", Seed: 1, Template: "{{ messages }}"},
		"without any seed ": {Architecture: "llama", Layers: 1, Embedding: 32, FeedForward: 64, Heads: 1, KVHeads: 1, Context: 64, Vocab: 259, Type: "F16"},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			n, err := m.WriteTo(&b)
			if err != nil || n != int64(b.Len()) {
				t.Fatalf("wrote %d of %d bytes: %v", n, b.Len(), err)
			}
			g, err := modelfile.ReadGGUF(bytes.NewReader(b.Bytes()), n)
			if err != nil {
				t.Fatal(err)
			}
			vocab, _ := g.Len("tokenizer.ggml.tokens")
			if g.Architecture != m.Architecture || g.ContextTokens() != uint64(m.Context) || vocab != uint64(m.Vocab) || g.HasTemplate != (m.Template != "") {
				t.Errorf("got %+v", *g)
			}
		})
	}
}

func TestAHoleIsAsLongAsZeros(t *testing.T) {
	m := mixed()
	m.Seed = 0
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := m.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != int64(b.Len()) {
		t.Errorf("%d bytes, want %d: %v", info.Size(), b.Len(), err)
	}
}

func TestWordsDiffer(t *testing.T) {
	m := Golden()
	m.Vocab = 20_000
	seen := map[string]bool{}
	for _, w := range m.Vocabulary() {
		if seen[w] {
			t.Fatalf("%q is there twice", w)
		}
		seen[w] = true
	}
}

func TestShapesThatCantBeAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Model)
		says   string
	}{
		"an unknown architecture": {func(m *Model) { m.Architecture = "gpt9" }, `"gpt9"`},
		"no layers":               {func(m *Model) { m.Layers = 0 }, "are 0,"},
		"a vocabulary of nothing": {func(m *Model) { m.Vocab = 3 }, "expected at least 259"},
		"an unknown type":         {func(m *Model) { m.Type = "Q9" }, `"Q9"`},
		"rows of half a block":    {func(m *Model) { m.Embedding = 240 }, "token_embd.weight"},
		"MLA where there is none": {func(m *Model) { m.MLA = &MLA{} }, "don't go together"},
	} {
		t.Run(name, func(t *testing.T) {
			m := Golden()
			c.change(&m)
			if _, err := m.WriteTo(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}
