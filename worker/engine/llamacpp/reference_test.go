package llamacpp

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// reference computes a model of the llama architecture in the plainest way, in float64.
type reference struct {
	head    *modelfile.GGUF
	weights map[string][]float64
}

// half turns half precision into float64; there are no subnormal scales.
func half(b uint16) float64 {
	return math.Copysign(math.Ldexp(1+float64(b&0x3ff)/1024, int(b>>10&31)-15), float64(int16(b|1)))
}

func newReference(t *testing.T, file io.ReaderAt, head *modelfile.GGUF) *reference {
	t.Helper()
	m := &reference{head: head, weights: map[string][]float64{}}
	last := head.Tensors[len(head.Tensors)-1]
	start := head.Bytes - last.Offset - last.Bytes
	for _, of := range head.Tensors {
		b := make([]byte, of.Bytes)
		if _, err := file.ReadAt(b, int64(start+of.Offset)); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		var w []float64
		switch of.Type {
		case "F32":
			for ; len(b) > 0; b = b[4:] {
				w = append(w, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
			}
		case "Q8_0":
			for ; len(b) > 0; b = b[34:] {
				scale := half(binary.LittleEndian.Uint16(b))
				for _, n := range b[2:34] {
					w = append(w, scale*float64(int8(n)))
				}
			}
		default:
			t.Fatalf("there is a tensor of type %s", of.Type)
		}
		m.weights[of.Name] = w
	}
	return m
}

func (m *reference) number(key string) int {
	n, _ := m.head.Uint("llama." + key)
	return int(n)
}

// times multiplies x by the rows of a matrix.
func (m *reference) times(name string, x []float64) []float64 {
	w := m.weights[name]
	out := make([]float64, len(w)/len(x))
	for r := range out {
		for i, v := range x {
			out[r] += w[r*len(x)+i] * v
		}
	}
	return out
}

// norm scales x to a mean square of 1.
func norm(x []float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+1e-5)
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v * scale
	}
	return out
}

// turn rotates the pairs of each head by the position (RoPE).
func turn(x []float64, head, pos int) {
	for i := 0; i < len(x); i += 2 {
		angle := float64(pos) * math.Pow(10000, -float64(i%head)/float64(head))
		a, b := x[i], x[i+1]
		x[i], x[i+1] = a*math.Cos(angle)-b*math.Sin(angle), a*math.Sin(angle)+b*math.Cos(angle)
	}
}

// attend mixes the values of all positions for each head of q.
func attend(q []float64, keys, values [][]float64, head int) []float64 {
	out := make([]float64, len(q))
	shared := len(q) / len(keys[0]) // heads of q to one of keys
	for h := range len(q) / head {
		from := h / shared * head
		weights, sum := make([]float64, len(keys)), 0.0
		for p, k := range keys {
			dot := 0.0
			for i := range head {
				dot += q[h*head+i] * k[from+i]
			}
			weights[p] = math.Exp(dot / math.Sqrt(float64(head)))
			sum += weights[p]
		}
		for p, v := range values {
			for i := range head {
				out[h*head+i] += weights[p] / sum * v[from+i]
			}
		}
	}
	return out
}

func add(x, y []float64) {
	for i := range x {
		x[i] += y[i]
	}
}

// cells are the keys and values of a sequence, by layer and position.
type cells struct{ keys, values [][][]float64 }

// cut returns what is left of c after n positions.
func (c cells) cut(n int) (out cells) {
	for i := range c.keys {
		out.keys, out.values = append(out.keys, slices.Clip(c.keys[i][:n])), append(out.values, slices.Clip(c.values[i][:n]))
	}
	return out
}

// states adds tokens to c and returns the last layer's output for each, normed.
func (m *reference) states(c *cells, tokens []engine.Token) (out [][]float64) {
	width, head, layers := m.number("embedding_length"), m.number("attention.key_length"), m.number("block_count")
	if c.keys == nil {
		c.keys, c.values = make([][][]float64, layers), make([][][]float64, layers)
	}
	for _, token := range tokens {
		x := slices.Clone(m.weights["token_embd.weight"][int(token)*width:][:width])
		for i := range layers {
			in := fmt.Sprintf("blk.%d.", i)
			n := norm(x)
			q, k := m.times(in+"attn_q.weight", n), m.times(in+"attn_k.weight", n)
			turn(q, head, len(c.keys[i]))
			turn(k, head, len(c.keys[i]))
			c.keys[i], c.values[i] = append(c.keys[i], k), append(c.values[i], m.times(in+"attn_v.weight", n))
			add(x, m.times(in+"attn_output.weight", attend(q, c.keys[i], c.values[i], head)))
			n = norm(x)
			gate, up := m.times(in+"ffn_gate.weight", n), m.times(in+"ffn_up.weight", n)
			for j, g := range gate {
				up[j] *= g / (1 + math.Exp(-g))
			}
			add(x, m.times(in+"ffn_down.weight", up))
		}
		out = append(out, norm(x))
	}
	return out
}

// logits adds tokens to c and returns the logits after the last.
func (m *reference) logits(c *cells, tokens []engine.Token) []float64 {
	all := m.states(c, tokens)
	return m.times("output.weight", all[len(all)-1])
}
