// Package shape writes a model's shape into a worker's report and reads it out of one. What comes out of a report is
// bounded as a file's is: a report is another process's word. What a shape costs is memoryplan's business.
package shape

import (
	"fmt"

	"github.com/ringfleet/ringfleet/api/modelfile"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// Pack returns s for a report; nil for nil.
func Pack(s *modelfile.Shape) *workerv1.ModelShape {
	if s == nil {
		return nil
	}
	out := &workerv1.ModelShape{
		Name: s.Name, Architecture: s.Architecture, Type: s.Type, Parameters: s.Parameters, WeightBytes: s.WeightBytes, Counted: s.Counted,
		InputBytes: s.InputBytes, OutputBytes: s.OutputBytes, Tied: s.Tied,
		Embedding: uint32(s.Embedding), FeedForward: uint32(s.FeedForward), Heads: uint32(s.Heads), Vocab: uint32(s.Vocab), Context: uint32(s.Context),
		Experts: uint32(s.Experts), ExpertsUsed: uint32(s.ExpertsUsed), ExpertFeedForward: uint32(s.ExpertFeedForward),
		SharedFeedForward: uint32(s.SharedFeedForward),
	}
	for i, l := range s.Layers {
		if i > 0 && l == s.Layers[i-1] {
			out.Layers[len(out.Layers)-1].Count++
			continue
		}
		out.Layers = append(out.Layers, &workerv1.LayerRun{Count: 1, KvHeads: uint32(l.KVHeads), KeyLength: uint32(l.KeyLength),
			ValueLength: uint32(l.ValueLength), Window: uint32(l.Window), Bytes: l.Bytes})
	}
	if m := s.MLA; m != nil {
		out.Mla = &workerv1.CompressedAttention{Rank: uint32(m.Rank), Rope: uint32(m.Rope), KeyLength: uint32(m.KeyLength), ValueLength: uint32(m.ValueLength)}
	}
	return out
}

// maxLayers and maxBytes bound what is read: the library has 512 layers, and no machine has as much memory.
const (
	maxLayers = 1 << 10
	maxBytes  = 1 << 50
)

// Unpack returns the shape that Pack wrote; nil for nil. The error says what no model has.
func Unpack(p *workerv1.ModelShape) (*modelfile.Shape, error) {
	if p == nil {
		return nil, nil
	}
	s := &modelfile.Shape{
		Name: p.GetName(), Architecture: p.GetArchitecture(), Type: p.GetType(), Parameters: p.GetParameters(), WeightBytes: p.GetWeightBytes(),
		Counted: p.GetCounted(), InputBytes: p.GetInputBytes(), OutputBytes: p.GetOutputBytes(), Tied: p.GetTied(),
		Embedding: int(p.GetEmbedding()), FeedForward: int(p.GetFeedForward()), Heads: int(p.GetHeads()), Vocab: int(p.GetVocab()),
		Context: int(p.GetContext()), Experts: int(p.GetExperts()), ExpertsUsed: int(p.GetExpertsUsed()),
		ExpertFeedForward: int(p.GetExpertFeedForward()), SharedFeedForward: int(p.GetSharedFeedForward()),
	}
	for _, of := range []struct {
		what string
		n    uint64
	}{
		{"parameters", s.Parameters}, {"bytes of weights", s.WeightBytes}, {"bytes of embeddings", s.InputBytes},
		{"bytes of the output", s.OutputBytes},
	} {
		if of.n > maxBytes {
			return nil, fmt.Errorf("read a reported shape: %d %s, expected at most %d", of.n, of.what, uint64(maxBytes))
		}
	}
	for _, run := range p.GetLayers() {
		if n := len(s.Layers) + int(run.GetCount()); run.GetCount() < 1 || n > maxLayers || run.GetBytes() > maxBytes {
			return nil, fmt.Errorf("read a reported shape: a run of %d layers of %d bytes, expected at least one, and %d in all of at most %d bytes each",
				run.GetCount(), run.GetBytes(), maxLayers, uint64(maxBytes))
		}
		for range run.GetCount() {
			s.Layers = append(s.Layers, modelfile.Layer{KVHeads: int(run.GetKvHeads()), KeyLength: int(run.GetKeyLength()),
				ValueLength: int(run.GetValueLength()), Window: int(run.GetWindow()), Bytes: run.GetBytes()})
		}
	}
	if m := p.GetMla(); m != nil {
		s.MLA = &modelfile.MLA{Rank: int(m.GetRank()), Rope: int(m.GetRope()), KeyLength: int(m.GetKeyLength()), ValueLength: int(m.GetValueLength())}
	}
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("read a reported shape: %w", err)
	}
	return s, nil
}
