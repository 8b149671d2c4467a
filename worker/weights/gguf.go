package weights

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// Header is what the head of a GGUF file says.
type Header struct {
	// Version of the format, 2 or 3.
	Version uint32
	// Architecture is general.architecture, such as llama.
	Architecture string
	// Name is general.name, for people; it may be empty.
	Name string
	// ContextTokens is the most tokens that the model was trained for; 0 where the file doesn't say.
	ContextTokens uint64
	// Tensors is the number of tensors, Parameters the sum of their elements.
	Tensors, Parameters uint64
	// Bytes is the least length of a file with this head.
	Bytes uint64
	// HasTemplate: the file holds a chat template.
	HasTemplate bool
}

// Bounds of a head: files beyond them are refused before anything of that size is allocated. The largest vocabularies
// have some 300,000 entries and the largest models some 10,000 tensors.
const (
	maxMetadata  = 1 << 16
	maxTensors   = 1 << 20
	maxArray     = 1 << 26
	maxKept      = 1 << 12 // bytes of a string that is kept
	maxKey       = 1 << 16
	maxNesting   = 4
	maxDims      = 4
	maxAlignment = 1 << 20
)

// The types of metadata values, by their numbers in the format.
const (
	valueUint32  = 4
	valueUint64  = 10
	valueString  = 8
	valueArray   = 9
	valueFloat64 = 12
)

// widths of the values of fixed size by type number; 0 for the others.
var widths = [valueFloat64 + 1]uint64{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

// ReadHeader reads the head of a GGUF file of size bytes from r. name stands for the file in messages. It keeps only what
// Header has, so its memory does not depend on what the file says. The error is an *engine.LoadError.
func ReadHeader(r io.Reader, name string, size uint64) (*Header, error) {
	p := &parser{r: bufio.NewReaderSize(r, 1<<16), name: name, size: size}
	h, err := p.header()
	if err != nil {
		return nil, p.refusal(err)
	}
	if size < h.Bytes {
		return nil, refuse(Truncated, "the weights file %s is cut off: expected %d bytes, found %d", name, h.Bytes, size)
	}
	return h, nil
}

// parser walks over the head of one file.
type parser struct {
	r    *bufio.Reader
	name string
	size uint64
	at   uint64 // bytes read
	buf  [8]byte
}

// malformed is a head that contradicts the format.
type malformed string

func (m malformed) Error() string { return string(m) }

// refusal makes of err what a user can act on.
func (p *parser) refusal(err error) error {
	var refused *engine.LoadError
	var bad malformed
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &bad):
		return refuse(NotGGUF, "the weights file %s is damaged at byte %d of %d: %s", p.name, p.at, p.size, string(bad))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(Truncated, "the weights file %s is cut off within its head: expected more than %d bytes, found %d",
			p.name, max(p.at, p.size), p.size)
	}
	return refuse(NotFound, "the weights file %s can't be read at byte %d: %v", p.name, p.at, cause(err))
}

func (p *parser) header() (*Header, error) {
	if err := p.magic(); err != nil {
		return nil, err
	}
	h := &Header{}
	version, err := p.u32()
	if err != nil {
		return nil, err
	}
	if version != 2 && version != 3 {
		if swapped := bits.ReverseBytes32(version); swapped == 2 || swapped == 3 {
			return nil, refuse(Unsupported, "the weights file %s is big-endian GGUF; expected little-endian", p.name)
		}
		return nil, refuse(Unsupported, "the weights file %s is GGUF version %d; expected 2 or 3", p.name, version)
	}
	h.Version = version
	if h.Tensors, err = p.count("tensors", maxTensors); err != nil {
		return nil, err
	}
	entries, err := p.count("metadata entries", maxMetadata)
	if err != nil {
		return nil, err
	}
	alignment, err := p.metadata(h, entries)
	if err != nil {
		return nil, err
	}
	end, err := p.tensors(h)
	if err != nil {
		return nil, err
	}
	start := (p.at + alignment - 1) / alignment * alignment
	if h.Tensors == 0 {
		return nil, refuse(Unsupported, "the weights file %s holds no tensors", p.name)
	}
	total, carry := bits.Add64(start, end, 0)
	if carry != 0 || total > math.MaxInt64 {
		return nil, malformed("a tensor lies beyond any file")
	}
	h.Bytes = total
	return h, nil
}

