package modelfile

import "slices"

// llamaLike are model types whose layers are made of the matrices that count adds up.
var llamaLike = []string{"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi3",
	"olmo2", "granite", "deepseek_v2", "deepseek_v3", "smollm3", "cohere", "cohere2", "glm4_moe"}

// maxWeights is more bytes than the weights of any model have. What the bounds of a shape allow fits 64 bits.
const maxWeights = 1 << 60

// perWeight is how many bits a weight takes, in matrices and elsewhere.
type perWeight struct{ matrix, other float64 }

// bits returns what a weight takes; ok is false where the config doesn't say.
func (c *config) bits() (b perWeight, ok bool) {
	of := map[string]float64{"bfloat16": 16, "float16": 16, "float32": 32}[first(c.DType, c.TorchDType)]
	if of == 0 {
		return perWeight{}, false
	}
	q := c.Quantization
	if q == nil || q.Method == "" {
		return perWeight{of, of}, true
	}
	switch q.Method {
	case "fp8":
		return perWeight{8, of}, true
	case "gptq", "awq":
		if q.Bits < 1 || q.Bits > 8 {
			return perWeight{}, false
		}
		scale := 0.0
		if q.Group > 0 {
			scale = float64(16+q.Bits) / float64(q.Group) // a scale and a zero point for a group
		}
		return perWeight{float64(q.Bits) + scale, of}, true
	}
	return perWeight{}, false
}

// weigh fills in the sizes of the weights: counted from the config, and scaled to the true size where that is known.
func (c *config) weigh(s *Shape, known uint64) *Error {
	b, ok := c.bits()
	if known == 0 && (!ok || !slices.Contains(llamaLike, c.ModelType)) {
		return refuse(Unsupported, "doesn't tell the size of the weights (model_type %q, dtype %q, quantization %q): give model.safetensors.index.json or the "+
			"safetensors files besides", c.ModelType, first(c.DType, c.TorchDType), c.dtype())
	}
	if !ok {
		b = perWeight{16, 16}
	}
	bytes := func(matrix, other uint64) uint64 {
		return uint64((float64(matrix)*b.matrix + float64(other)*b.other) / 8)
	}
	table := uint64(c.Vocab) * uint64(c.Hidden)
	s.InputBytes = bytes(0, table)
	s.OutputBytes = s.InputBytes
	s.Parameters, s.WeightBytes = table+uint64(c.Hidden), s.InputBytes+bytes(0, uint64(c.Hidden))
	if !s.Tied {
		s.Parameters, s.WeightBytes = s.Parameters+table, s.WeightBytes+s.OutputBytes
	}
	for i := range s.Layers {
		matrix, other := c.count(s, i)
		s.Layers[i].Bytes = bytes(matrix, other)
		s.Parameters += matrix + other
		s.WeightBytes += s.Layers[i].Bytes
	}
	if s.WeightBytes > maxWeights {
		return refuse(Damaged, "describes a model that can't be: %d bytes of weights, expected at most %d", s.WeightBytes, uint64(maxWeights))
	}
	if s.Counted = known == 0; !s.Counted {
		s.scale(known)
	}
	return nil
}

// count returns how many weights layer i has in matrices and in vectors.
func (c *config) count(s *Shape, i int) (matrix, other uint64) {
	d := uint64(c.Hidden)
	other = 2 * d // norms
	if m := s.MLA; m != nil {
		q := uint64(c.Heads * m.KeyLength)
		if c.QRank > 0 && c.QRank <= maxWidth {
			matrix += d*uint64(c.QRank) + uint64(c.QRank)*q
			other += uint64(c.QRank)
		} else {
			matrix += d * q
		}
		matrix += d*uint64(m.Rank+m.Rope) + uint64(m.Rank)*uint64(c.Heads*(m.KeyLength-m.Rope+m.ValueLength)) + uint64(c.Heads*m.ValueLength)*d
		other += uint64(m.Rank)
	} else {
		matrix += 2 * d * uint64(c.HeadDim) * uint64(c.Heads+c.KVHeads)
	}
	if !c.sparse(i) {
		return matrix + 3*d*uint64(c.Intermediate), other
	}
	matrix += 3 * d * (uint64(s.Experts)*uint64(s.ExpertFeedForward) + uint64(s.SharedFeedForward))
	return matrix, other + d*uint64(s.Experts)
}

// scale makes the sizes add up to total.
func (s *Shape) scale(total uint64) {
	by := float64(total) / float64(s.WeightBytes)
	s.InputBytes = uint64(float64(s.InputBytes) * by)
	s.OutputBytes = uint64(float64(s.OutputBytes) * by)
	for i := range s.Layers {
		s.Layers[i].Bytes = uint64(float64(s.Layers[i].Bytes) * by)
	}
	s.WeightBytes = total
}
