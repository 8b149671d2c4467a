package ggufgen

import (
	"fmt"
	"strings"
)

// tensor is one tensor of a file; that of a single dimension is a vector of F32.
type tensor struct {
	name string
	dims []int
}

// tensors returns m's tensors in the order of the file, by the names that llama.cpp gives them.
func (m *Model) tensors() []tensor {
	t := []tensor{{"token_embd.weight", []int{m.Embedding, m.Vocab}}, {"output_norm.weight", []int{m.Embedding}}}
	if !m.Tied {
		t = append(t, tensor{"output.weight", []int{m.Embedding, m.Vocab}})
	}
	for i := range m.Layers {
		layer := append(m.attention(), m.feedForward(i)...)
		for _, of := range layer {
			t = append(t, tensor{fmt.Sprintf("blk.%d.%s", i, of.name), of.dims})
		}
	}
	return t
}

// attention returns the tensors of a layer's first half.
func (m *Model) attention() []tensor {
	d, h := m.Embedding, m.headLength()
	q, kv := m.Heads*h, m.KVHeads*h
	if l := m.MLA; l != nil {
		return []tensor{{"attn_norm.weight", []int{d}}, {"attn_q_a_norm.weight", []int{l.QRank}}, {"attn_kv_a_norm.weight", []int{l.KVRank}},
			{"attn_q_a.weight", []int{d, l.QRank}}, {"attn_q_b.weight", []int{l.QRank, q}},
			{"attn_kv_a_mqa.weight", []int{d, l.KVRank + l.Rope}}, {"attn_k_b.weight", []int{h - l.Rope, l.KVRank, m.Heads}},
			{"attn_v_b.weight", []int{l.KVRank, l.ValueLength, m.Heads}}, {"attn_output.weight", []int{m.Heads * l.ValueLength, d}}}
	}
	t := []tensor{{"attn_norm.weight", []int{d}}, {"attn_q.weight", []int{d, q}}, {"attn_k.weight", []int{d, kv}},
		{"attn_v.weight", []int{d, kv}}, {"attn_output.weight", []int{q, d}}}
	switch m.Architecture {
	case "qwen2":
		t = append(t, tensor{"attn_q.bias", []int{q}}, tensor{"attn_k.bias", []int{kv}}, tensor{"attn_v.bias", []int{kv}})
	case "qwen3", "qwen3moe":
		t = append(t, tensor{"attn_q_norm.weight", []int{h}}, tensor{"attn_k_norm.weight", []int{h}})
	case "gemma3":
		t = append(t, tensor{"attn_q_norm.weight", []int{h}}, tensor{"attn_k_norm.weight", []int{h}},
			tensor{"post_attention_norm.weight", []int{d}}, tensor{"post_ffw_norm.weight", []int{d}})
	}
	return t
}

// feedForward returns the tensors of the second half of layer i.
func (m *Model) feedForward(i int) []tensor {
	d, ff := m.Embedding, m.FeedForward
	norm := tensor{"ffn_norm.weight", []int{d}}
	if m.Experts == 0 || m.MLA != nil && i < m.MLA.DenseLayers {
		return []tensor{norm, {"ffn_gate.weight", []int{d, ff}}, {"ffn_up.weight", []int{d, ff}}, {"ffn_down.weight", []int{ff, d}}}
	}
	ff = m.ExpertFeedForward
	t := []tensor{norm, {"ffn_gate_inp.weight", []int{d, m.Experts}}, {"ffn_gate_exps.weight", []int{d, ff, m.Experts}},
		{"ffn_up_exps.weight", []int{d, ff, m.Experts}}, {"ffn_down_exps.weight", []int{ff, d, m.Experts}}}
	if m.MLA != nil {
		ff *= m.MLA.SharedExperts
		t = append(t, tensor{"ffn_gate_shexp.weight", []int{d, ff}}, tensor{"ffn_up_shexp.weight", []int{d, ff}},
			tensor{"ffn_down_shexp.weight", []int{ff, d}})
	}
	return t
}

// router is how the name of a matrix ends that chooses experts.
const router = "_inp.weight"

// elements is how many numbers t has.
func (t tensor) elements() int {
	n := 1
	for _, d := range t.dims {
		n *= d
	}
	return n
}

// kind is the type of t's numbers in a model whose matrices have type matrix. Routers of experts are always exact.
func (t tensor) kind(matrix string) string {
	if len(t.dims) == 1 || strings.HasSuffix(t.name, router) {
		return "F32"
	}
	return matrix
}