// magic checks the first four bytes.
func (p *parser) magic() error {
	var first [16]byte
	n, err := io.ReadFull(p.r, first[:4])
	p.at += uint64(n)
	if n == 4 && string(first[:4]) == "GGUF" {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if n == 0 {
		return refuse(Truncated, "the weights file %s is empty: expected a GGUF file, found 0 bytes", p.name)
	}
	more, _ := io.ReadFull(p.r, first[n:])
	return refuse(NotGGUF, "the weights file %s is not GGUF: expected it to begin with %s, found %s", p.name,
		hex.EncodeToString([]byte("GGUF")), hex.EncodeToString(first[:n+more]))
}

// metadata walks over the entries and returns the alignment of tensor data.
func (p *parser) metadata(h *Header, entries uint64) (uint64, error) {
	alignment := uint64(32)
	contexts := map[string]uint64{} // architecture to length: general.architecture may come later
	for range entries {
		key, err := p.str(maxKey)
		if err != nil {
			return 0, err
		}
		kind, err := p.u32()
		if err != nil {
			return 0, err
		}
		if err := p.entry(h, key, kind, &alignment, contexts); err != nil {
			return 0, err
		}
	}
	if alignment == 0 || alignment > maxAlignment || alignment&(alignment-1) != 0 {
		return 0, malformed(fmt.Sprintf("its alignment is %d, expected a power of two up to %d", alignment, maxAlignment))
	}
	if h.Architecture == "" {
		return 0, refuse(Unsupported, "the weights file %s doesn't name its architecture (general.architecture)", p.name)
	}
	h.ContextTokens = contexts[h.Architecture]
	return alignment, nil
}

// entry reads one value and keeps it where something needs it.
func (p *parser) entry(h *Header, key string, kind uint32, alignment *uint64, contexts map[string]uint64) (err error) {
	arch, isContext := cutContext(key)
	switch {
	case key == "general.architecture" && kind == valueString:
		h.Architecture, err = p.str(maxKept)
	case key == "general.name" && kind == valueString:
		h.Name, err = p.str(maxKept)
	case key == "general.alignment" && kind == valueUint32:
		*alignment, err = p.number(kind)
	case isContext && len(contexts) < 8 && (kind == valueUint32 || kind == valueUint64):
		contexts[arch], err = p.number(kind)
	case key == "split.count" && kind < valueUint64 && kind != valueString && kind != valueArray:
		err = p.split(kind)
	default:
		h.HasTemplate = h.HasTemplate || key == "tokenizer.chat_template"
		err = p.skip(kind, 0)
	}
	return err
}

// split refuses a part of a model: the other parts would be loaded unchecked.
func (p *parser) split(kind uint32) error {
	n, err := p.number(kind)
	if err == nil && n > 1 {
		return refuse(Unsupported, "the weights file %s is one of %d parts; expected a whole model: merge the parts", p.name, n)
	}
	return err
}

// tensors walks over the tensor infos and returns the end of the last tensor within the tensor data.
func (p *parser) tensors(h *Header) (uint64, error) {
	var end uint64
	for range h.Tensors {
		name, err := p.str(maxKey)
		if err != nil {
			return 0, err
		}
		elements, first, err := p.shape(name)
		if err != nil {
			return 0, err
		}
		kind, err := p.u32()
		if err != nil {
			return 0, err
		}
		offset, err := p.u64()
		if err != nil {
			return 0, err
		}
		t, ok := tensorTypes[kind]
		if !ok {
			return 0, refuse(Unsupported, "the weights file %s has a tensor of type %d, which this version doesn't know", p.name, kind)
		}
		if first%t.block != 0 {
			return 0, malformed(fmt.Sprintf("a row of tensor %q has %d numbers, expected a multiple of %d", name, first, t.block))
		}
		over, size := bits.Mul64(elements/t.block, t.bytes)
		last, carry := bits.Add64(offset, size, 0)
		if over != 0 || carry != 0 || last > math.MaxInt64 {
			return 0, malformed(fmt.Sprintf("tensor %q lies beyond any file", name))
		}
		end = max(end, last)
		h.Parameters += elements
	}
	return end, nil
}

// shape returns the number of elements of a tensor and the length of its rows.
func (p *parser) shape(name string) (elements, first uint64, err error) {
	dims, err := p.u32()
	if err != nil {
		return 0, 0, err
	}
	if dims > maxDims {
		return 0, 0, malformed(fmt.Sprintf("tensor %q has %d dimensions, expected at most %d", name, dims, maxDims))
	}
	elements, first = 1, 1
	for i := range dims {
		n, err := p.u64()
		if err != nil {
			return 0, 0, err
		}
		if i == 0 {
			first = n
		}
		over, product := bits.Mul64(elements, n)
		if n == 0 || over != 0 || product > math.MaxInt64 {
			return 0, 0, malformed(fmt.Sprintf("dimension %d of tensor %q is %d", i, name, n))
		}
		elements = product
	}
	return elements, first, nil
}
