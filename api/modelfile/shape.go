package modelfile

// Shape is what of a model decides how much memory it takes. Sizes are in numbers unless their name says bytes.
type Shape struct {
	// Name and Architecture are for people; Name may be empty.
	Name, Architecture string
	// Type is what most of the weights are stored as, such as BF16 or Q4_K.
	Type string
	// Parameters is the number of weights, WeightBytes their size.
	Parameters, WeightBytes uint64
	// Counted: WeightBytes was worked out from a config.json; else it was read from the weights themselves.
	Counted bool
	// InputBytes is the size of the token embeddings, OutputBytes that of the matrix that makes logits. They are the same
	// matrix where Tied.
	InputBytes, OutputBytes uint64
	Tied                    bool
	// Layers from the first to the last.
	Layers []Layer
	// Embedding is the width between layers, FeedForward the widest of the dense layers' inner widths.
	Embedding, FeedForward int
	// Heads is the number of attention heads of the layer that has most.
	Heads int
	Vocab int
	// Context is the most tokens that the model was trained for; 0 where the file doesn't say.
	Context int
	// Experts of a layer, 0 where there are none; ExpertsUsed is how many each token uses and ExpertFeedForward their width.
	Experts, ExpertsUsed, ExpertFeedForward int
	// SharedFeedForward is the width of what runs for every token beside the experts.
	SharedFeedForward int
	// MLA is the compressed attention of DeepSeek's models; nil for all others.
	MLA *MLA
}

// Layer is one layer of a model.
type Layer struct {
	// KVHeads is how many heads the layer caches; 0: it uses another layer's cache. With MLA it is 1.
	KVHeads int
	// KeyLength and ValueLength are the widths of a cached head. With MLA the value is part of the key and ValueLength is 0.
	KeyLength, ValueLength int
	// Window is how many tokens back the layer looks; 0: all.
	Window int
	// Bytes is the size of its weights.
	Bytes uint64
}

// MLA are the sizes of multi-head latent attention before compression.
type MLA struct {
	// Rank is the width of the compressed key and value, Rope that of the part of the key with positions.
	Rank, Rope int
	// KeyLength and ValueLength are the widths of a head.
	KeyLength, ValueLength int
}

// AttentionWidth is the width of all heads' queries side by side, and OutputWidth that of their results.
func (s *Shape) AttentionWidth() int {
	if s.MLA != nil {
		return s.Heads * s.MLA.KeyLength
	}
	return s.Heads * s.widest(func(l Layer) int { return l.KeyLength })
}

// OutputWidth is the width of all heads' results side by side.
func (s *Shape) OutputWidth() int {
	if s.MLA != nil {
		return s.Heads * s.MLA.ValueLength
	}
	return s.Heads * s.widest(func(l Layer) int { return l.ValueLength })
}

// KVWidth is the width of the keys that the widest layer caches for a token.
func (s *Shape) KVWidth() int { return s.widest(func(l Layer) int { return l.KVHeads * l.KeyLength }) }

// Window is the sliding window of the layers that have one; 0: none has.
func (s *Shape) Window() int { return s.widest(func(l Layer) int { return l.Window }) }

func (s *Shape) widest(of func(Layer) int) int {
	most := 0
	for _, l := range s.Layers {
		most = max(most, of(l))
	}
	return most
}

// Bounds of a shape. Sizes beyond them are damage; within them every product below fits 64 bits.
const (
	maxLayers  = 1 << 10
	maxWidth   = 1 << 20
	maxHeads   = 1 << 12
	maxLength  = 1 << 13
	maxContext = 1 << 28
)

// Check refuses shapes that no model has; those that this package returns are checked. The error is an *Error.
func (s *Shape) Check() error {
	if err := s.check(); err != nil {
		return err
	}
	return nil
}

// check is Check.
func (s *Shape) check() *Error {
	sizes := []size{{"layers", len(s.Layers), 1, maxLayers}, {"the embedding's width", s.Embedding, 1, maxWidth / 4},
		{"heads", s.Heads, 1, maxHeads}, {"the vocabulary", s.Vocab, 1, maxWidth * 4}, {"the feed-forward width", s.FeedForward, 0, maxWidth},
		{"the context", s.Context, 0, maxContext}, {"experts", s.Experts, 0, maxHeads}, {"experts used", s.ExpertsUsed, 0, s.Experts},
		{"the experts' width", s.ExpertFeedForward, 0, maxWidth}, {"the shared width", s.SharedFeedForward, 0, maxWidth}}
	if m := s.MLA; m != nil {
		sizes = append(sizes, size{"the compressed width", m.Rank, 1, maxWidth}, size{"the width with positions", m.Rope, 0, maxLength},
			size{"a key", m.KeyLength, m.Rope, maxLength}, size{"a value", m.ValueLength, 1, maxLength})
	}
	for _, l := range s.Layers {
		sizes = append(sizes, size{"KV heads", l.KVHeads, 0, maxHeads}, size{"a cached key", l.KeyLength, 1, maxLength},
			size{"a cached value", l.ValueLength, 0, maxLength}, size{"the window", l.Window, 0, maxContext})
	}
	for _, z := range sizes {
		if z.n < z.least || z.n > z.most {
			return refuse(Damaged, "describes a model that can't be: %s %d, expected %d to %d", z.what, z.n, z.least, z.most)
		}
	}
	return nil
}

type size struct {
	what           string
	n, least, most int
}
