package modelfile

import (
	"encoding/json"
	"slices"
)

// maxConfig is the most bytes of a config.json or of an index that are read.
const maxConfig = 64 << 20

// config are the fields of a config.json of the Transformers library that decide the shape. The libraries of the models call
// some of them differently.
type config struct {
	Text          *config  `json:"text_config"` // of a model that also sees or hears
	ModelType     string   `json:"model_type"`
	Architectures []string `json:"architectures"`
	Name          string   `json:"_name_or_path"`
	DType         string   `json:"dtype"`
	TorchDType    string   `json:"torch_dtype"`

	Hidden       int   `json:"hidden_size"`
	Intermediate int   `json:"intermediate_size"`
	Layers       int   `json:"num_hidden_layers"`
	Heads        int   `json:"num_attention_heads"`
	KVHeads      int   `json:"num_key_value_heads"`
	HeadDim      int   `json:"head_dim"`
	Vocab        int   `json:"vocab_size"`
	Context      int   `json:"max_position_embeddings"`
	Tied         *bool `json:"tie_word_embeddings"`

	Window        int      `json:"sliding_window"`
	UsesWindow    *bool    `json:"use_sliding_window"`
	WindowPattern int      `json:"sliding_window_pattern"`
	LayerTypes    []string `json:"layer_types"`
	SharedKV      int      `json:"num_kv_shared_layers"`

	Experts            int           `json:"num_experts"`
	LocalExperts       int           `json:"num_local_experts"`
	RoutedExperts      int           `json:"n_routed_experts"`
	ExpertsUsed        int           `json:"num_experts_per_tok"`
	ExpertIntermediate int           `json:"moe_intermediate_size"`
	SharedExperts      int           `json:"n_shared_experts"`
	SharedIntermediate int           `json:"shared_expert_intermediate_size"`
	DenseLayers        int           `json:"first_k_dense_replace"`
	DenseOnly          []int         `json:"mlp_only_layers"`
	ExpertEveryOf      int           `json:"decoder_sparse_step"`
	KVRank             int           `json:"kv_lora_rank"`
	QRank              int           `json:"q_lora_rank"`
	Rope               int           `json:"qk_rope_head_dim"`
	Nope               int           `json:"qk_nope_head_dim"`
	ValueDim           int           `json:"v_head_dim"`
	Quantization       *quantization `json:"quantization_config"`
}

// quantization says how the matrices of a model are stored.
type quantization struct {
	Method string `json:"quant_method"`
	Bits   int    `json:"bits"`
	Group  int    `json:"group_size"`
}

// ConfigShape returns the shape that a config.json describes. weights is the size of the model's tensors where it is known,
// from its safetensors files or their index; with 0 it is worked out for models whose layers are like Llama's: attention of
// four matrices and feed-forward of three, or experts of three. The error is an *Error.
func ConfigShape(raw []byte, weights uint64) (*Shape, error) {
	if len(raw) > maxConfig {
		return nil, refuse(Foreign, "is no config.json: it has %d bytes, expected at most %d", len(raw), maxConfig)
	}
	var c config
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, refuse(Damaged, "is no config.json: %v", err)
	}
	outer := c
	if c.Text != nil {
		c = *c.Text
		c.Name, c.Quantization, c.Architectures = first(c.Name, outer.Name), orElse(c.Quantization, outer.Quantization), outer.Architectures
		c.DType, c.TorchDType, c.Tied = first(c.DType, outer.DType), first(c.TorchDType, outer.TorchDType), orElse(c.Tied, outer.Tied)
	}
	s := &Shape{Name: c.Name, Architecture: c.ModelType, Type: c.dtype(), Embedding: c.Hidden, FeedForward: c.Intermediate, Heads: c.Heads,
		Vocab: c.Vocab, Context: c.Context, Experts: max(c.Experts, c.LocalExperts, c.RoutedExperts), ExpertsUsed: c.ExpertsUsed,
		Tied: c.Tied != nil && *c.Tied,
	}
	if c.Layers < 1 || c.Layers > maxLayers || c.Heads < 1 || c.Hidden < 1 || c.Vocab < 1 {
		return nil, refuse(Unsupported, "describes no language model that is known here: num_hidden_layers %d, num_attention_heads %d, hidden_size %d, vocab_size %d",
			c.Layers, c.Heads, c.Hidden, c.Vocab)
	}
	if err := c.experts(s); err != nil {
		return nil, err
	}
	if err := c.layers(s); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := c.weigh(s, weights); err != nil {
		return nil, err
	}
	return s, nil
}

