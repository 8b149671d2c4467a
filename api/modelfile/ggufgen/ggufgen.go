// Package ggufgen makes GGUF files of models that nobody trained: any shape, random or no weights, a small vocabulary. They
// load and run like real ones, which is what self-checks and tests of memory and speed need, and they say nothing that
// makes sense. Equal models give equal bytes on every machine. The package reads no file and judges none: that is
// modelfile's job.
package ggufgen

import (
	"fmt"
	"slices"
)

// Model is what a file holds. The zero value of a field leaves it out unless said otherwise.
type Model struct {
	// Architecture is llama, qwen2, qwen3, qwen3moe, gemma3 or deepseek2.
	Architecture string
	Name         string
	// Layers, Embedding (the width between layers), FeedForward (the width within them), Heads and KVHeads are needed.
	Layers, Embedding, FeedForward, Heads, KVHeads int
	// HeadLength is the width of a head; 0: Embedding / Heads. With MLA it is that of a key before compression.
	HeadLength int
	// Context is how many tokens the model claims to be trained for.
	Context int
	// Vocab is the number of tokens, at least 259: three of control, the bytes, then made-up words.
	Vocab int
	// Experts of each layer, how many of them each token uses, and their width; 0: no experts.
	Experts, ExpertsUsed, ExpertFeedForward int
	// SlidingWindow in tokens of the layers that have one (gemma3: five of six).
	SlidingWindow int
	// MLA is the compressed attention of deepseek2.
	MLA *MLA
	// Type of the matrices: F32, F16, Q8_0 or Q4_0. Vectors are F32.
	Type string
	// Tied: the output uses the token embeddings' matrix.
	Tied bool
	// Seed of the weights; 0: all numbers of matrices are 0, and WriteFile leaves a hole for them.
	Seed uint64
	// Template is the chat template.
	Template string
}

// MLA are the sizes of multi-head latent attention: tokens are cached as KVRank + Rope numbers a layer.
type MLA struct {
	QRank, KVRank, Rope, ValueLength int
	// DenseLayers come before those with experts; SharedExperts run for every token.
	DenseLayers, SharedExperts int
}

// Golden is the model of start-up self-checks: 3 million parameters in 3.3 MB, whose every matrix counts in the output.
func Golden() Model {
	return Model{
		Architecture: "llama", Name: "Golden", Layers: 4, Embedding: 256, FeedForward: 640, Heads: 4, KVHeads: 2, Context: 2048,
		Vocab: 512, Type: "Q8_0", Seed: 1,
	}
}

// Vocabulary returns the tokens of m in their order: <unk>, <s>, </s>, the bytes as <0x00> to <0xFF>, and words.
func (m *Model) Vocabulary() []string {
	words := []string{"<unk>", "<s>", "</s>"}
	for b := range 256 {
		words = append(words, fmt.Sprintf("<0x%02X>", b))
	}
	for i := len(words); i < m.Vocab; i++ {
		words = append(words, fmt.Sprintf("▁%s", syllables(i)))
	}
	return words
}

// syllables spells n.
func syllables(n int) string {
	const consonants, vowels = "bdfgklmnprst", "aeiou"
	var b []byte
	for ; n > 0; n /= len(consonants) * len(vowels) {
		i := n % (len(consonants) * len(vowels))
		b = append(b, consonants[i/len(vowels)], vowels[i%len(vowels)])
	}
	return string(b)
}

