package llamacpp

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/api/modelfile/ggufgen"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// small is a model of numbers that aren't rounded, so that what is computed in two ways can be compared closely.
func small() ggufgen.Model {
	return ggufgen.Model{Architecture: "llama", Name: "Small", Layers: 2, Embedding: 64, FeedForward: 128, Heads: 2, KVHeads: 1,
		Context: 2048, Vocab: 300, Type: "F32", Seed: 5}
}

// written writes m's file, changed.
func written(t testing.TB, m ggufgen.Model, changes ...func([]byte) []byte) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	file := b.Bytes()
	for _, change := range changes {
		file = change(file)
	}
	path := filepath.Join(t.TempDir(), "made.gguf")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// openMade opens m, changed.
func openMade(t testing.TB, m ggufgen.Model, changes ...func([]byte) []byte) *engine.Loaded {
	t.Helper()
	path := written(t, m, changes...)
	return open(t, func(o *Options) { o.WeightsPath = path })
}

// with adds a key to a file's metadata: a uint32 or a bool.
func with(key string, value any) func([]byte) []byte {
	return func(b []byte) []byte {
		entry := binary.LittleEndian.AppendUint64(nil, uint64(len(key)))
		entry = append(entry, key...)
		switch v := value.(type) {
		case uint32:
			entry = binary.LittleEndian.AppendUint32(append(entry, 4, 0, 0, 0), v)
		case bool:
			entry, _ = binary.Append(append(entry, 7, 0, 0, 0), binary.LittleEndian, v)
		}
		const other = "test.padding" // a string that keeps the tensors aligned
		entry = binary.LittleEndian.AppendUint64(entry, uint64(len(other)))
		entry = append(append(entry, other...), 8, 0, 0, 0)
		fill := -(len(entry) + 8) & 31
		entry = append(binary.LittleEndian.AppendUint64(entry, uint64(fill)), strings.Repeat("x", fill)...)
		binary.LittleEndian.PutUint64(b[16:], binary.LittleEndian.Uint64(b[16:])+2)
		return slices.Concat(b[:24], entry, b[24:])
	}
}

// lora is an adapter's file.
type lora struct {
	keys   map[string]any // over the usual ones; nil leaves one out
	pairs  map[string]pair
	others []string // names of more tensors, of one number
}

// pair changes a matrix of columns and rows by second times first.
type pair struct {
	columns, rows, rank int
	first, second       []float32 // rank rows of columns; rows rows of rank
}

const alpha = 8

// randomPair is a change of about the size of the matrix itself.
func randomPair(columns, rows, rank int, seed uint64) pair {
	r := rand.New(rand.NewPCG(seed, 1))
	p := pair{columns: columns, rows: rows, rank: rank}
	numbers := func(n int, spread float64) (out []float32) {
		for range n {
			out = append(out, float32(r.NormFloat64()*spread))
		}
		return out
	}
	p.first, p.second = numbers(rank*columns, 1/math.Sqrt(float64(columns))), numbers(rows*rank, 1/math.Sqrt(float64(rank)))
	return p
}

// add adds the pair to the matrix at the beginning of b, as the library is to do.
func (p pair) add(b []byte) {
	for r := range p.rows {
		for c := range p.columns {
			sum := float32(0)
			for i := range p.rank {
				sum += p.second[r*p.rank+i] * p.first[i*p.columns+c]
			}
			at := b[4*(r*p.columns+c):]
			binary.LittleEndian.PutUint32(at, math.Float32bits(math.Float32frombits(binary.LittleEndian.Uint32(at))+sum*alpha/float32(p.rank)))
		}
	}
}

// merge returns a change of a file of small that has the adapter's effect for good.
func (l lora) merge(t testing.TB) func([]byte) []byte {
	return func(b []byte) []byte {
		head, err := modelfile.ReadGGUF(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		last := head.Tensors[len(head.Tensors)-1]
		start := head.Bytes - last.Offset - last.Bytes
		for _, of := range head.Tensors {
			if p, changed := l.pairs[of.Name]; changed {
				p.add(b[start+of.Offset:])
			}
		}
		return b
	}
}

// write writes the file. Tensors are of F32.
func (l lora) write(t testing.TB) string {
	t.Helper()
	keys := map[string]any{"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": float32(alpha)}
	for k, v := range l.keys {
		keys[k] = v
		if v == nil {
			delete(keys, k)
		}
	}
	type tensor struct {
		name string
		dims []int
		data []float32
	}
	var tensors []tensor
	for name, p := range l.pairs {
		if p.first != nil {
			tensors = append(tensors, tensor{name + ".lora_a", []int{p.columns, len(p.first) / p.columns}, p.first})
		}
		if p.second != nil {
			tensors = append(tensors, tensor{name + ".lora_b", []int{p.rank, len(p.second) / p.rank}, p.second})
		}
	}
	for _, name := range l.others {
		tensors = append(tensors, tensor{name, []int{1, 1}, []float32{1}})
	}
	var b []byte
	u32 := func(n int) { b = binary.LittleEndian.AppendUint32(b, uint32(n)) }
	u64 := func(n int) { b = binary.LittleEndian.AppendUint64(b, uint64(n)) }
	text := func(s string) { u64(len(s)); b = append(b, s...) }
	pad := func() { b = append(b, make([]byte, -len(b)&31)...) }
	b = append(b, "GGUF"...)
	u32(3)
	u64(len(tensors))
	u64(len(keys))
	for k, v := range keys {
		text(k)
		switch v := v.(type) {
		case string:
			u32(8)
			text(v)
		case float32:
			u32(6)
			u32(int(math.Float32bits(v)))
		case uint32:
			u32(4)
			u32(int(v))
		case []uint32:
			u32(9)
			u32(4)
			u64(len(v))
			for _, n := range v {
				u32(int(n))
			}
		}
	}
	offset := 0
	for _, of := range tensors {
		text(of.name)
		u32(len(of.dims))
		for _, d := range of.dims {
			u64(d)
		}
		u32(0)
		u64(offset)
		offset += (4*len(of.data) + 31) &^ 31
	}
	pad()
	for _, of := range tensors {
		for _, x := range of.data {
			u32(int(math.Float32bits(x)))
		}
		pad()
	}
	path := filepath.Join(t.TempDir(), "adapter.gguf")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
