package modelfile

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
)

// GGUF is what the head of a GGUF file says.
type GGUF struct {
	// Version of the format, 2 or 3.
	Version uint32
	// Architecture is general.architecture, such as llama.
	Architecture string
	// Name is general.name, for people; it may be empty.
	Name string
	// Parts is how many files the model is split into; 1 for a whole one.
	Parts int
	// HasTemplate: the file holds a chat template.
	HasTemplate bool
	// Tensors are the file's tensors in its order.
	Tensors []Tensor
	// Parameters is the sum of the tensors' elements.
	Parameters uint64
	// Bytes is the least length of a file with this head.
	Bytes uint64

	values map[string]value
}

// Tensor is one tensor of a file.
type Tensor struct {
	Name string
	// Dims are its dimensions; in a GGUF file the first is the length of a row.
	Dims []uint64
	// Type is that of its numbers, such as F16 or Q4_K.
	Type string
	// Bytes is its size; Offset is where it begins within the tensor data.
	Offset, Bytes uint64
}

// Bounds of a head: files beyond them are refused before anything of that size is allocated. The largest vocabularies
// have some 300,000 entries and the largest models some 10,000 tensors.
const (
	maxMetadata  = 1 << 16
	maxTensors   = 1 << 18
	maxArray     = 1 << 26
	maxKept      = 1 << 12 // bytes of a string that is kept
	maxList      = 1 << 12 // elements of an array that is kept
	maxValues    = 1 << 25 // bytes of all that is kept of the metadata
	maxKey       = 1 << 16
	maxNesting   = 4
	maxDims      = 4
	maxAlignment = 1 << 20
)

// ReadGGUF reads the head of a GGUF file of size bytes and checks that all tensors lie within the file, one behind the
// other as the format's reference implementation wants them. Its memory is bounded by what it has read, not by what the
// file claims: long values, such as the vocabulary, are only counted. The error is an *Error.
func ReadGGUF(r io.ReaderAt, size int64) (*GGUF, error) {
	head := newReader(r, uint64(max(size, 0)))
	g, err := head.gguf()
	if err != nil {
		return nil, head.refusal(err)
	}
	if head.size < g.Bytes {
		return nil, refuse(Truncated, "is cut off: expected %d bytes, found %d", g.Bytes, head.size)
	}
	return g, nil
}

// Uint returns the whole number of a key.
func (g *GGUF) Uint(key string) (n uint64, ok bool) {
	v, ok := g.values[key]
	return v.bits, ok && natural(v.kind, v.bits)
}

// Float returns the number of a key that has one of 32 bits with a fraction.
func (g *GGUF) Float(key string) (x float32, ok bool) {
	v, ok := g.values[key]
	return math.Float32frombits(uint32(v.bits)), ok && v.kind == valueFloat32
}

// Uints returns the whole numbers of a key that has an array, or one number as an array of it; nil for anything else.
func (g *GGUF) Uints(key string) []uint64 {
	v, ok := g.values[key]
	if !ok {
		return nil
	}
	if v.kind != valueArray {
		if n, ok := g.Uint(key); ok {
			return []uint64{n}
		}
		return nil
	}
	for _, n := range v.list {
		if !natural(v.item, n) && v.item != valueBool {
			return nil
		}
	}
	return slices.Clone(v.list)
}

// Len returns the number of elements of a key that has an array.
func (g *GGUF) Len(key string) (n uint64, ok bool) {
	v, ok := g.values[key]
	return v.len, ok && v.kind == valueArray
}

// Text returns the string of a key, where it is one of at most 4 KiB.
func (g *GGUF) Text(key string) (s string, ok bool) {
	v, ok := g.values[key]
	return v.text, ok && v.kind == valueString && v.len <= maxKept
}

// ContextTokens is the most tokens that the model was trained for; 0 where the file doesn't say.
func (g *GGUF) ContextTokens() uint64 {
	n, _ := g.Uint(g.Architecture + ".context_length")
	return n
}