func (m *Model) validate() error {
	switch {
	case !slices.Contains([]string{"llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "deepseek2"}, m.Architecture):
		return fmt.Errorf("generate a model: the architecture %q is unknown", m.Architecture)
	case m.Layers < 1 || m.Embedding < 1 || m.FeedForward < 1 || m.Heads < 1 || m.KVHeads < 1 || m.Context < 1:
		return fmt.Errorf("generate a model: layers, embedding, feed-forward, heads, KV heads and context are %d, %d, %d, %d, %d and %d, "+
			"expected at least 1", m.Layers, m.Embedding, m.FeedForward, m.Heads, m.KVHeads, m.Context)
	case m.Vocab < leastVocab:
		return fmt.Errorf("generate a model: the vocabulary is %d, expected at least %d", m.Vocab, leastVocab)
	case types[m.Type].bytes == 0:
		return fmt.Errorf("generate a model: the type %q is unknown", m.Type)
	case (m.Architecture == "deepseek2") != (m.MLA != nil):
		return fmt.Errorf("generate a model: %s and MLA %t don't go together", m.Architecture, m.MLA != nil)
	case m.misfit() != "":
		return fmt.Errorf("generate a model: a row of %s is no multiple of the %d numbers of a block of %s", m.misfit(), types[m.Type].block, m.Type)
	}
	return nil
}

// misfit names a matrix whose rows are no whole blocks.
func (m *Model) misfit() string {
	for _, t := range m.tensors() {
		if t.dims[0]%types[t.kind(m.Type)].block != 0 {
			return t.name
		}
	}
	return ""
}

const leastVocab = 3 + 256

func (m *Model) headLength() int {
	if m.HeadLength > 0 {
		return m.HeadLength
	}
	return m.Embedding / m.Heads
}

// metadata returns the entries of the file's head in their order.
func (m *Model) metadata() []entry {
	a := m.Architecture + "."
	e := []entry{{"general.architecture", text(m.Architecture)}, {"general.name", text(m.Name)},
		{a + "block_count", number(m.Layers)}, {a + "context_length", number(m.Context)}, {a + "embedding_length", number(m.Embedding)},
		{a + "feed_forward_length", number(m.FeedForward)}, {a + "attention.head_count", number(m.Heads)},
		{a + "attention.layer_norm_rms_epsilon", fraction(1e-5)}, {a + "rope.freq_base", fraction(10000)}, {a + "vocab_size", number(m.Vocab)}}
	if m.Experts > 0 {
		e = append(e, entry{a + "expert_count", number(m.Experts)}, entry{a + "expert_used_count", number(m.ExpertsUsed)},
			entry{a + "expert_feed_forward_length", number(m.ExpertFeedForward)})
	}
	if m.SlidingWindow > 0 {
		e = append(e, entry{a + "attention.sliding_window", number(m.SlidingWindow)})
	}
	if m.MLA == nil {
		e = append(e, entry{a + "attention.head_count_kv", number(m.KVHeads)}, entry{a + "rope.dimension_count", number(m.headLength())},
			entry{a + "attention.key_length", number(m.headLength())}, entry{a + "attention.value_length", number(m.headLength())})
	} else {
		e = append(e, m.MLA.metadata(a, m.headLength())...)
	}
	return append(e, m.tokenizer()...)
}

func (l *MLA) metadata(a string, head int) []entry {
	return []entry{{a + "attention.head_count_kv", number(1)}, {a + "rope.dimension_count", number(l.Rope)},
		{a + "attention.key_length", number(l.KVRank + l.Rope)}, {a + "attention.value_length", number(l.KVRank)},
		{a + "attention.key_length_mla", number(head)}, {a + "attention.value_length_mla", number(l.ValueLength)},
		{a + "attention.q_lora_rank", number(l.QRank)}, {a + "attention.kv_lora_rank", number(l.KVRank)},
		{a + "leading_dense_block_count", number(l.DenseLayers)}, {a + "expert_shared_count", number(l.SharedExperts)}}
}

// tokenizer is that of llama.cpp's SentencePiece vocabularies: text outside the words falls back to bytes.
func (m *Model) tokenizer() []entry {
	words := m.Vocabulary()
	scores, kinds := make(fractions, len(words)), make(wholes, len(words))
	for i := range words {
		const normal, unknown, control, octet = 1, 2, 3, 6
		switch {
		case i == 0:
			kinds[i] = unknown
		case i < 3:
			kinds[i] = control
		case i < leastVocab:
			kinds[i] = octet
		default:
			scores[i], kinds[i] = -float32(i), normal
		}
	}
	e := []entry{{"tokenizer.ggml.model", text("llama")}, {"tokenizer.ggml.tokens", texts(words)}, {"tokenizer.ggml.scores", scores},
		{"tokenizer.ggml.token_type", kinds}, {"tokenizer.ggml.unknown_token_id", number(0)},
		{"tokenizer.ggml.bos_token_id", number(1)}, {"tokenizer.ggml.eos_token_id", number(2)}}
	if m.Template != "" {
		e = append(e, entry{"tokenizer.chat_template", text(m.Template)})
	}
	return e
}
