package modelfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// periods is how often a layer without a sliding window comes in architectures whose files need not say so.
var periods = map[string]int{
	"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "gemma3n": 5, "cohere2": 4, "gpt-oss": 2, "llama4": 4, "exaone4": 4, "olmo2": 4,
}

// recurrent are architectures with layers that keep a state instead of keys and values.
var recurrent = []string{"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7", "jamba", "falcon-h1", "plamo2", "granitehybrid",
	"nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe", "qwen3next", "qwen35", "qwen35moe", "kimi-linear", "minimax-01"}

// GGUFShape returns the shape of a model from the heads of its files: one, or all parts in their order, of which the first
// describes the model. The error is an *Error.
func GGUFShape(parts ...*GGUF) (*Shape, error) {
	if len(parts) == 0 {
		return nil, refuse(Unsupported, "is none of the model's parts")
	}
	g := parts[0]
	if g.Parts != len(parts) {
		return nil, refuse(Unsupported, "is one of %d parts; expected all, found %d", g.Parts, len(parts))
	}
	if slices.Contains(recurrent, g.Architecture) {
		return nil, refuse(Unsupported, "has the architecture %s, whose layers keep a recurrent state of a size that isn't known here", g.Architecture)
	}
	s := &Shape{Name: g.Name, Architecture: g.Architecture, Type: mostly(parts),
		Embedding: g.number("embedding_length"), Context: g.number("context_length"),
		Experts: g.number("expert_count"), ExpertsUsed: g.number("expert_used_count"),
	}
	s.FeedForward = g.most("feed_forward_length")
	s.Heads = g.most("attention.head_count")
	s.ExpertFeedForward = g.most("expert_feed_forward_length")
	if s.Experts > 0 && s.ExpertFeedForward == 0 {
		s.ExpertFeedForward = s.FeedForward
	}
	if s.SharedFeedForward = g.number("expert_shared_feed_forward_length"); s.SharedFeedForward == 0 {
		s.SharedFeedForward = g.number("expert_shared_count") * s.ExpertFeedForward
	}
	if n, ok := g.Len("tokenizer.ggml.tokens"); ok {
		s.Vocab = clip(n)
	} else {
		s.Vocab = g.number("vocab_size")
	}
	if err := g.layers(s); err != nil {
		return nil, err
	}
	weigh(s, parts)
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

// number returns a number of the architecture; 0 where there is none, and a size that check refuses where it is too large.
func (g *GGUF) number(key string) int {
	n, _ := g.Uint(g.Architecture + "." + key)
	return clip(n)
}

func clip(n uint64) int { return int(min(n, maxContext+1)) }

// most returns the largest of a key that has a number for every layer or one for all.
func (g *GGUF) most(key string) int {
	most := 0
	for _, n := range g.Uints(g.Architecture + "." + key) {
		most = max(most, clip(n))
	}
	return most
}

// perLayer returns the number of layer i.
func (g *GGUF) perLayer(key string, i, otherwise int) int {
	switch list := g.Uints(g.Architecture + "." + key); {
	case len(list) == 0:
		return otherwise
	case len(list) == 1:
		return clip(list[0])
	case i < len(list):
		return clip(list[i])
	}
	return otherwise
}

// layers fills in what each layer caches.
func (g *GGUF) layers(s *Shape) *Error {
	n := g.number("block_count") - g.number("nextn_predict_layers")
	if n < 1 || n > maxLayers {
		return refuse(Damaged, "describes a model that can't be: %d layers, expected 1 to %d", n, maxLayers)
	}
	if s.Heads < 1 {
		return refuse(Damaged, "doesn't say how many heads its layers have (%s.attention.head_count)", g.Architecture)
	}
	window, cached := g.number("attention.sliding_window"), n-g.number("attention.shared_kv_layers")
	for i := range n {
		head := s.Embedding / s.Heads
		l := Layer{KVHeads: g.perLayer("attention.head_count_kv", i, g.perLayer("attention.head_count", i, s.Heads))}
		if window > 0 && g.slides(i) {
			l.Window = window
		}
		l.KeyLength = g.length("attention.key_length", l.Window > 0, head)
		l.ValueLength = g.length("attention.value_length", l.Window > 0, head)
		if i >= cached {
			l.KVHeads = 0
		}
		s.Layers = append(s.Layers, l)
	}
	if key := g.number("attention.key_length_mla"); key > 0 {
		rank := g.number("attention.kv_lora_rank")
		s.MLA = &MLA{Rank: rank, Rope: g.number("rope.dimension_count"), KeyLength: key, ValueLength: g.number("attention.value_length_mla")}
		for i := range s.Layers {
			s.Layers[i].KVHeads, s.Layers[i].ValueLength = 1, 0
		}
	}
	return nil
}

// length is that of a cached head, which may differ in layers with a window.
func (g *GGUF) length(key string, slides bool, otherwise int) int {
	if n := g.number(key + "_swa"); slides && n > 0 {
		return n
	}
	if n := g.number(key); n > 0 {
		return n
	}
	return otherwise
}

// slides reports whether layer i looks back only through the window.
func (g *GGUF) slides(i int) bool {
	pattern := g.Uints(g.Architecture + ".attention.sliding_window_pattern")
	if len(pattern) > 1 {
		return i < len(pattern) && pattern[i] != 0
	}
	period := periods[g.Architecture]
	if len(pattern) == 1 {
		period = clip(pattern[0])
	}
	return period == 0 || i%period != period-1
}

// weigh adds up the tensors by layer.
func weigh(s *Shape, parts []*GGUF) {
	for _, g := range parts {
		for _, t := range g.Tensors {
			s.Parameters += t.Elements()
			s.WeightBytes += t.Bytes
			switch i, of := block(t.Name); {
			case of && i < len(s.Layers):
				s.Layers[i].Bytes += t.Bytes
			case t.Name == "token_embd.weight":
				s.InputBytes = t.Bytes
			case t.Name == "output.weight":
				s.OutputBytes = t.Bytes
			}
		}
	}
	if s.OutputBytes == 0 {
		s.OutputBytes, s.Tied = s.InputBytes, true
	}
}

// block returns the layer of a tensor such as blk.3.attn_q.weight.
func block(name string) (layer int, ok bool) {
	rest, ok := strings.CutPrefix(name, "blk.")
	if !ok {
		return 0, false
	}
	digits, _, _ := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(digits, 10, 16)
	return int(n), err == nil
}

// mostly names the type in which most of the weights are stored.
func mostly(parts []*GGUF) string {
	bytes, name := map[string]uint64{}, ""
	for _, g := range parts {
		for _, t := range g.Tensors {
			bytes[t.Type] += t.Bytes
			if bytes[t.Type] > bytes[name] {
				name = t.Type
			}
		}
	}
	return name
}

// PartName returns the name of part i, from 1, of a model whose first part is called first; ok is false where first isn't
// called as llama.cpp calls parts: model-00001-of-00003.gguf.
func PartName(first string, i int) (name string, ok bool) {
	const middle, end = "-00001-of-", ".gguf"
	at := strings.LastIndex(first, middle)
	if at < 0 || !strings.HasSuffix(first, end) {
		return "", false
	}
	return first[:at] + fmt.Sprintf("-%05d-of-", i) + first[at+len(middle):], true
}
