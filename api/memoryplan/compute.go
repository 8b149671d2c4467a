package memoryplan

import "github.com/ringfleet/ringfleet/api/modelfile"

// pipeline is how many steps llama.cpp prepares at a time where several GPUs share the layers: each keeps so many copies of
// a step's inputs.
const pipeline = 4

// compute is the size of the buffers in which one device computes a step. They are used again from layer to layer, so what
// counts is the widest point of a layer: what must be there at the same time.
//
//	feed-forward     3 × inner width + 3 × embedding + attention result
//	experts          the same with experts used × their width, and with their results where no freed place has room for them;
//	                 beside shared experts 2 × inner width + 2 × their results + 2 × embedding
//	attention        3 × embedding + 2 × queries + 2 × keys
//	compressed (MLA) 4 × embedding + queries + compressed queries without and with positions + attention result
//	output           3 × embedding + logits
//
// each times the tokens of a step. To all but the last llama.cpp adds the attention's mask, two bytes for every token of the
// step and of the cache. The counts are what llama.cpp v0.5.0 reserves (ggml-alloc.c: a tensor takes the smallest freed place
// that holds it) where a feed-forward is wider than the embedding, as in the models that people run; for others, and with an
// 8-bit cache, some of these terms are too many.
func compute(s *modelfile.Shape, o Options) uint64 {
	number, share := uint64(4), uint64(1) // bytes of a number, and among how many GPUs a layer is shared out
	if o.Engine == VLLM {
		number, share = 2, uint64(max(o.GPUs, 1))
	}
	row := number * uint64(o.step())
	wide := func(n int) uint64 { return row * uint64(n) }
	split := func(n int) uint64 { return (row*uint64(n) + share - 1) / share }

	embedding, result := wide(s.Embedding), split(s.OutputWidth())
	most := 3*split(s.FeedForward) + 3*embedding + result
	if s.Experts > 0 {
		inner, outer := split(s.ExpertsUsed*s.ExpertFeedForward), wide(s.ExpertsUsed*s.Embedding)
		switch {
		case outer > 2*inner: // the results find no room in freed places
			most = max(most, 3*inner+outer+3*embedding+result)
		case s.SharedFeedForward > 0:
			most = max(most, 2*inner+2*outer+2*embedding, 3*split(s.SharedFeedForward)+4*embedding)
			fallthrough
		default:
			most = max(most, 3*inner+3*embedding+result)
		}
	}
	if m := s.MLA; m != nil {
		most = max(most, 4*embedding+split(s.AttentionWidth())+split(s.Heads*m.Rank)+split(s.Heads*(m.Rank+m.Rope))+result)
	} else {
		most = max(most, 3*embedding+2*split(s.AttentionWidth())+2*split(s.KVWidth()))
	}
	var inputs uint64
	if o.Engine == LlamaCpp {
		inputs = masks(s) * 2 * uint64(o.step()) * o.cells(o.ContextTokens)
	}
	if o.Engine == LlamaCpp && o.GPUs > 1 {
		inputs = pipeline*inputs + (pipeline-1)*embedding
	}
	return max(most+inputs, 3*embedding+4*uint64(min(o.Sequences, o.step()))*uint64(s.Vocab))
}

// masks is how many kinds of layers there are: those that look back through a window, and those that see everything.
func masks(s *modelfile.Shape) uint64 {
	var full, window uint64
	for _, l := range s.Layers {
		if l.Window > 0 {
			window = 1
		} else {
			full = 1
		}
	}
	return full + window
}
