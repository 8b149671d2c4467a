package memoryplan

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringfleet/ringfleet/api/modelfile"
)

// edge draws a number, often one of the ends.
func edge(t *rapid.T, name string, least, most int) int {
	if n := rapid.IntRange(0, 3).Draw(t, name+"'s kind"); n < 2 {
		return []int{least, most}[n]
	}
	return rapid.IntRange(least, most).Draw(t, name)
}

// described draws a shape that a file may describe, however absurd: within what modelfile lets through.
func described(t *rapid.T) *modelfile.Shape {
	const width, heads, length, context = 1 << 20, 1 << 12, 1 << 13, 1 << 28
	s := &modelfile.Shape{
		Embedding: edge(t, "embedding", 1, width/4), Heads: edge(t, "heads", 1, heads), Vocab: edge(t, "vocab", 1, 4*width),
		FeedForward: edge(t, "feed-forward", 0, width), Context: edge(t, "context", 0, context), Experts: edge(t, "experts", 0, heads),
		ExpertFeedForward: edge(t, "experts' width", 0, width), SharedFeedForward: edge(t, "shared width", 0, width),
		Tied: rapid.Bool().Draw(t, "tied"), Parameters: rapid.Uint64().Draw(t, "parameters"),
		WeightBytes: uint64(edge(t, "weights", 0, math.MaxInt64)),
	}
	s.InputBytes, s.OutputBytes = s.WeightBytes/4, s.WeightBytes/4
	s.ExpertsUsed = edge(t, "experts used", 0, s.Experts)
	layer := modelfile.Layer{KVHeads: edge(t, "KV heads", 0, heads), KeyLength: edge(t, "key", 1, length),
		ValueLength: edge(t, "value", 0, length), Window: edge(t, "window", 0, context)}
	n := edge(t, "layers", 1, 1<<10)
	layer.Bytes = s.WeightBytes / 2 / uint64(n)
	s.Layers = slices.Repeat([]modelfile.Layer{layer}, n)
	if rapid.Bool().Draw(t, "MLA") {
		s.MLA = &modelfile.MLA{Rank: edge(t, "rank", 1, width), Rope: edge(t, "rope", 0, length), ValueLength: edge(t, "MLA value", 1, length)}
		s.MLA.KeyLength = edge(t, "MLA key", s.MLA.Rope, length)
	}
	return s
}

// TestNoShapeMakesAPlanOverflow: a sum that wraps around would let a model that can't fit pass for one that does.
func TestNoShapeMakesAPlanOverflow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := described(t)
		o := Options{
			Engine: rapid.SampledFrom([]Engine{LlamaCpp, VLLM}).Draw(t, "engine"), GPUs: edge(t, "GPUs", 0, 8),
			MemoryBytes:   uint64(edge(t, "memory", mib, maxMemory)),
			ContextTokens: edge(t, "tokens", 1, 1<<20), Sequences: edge(t, "sequences", 1, 4),
		}
		p, err := New(s, o)
		if err != nil {
			return
		}
		for i, d := range p.Devices {
			parts := float64(d.Weights) + float64(d.KV) + float64(d.Compute) + float64(d.Runtime)
			if got := float64(d.Total()); math.Abs(got-parts) > parts/1e6 {
				t.Errorf("device %d has %v bytes in all; its parts are %v", i, got, parts)
			}
			if p.Fits && d.Total() > p.Budget {
				t.Errorf("device %d needs %d of %d bytes, and that fits", i, d.Total(), p.Budget)
			}
		}
		weights, all := 0.0, 0.0
		for _, d := range p.Devices {
			weights += float64(d.Weights)
			all += float64(d.Total())
		}
		if o.GPUs == 0 && weights < float64(s.WeightBytes)*0.999 {
			t.Errorf("of %d bytes of weights %v are planned", s.WeightBytes, weights)
		}
		if p.Fits && all > float64(p.Budget)*float64(len(p.Devices)) {
			t.Errorf("%v bytes fit in %d × %d", all, len(p.Devices), p.Budget)
		}
	})
}