func (r *reader) gguf() (*GGUF, error) {
	if err := r.magic(); err != nil {
		return nil, err
	}
	g := &GGUF{values: map[string]value{}}
	var err error
	if g.Version, err = r.version(); err != nil {
		return nil, err
	}
	tensors, err := r.count("tensors", maxTensors)
	if err != nil {
		return nil, err
	}
	entries, err := r.count("metadata entries", maxMetadata)
	if err != nil {
		return nil, err
	}
	for range entries {
		if err := r.entry(g); err != nil {
			return nil, err
		}
	}
	alignment, err := g.describe()
	if err != nil {
		return nil, err
	}
	end, err := r.tensors(g, tensors, alignment)
	if err != nil {
		return nil, err
	}
	total, carry := bits.Add64(align(r.at, alignment), end, 0)
	if carry != 0 || total > math.MaxInt64 {
		return nil, malformed("a tensor lies beyond any file")
	}
	g.Bytes = total
	return g, nil
}

// magic checks the first four bytes.
func (r *reader) magic() error {
	var first [16]byte
	n, err := io.ReadFull(r.r, first[:4])
	r.at += uint64(n)
	if n == 4 && string(first[:4]) == "GGUF" {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if n == 0 {
		return refuse(Truncated, "is empty: expected a GGUF file, found 0 bytes")
	}
	more, _ := io.ReadFull(r.r, first[n:])
	return refuse(Foreign, "is not GGUF: expected it to begin with %s, found %s", hex.EncodeToString([]byte("GGUF")),
		hex.EncodeToString(first[:n+more]))
}

func (r *reader) version() (uint32, error) {
	v, err := r.u32()
	if err != nil || v == 2 || v == 3 {
		return v, err
	}
	if swapped := bits.ReverseBytes32(v); swapped == 2 || swapped == 3 {
		return 0, refuse(Unsupported, "is big-endian GGUF; expected little-endian")
	}
	return 0, refuse(Unsupported, "is GGUF version %d; expected 2 or 3", v)
}

// entry reads a key and its value.
func (r *reader) entry(g *GGUF) error {
	key, err := r.str(maxKey)
	if err != nil {
		return err
	}
	kind, err := r.u32()
	if err != nil {
		return err
	}
	if _, twice := g.values[key]; twice {
		return malformed(fmt.Sprintf("its metadata has %q twice", key))
	}
	v, err := r.value(kind)
	if err != nil {
		return err
	}
	if r.kept += uint64(len(key)) + v.size(); r.kept > maxValues {
		return malformed(fmt.Sprintf("its metadata takes more than %d bytes beside the vocabulary", maxValues))
	}
	g.values[key] = v
	return nil
}

// describe fills in what the metadata says and returns the alignment of tensor data.
func (g *GGUF) describe() (alignment uint64, err error) {
	alignment = 32
	if n, ok := g.Uint("general.alignment"); ok {
		alignment = n
	}
	if alignment == 0 || alignment > maxAlignment || alignment&(alignment-1) != 0 {
		return 0, malformed(fmt.Sprintf("its alignment is %d, expected a power of two up to %d", alignment, maxAlignment))
	}
	g.Architecture, _ = g.Text("general.architecture")
	if g.Architecture == "" {
		return 0, refuse(Unsupported, "doesn't name its architecture (general.architecture)")
	}
	g.Name, _ = g.Text("general.name")
	_, g.HasTemplate = g.values["tokenizer.chat_template"]
	g.Parts = 1
	if n, ok := g.Uint("split.count"); ok && n > 1 {
		if n > maxParts {
			return 0, malformed(fmt.Sprintf("it claims to be one of %d parts, expected at most %d", n, maxParts))
		}
		g.Parts = int(n)
	}
	return alignment, nil
}

const maxParts = 1 << 16

// align rounds n up to a multiple of alignment, a power of two.
func align(n, alignment uint64) uint64 { return (n + alignment - 1) &^ (alignment - 1) }
