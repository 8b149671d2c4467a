package modelfile

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"reflect"
	"slices"
)

// Safetensors is what the head of a safetensors file says.
type Safetensors struct {
	// Tensors are in the order of their data. Dims are in the format's order: the last is the length of a row.
	Tensors []Tensor
	// Parameters is the sum of the tensors' elements.
	Parameters uint64
	// Bytes is the length of a file with this head.
	Bytes uint64
}

// maxHead is the format's own limit of a head.
const maxHead = 100_000_000

// widthBits are the widths of the format's types. Those below a byte are packed.
var widthBits = map[string]uint64{
	"BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64, "F16": 16, "BF16": 16, "F32": 32,
	"F64": 64, "C64": 64, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}

// ReadSafetensors reads the head of a safetensors file of size bytes: eight bytes with the length of a JSON object, the
// object, and the data, which the tensors must fill without gaps to the end of the file. The error is an *Error.
func ReadSafetensors(r io.ReaderAt, size int64) (*Safetensors, error) {
	total := uint64(max(size, 0))
	var first [8]byte
	if n, err := r.ReadAt(first[:], 0); n < len(first) {
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, refuse(Unreadable, "can't be read at byte %d: %v", n, cause(err))
		}
		return nil, refuse(Truncated, "is cut off within its head: expected more than 8 bytes, found %d", total)
	}
	length := binary.LittleEndian.Uint64(first[:])
	switch {
	case length < 2 || length > maxHead:
		return nil, refuse(Foreign, "is not safetensors: its head has %d bytes, expected 2 to %d", length, maxHead)
	case length > total-8:
		return nil, refuse(Truncated, "is cut off within its head: expected more than %d bytes, found %d", 8+length, total)
	}
	s := &Safetensors{}
	data := total - 8 - length
	if err := s.decode(json.NewDecoder(io.NewSectionReader(r, 8, int64(length))), total); err != nil {
		return nil, err
	}
	end, refused := s.arrange()
	if refused != nil {
		return nil, refused
	}
	s.Bytes = 8 + length + end
	switch {
	case end > data:
		return nil, refuse(Truncated, "is cut off: expected %d bytes, found %d", s.Bytes, total)
	case end < data:
		return nil, refuse(Damaged, "is damaged: expected %d bytes, found %d", s.Bytes, total)
	}
	return s, nil
}

// info is the value of one tensor.
type info struct {
	Type    string     `json:"dtype"`
	Shape   dims       `json:"shape"`
	Offsets *[2]uint64 `json:"data_offsets"`
}

// dims are few, so that no head makes a long list.
type dims []uint64

func (d *dims) UnmarshalJSON(b []byte) error {
	if len(b) > 256 {
		return &json.UnmarshalTypeError{Value: "array of more than 256 bytes", Type: reflect.TypeFor[dims](), Field: "shape"}
	}
	return json.Unmarshal(b, (*[]uint64)(d))
}

// decode reads the object, one tensor after the other.
func (s *Safetensors) decode(d *json.Decoder, size uint64) error {
	open, err := d.Token()
	if err != nil || open != json.Delim('{') {
		return headError(err, "expected a JSON object", size)
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return headError(err, "", size)
		}
		name, _ := key.(string)
		if name == "__metadata__" {
			var ignored json.RawMessage
			if err := d.Decode(&ignored); err != nil {
				return headError(err, "", size)
			}
			continue
		}
		if seen[name] || len(seen) >= maxTensors {
			return refuse(Damaged, "is damaged: tensor %q is there twice, or there are more than %d", name, maxTensors)
		}
		seen[name] = true
		var i info
		if err := d.Decode(&i); err != nil {
			return headError(err, "", size)
		}
		t, refused := i.tensor(name)
		if refused != nil {
			return refused
		}
		s.Tensors = append(s.Tensors, t)
	}
	if _, err := d.Token(); err != nil {
		return headError(err, "", size)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return headError(err, "something follows the JSON object", size)
	}
	return nil
}

// headError is why the JSON of a head can't be used.
func headError(err error, otherwise string, size uint64) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return refuse(Damaged, "is damaged: its head: %s", otherwise)
	case errors.As(err, &syntax):
		return refuse(Damaged, "is damaged: its head is no JSON at byte %d of %d: %v", 8+syntax.Offset, size, err)
	case errors.As(err, &kind), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(Damaged, "is damaged: its head: %v", err)
	}
	return refuse(Unreadable, "can't be read: %v", cause(err))
}

func (i info) tensor(name string) (Tensor, *Error) {
	t := Tensor{Name: name, Dims: i.Shape, Type: i.Type}
	width, ok := widthBits[i.Type]
	if !ok {
		return t, refuse(Unsupported, "has tensor %q of type %q, which this version doesn't know", name, i.Type)
	}
	if i.Offsets == nil || i.Offsets[1] < i.Offsets[0] || len(i.Shape) > 8 {
		return t, refuse(Damaged, "is damaged: tensor %q has %d dimensions and the offsets %s", name, len(i.Shape), offsets(i.Offsets))
	}
	elements := uint64(1)
	for _, d := range i.Shape {
		over, product := bits.Mul64(elements, d)
		if over != 0 {
			return t, refuse(Damaged, "is damaged: the dimensions of tensor %q are %v", name, i.Shape)
		}
		elements = product
	}
	over, inBits := bits.Mul64(elements, width)
	t.Offset, t.Bytes = i.Offsets[0], i.Offsets[1]-i.Offsets[0]
	if over != 0 || inBits%8 != 0 || inBits/8 != t.Bytes {
		return t, refuse(Damaged, "is damaged: tensor %q is %s of %v, which doesn't fill its %d bytes", name, i.Type, i.Shape, t.Bytes)
	}
	return t, nil
}

func offsets(o *[2]uint64) string {
	if o == nil {
		return "of none"
	}
	return fmt.Sprint(*o)
}

// arrange sorts the tensors by where they lie and returns the end of the last: each begins where the one before ends.
func (s *Safetensors) arrange() (end uint64, refused *Error) {
	slices.SortFunc(s.Tensors, func(a, b Tensor) int {
		switch {
		case a.Offset != b.Offset && a.Offset < b.Offset:
			return -1
		case a.Offset != b.Offset:
			return 1
		}
		return int(min(a.Bytes, 1)) - int(min(b.Bytes, 1)) // empty ones before the one that begins there
	})
	for _, t := range s.Tensors {
		if t.Offset != end {
			return 0, refuse(Damaged, "is damaged: tensor %q begins at byte %d of the tensor data, expected %d", t.Name, t.Offset, end)
		}
		end += t.Bytes
		s.Parameters += t.Elements()
	}
	return end, nil
}
