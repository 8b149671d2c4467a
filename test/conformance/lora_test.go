package conformance

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// The adapter changes the last feed-forward matrix of SmolLM2-135M, of 1536 columns and 576 rows, by one of rank 4.
const (
	columns, rows, rank = 1536, 576, 4
	alpha               = 4
)

// pair are the adapter's two matrices, row after row: rank rows of columns, and rows rows of rank.
func pair() (a, b []float32) {
	r := rand.New(rand.NewPCG(1, 2))
	numbers := func(n int, spread float64) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(r.NormFloat64() * spread)
		}
		return out
	}
	return numbers(rank*columns, 1/math.Sqrt(columns)), numbers(rows*rank, 1/math.Sqrt(rank))
}

func floats(b []byte, v []float32) []byte {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// loraGGUF writes the adapter as llama.cpp reads it and returns its file.
func loraGGUF(t *testing.T) string {
	a, b := pair()
	var out []byte
	u32 := func(n int) { out = binary.LittleEndian.AppendUint32(out, uint32(n)) }
	u64 := func(n int) { out = binary.LittleEndian.AppendUint64(out, uint64(n)) }
	text := func(s string) { u64(len(s)); out = append(out, s...) }
	out = append(out, "GGUF"...)
	u32(3)
	u64(2)
	u64(4)
	for _, kv := range [][2]string{{"general.architecture", "llama"}, {"general.type", "adapter"}, {"adapter.type", "lora"}} {
		text(kv[0])
		u32(8)
		text(kv[1])
	}
	text("adapter.lora.alpha")
	u32(6)
	u32(int(math.Float32bits(alpha)))
	tensor := func(name string, width, height, offset int) {
		text(name)
		u32(2)
		u64(width)
		u64(height)
		u32(0)
		u64(offset)
	}
	tensor("blk.29.ffn_down.weight.lora_a", columns, rank, 0)
	tensor("blk.29.ffn_down.weight.lora_b", rank, rows, 4*len(a))
	out = append(out, make([]byte, -len(out)&31)...)
	out = floats(floats(out, a), b)
	return save(t, filepath.Join(t.TempDir(), "adapter.gguf"), out)
}

func save(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