func (c *config) dtype() string {
	if c.Quantization != nil && c.Quantization.Method != "" {
		return c.Quantization.Method
	}
	switch t := first(c.DType, c.TorchDType); t {
	case "bfloat16":
		return "BF16"
	case "float16":
		return "F16"
	case "float32":
		return "F32"
	default:
		return t
	}
}

// experts fills in how wide the experts are.
func (c *config) experts(s *Shape) *Error {
	if s.Experts == 0 {
		return nil
	}
	if c.SharedExperts < 0 || c.SharedExperts > maxHeads { // their width is a product
		return refuse(Damaged, "describes a model that can't be: shared experts %d, expected 0 to %d", c.SharedExperts, maxHeads)
	}
	s.ExpertFeedForward = c.ExpertIntermediate
	if s.ExpertFeedForward == 0 {
		s.ExpertFeedForward = c.Intermediate
	}
	s.SharedFeedForward = max(c.SharedIntermediate, c.SharedExperts*s.ExpertFeedForward)
	return nil
}

// layers fills in what each layer caches.
func (c *config) layers(s *Shape) *Error {
	if c.HeadDim == 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.WindowPattern == 0 {
		c.WindowPattern = periods[c.ModelType]
	}
	if c.KVRank > 0 {
		s.MLA = &MLA{Rank: c.KVRank, Rope: c.Rope, KeyLength: c.Nope + c.Rope, ValueLength: c.ValueDim}
	}
	for i := range c.Layers {
		l := Layer{KVHeads: c.KVHeads, KeyLength: c.HeadDim, ValueLength: c.HeadDim}
		if s.MLA != nil {
			l = Layer{KVHeads: 1, KeyLength: c.KVRank + c.Rope}
		}
		slides := c.UsesWindow == nil || *c.UsesWindow
		switch {
		case i < len(c.LayerTypes):
			switch kind := c.LayerTypes[i]; kind {
			case "full_attention":
				slides = false
			case "sliding_attention", "chunked_attention":
			default:
				return refuse(Unsupported, "has layers of type %q, which keep a state of a size that isn't known here", kind)
			}
		case c.WindowPattern > 0:
			slides = slides && i%c.WindowPattern != c.WindowPattern-1
		}
		if slides {
			l.Window = c.Window
		}
		if i >= c.Layers-c.SharedKV {
			l.KVHeads = 0
		}
		s.Layers = append(s.Layers, l)
	}
	return nil
}

// sparse reports whether layer i has experts.
func (c *config) sparse(i int) bool {
	if max(c.Experts, c.LocalExperts, c.RoutedExperts) == 0 || i < c.DenseLayers || slices.Contains(c.DenseOnly, i) {
		return false
	}
	return c.ExpertEveryOf < 2 || (i+1)%c.ExpertEveryOf == 0
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func orElse[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// IndexBytes returns the size of all tensors that a model.safetensors.index.json states, and the names of the files that
// hold them. The error is an *Error.
func IndexBytes(raw []byte) (total uint64, files []string, err error) {
	if len(raw) > maxConfig {
		return 0, nil, refuse(Foreign, "is no index: it has %d bytes, expected at most %d", len(raw), maxConfig)
	}
	var index struct {
		Metadata struct {
			TotalSize float64 `json:"total_size"` // some writers make it a fraction
		} `json:"metadata"`
		Files map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return 0, nil, refuse(Damaged, "is no index: %v", err)
	}
	if n := index.Metadata.TotalSize; n < 1 || n > maxWeights {
		return 0, nil, refuse(Unsupported, "is an index without a total size (metadata.total_size)")
	}
	seen := map[string]bool{}
	for _, f := range index.Files {
		if !seen[f] {
			seen[f] = true
			files = append(files, f)
		}
	}
	slices.Sort(files)
	return uint64(index.Metadata.TotalSize), files, nil
}
