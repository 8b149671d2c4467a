package memoryplan

import (
	"math"

	"github.com/ringfleet/ringfleet/api/modelfile"
)

// lay works out the parts of every device.
func lay(s *modelfile.Shape, o Options) *Plan {
	p := &Plan{Options: o, Budget: o.MemoryBytes / 100 * uint64(o.UsePercent)}
	for _, l := range s.Layers {
		switch {
		case o.Engine == LlamaCpp:
			p.TokenBytes += o.layerBytes(s, l)
		case l.Window == 0 || o.ContextTokens < l.Window:
			p.TokenBytes += o.layerBytes(s, l) * uint64(max(o.GPUs, 1))
		}
	}
	switch {
	case o.GPUs == 0:
		p.Devices = []Parts{{Weights: s.WeightBytes, KV: kv(s, o, s.Layers), Compute: compute(s, o) + outputs(s, o), Runtime: o.RuntimeBytes}}
	case o.Engine == VLLM:
		each := Parts{Weights: divide(s.WeightBytes, o.GPUs), KV: kv(s, o, s.Layers), Compute: compute(s, o), Runtime: o.RuntimeBytes}
		for range o.GPUs {
			p.Devices = append(p.Devices, each)
		}
	default:
		p.Devices = layered(s, o)
		p.HostBytes = s.InputBytes + outputs(s, o)
	}
	p.Fits = true
	for i, d := range p.Devices {
		p.Fits = p.Fits && d.Total() <= p.Budget
		if d.Total() > p.Devices[p.Fullest].Total() {
			p.Fullest = i
		}
	}
	return p
}

// layered shares the layers out among the GPUs: as many on each, the matrix of the output counting as one more. The token
// embeddings stay in the container's memory.
func layered(s *modelfile.Shape, o Options) []Parts {
	n := len(s.Layers) + 1
	rest := s.WeightBytes - min(s.InputBytes, s.WeightBytes) // what belongs to no layer and is not the input
	for _, l := range s.Layers {
		rest -= min(l.Bytes, rest)
	}
	if s.Tied {
		rest += s.OutputBytes // a second copy
	}
	devices := make([]Parts, o.GPUs)
	for i := range devices {
		from, to := i*n/o.GPUs, (i+1)*n/o.GPUs
		d := Parts{Compute: compute(s, o), Runtime: o.RuntimeBytes}
		if to == n {
			to--
			d.Weights += rest
		}
		for _, l := range s.Layers[from:to] {
			d.Weights += l.Bytes
		}
		d.KV = kv(s, o, s.Layers[from:to])
		devices[i] = d
	}
	return devices
}

// kv is the cache of some layers on one device.
func kv(s *modelfile.Shape, o Options, layers []modelfile.Layer) uint64 {
	var sum float64
	for _, l := range layers {
		each := o.ContextTokens
		if l.Window > 0 && o.Engine == VLLM {
			each = min(each, l.Window+o.StepTokens)
		}
		sum += float64(o.layerBytes(s, l)) * float64(o.cells(each))
	}
	return uint64(min(sum, maxMemory*2))
}

// layerBytes is what a token of a layer takes on one device that has the layer.
func (o Options) layerBytes(s *modelfile.Shape, l modelfile.Layer) uint64 {
	heads := l.KVHeads
	if o.GPUs > 1 && o.Engine == VLLM && s.MLA == nil {
		heads = (heads + o.GPUs - 1) / o.GPUs // fewer heads than GPUs: each has a copy
	}
	return o.bytes(heads*l.KeyLength) + o.bytes(heads*l.ValueLength)
}

// bytes is the size of n cached numbers; 0 for n > 0 where the engine doesn't have the type.
func (o Options) bytes(n int) uint64 {
	switch {
	case o.KV == F16:
		return 2 * uint64(n)
	case o.KV == Q8 && o.Engine == LlamaCpp:
		return uint64((n+31)/32) * 34
	case o.KV == FP8 && o.Engine == VLLM:
		return uint64(n)
	}
	return 0
}

// cells is how many tokens the cache holds: each tokens of every sequence, or of all where they share. llama.cpp has one pool
// of a multiple of 256 for all sequences, vLLM blocks of 16 for each.
func (o Options) cells(each int) uint64 {
	n := uint64(o.Sequences)
	if o.Shared {
		n = 1
	}
	if o.Engine == LlamaCpp {
		return (uint64(each)*n + 255) / 256 * 256
	}
	return (uint64(each) + 15) / 16 * 16 * n
}

// step is how many tokens are computed at a time: for llama.cpp no more than there are cells, and as many of each sequence.
func (o Options) step() int {
	if o.Engine != LlamaCpp {
		return o.StepTokens
	}
	n := int(min(uint64(o.StepTokens), o.cells(o.ContextTokens)))
	return (n + o.Sequences - 1) / o.Sequences * o.Sequences
}

// outputs is where llama.cpp leaves the logits of all sequences, in the container's memory.
func outputs(s *modelfile.Shape, o Options) uint64 { return 4 * uint64(o.Sequences) * uint64(s.Vocab) }

func divide(n uint64, by int) uint64 { return uint64(math.Ceil(float64(n) / float64(by))) }
