package modelfile

import (
	"fmt"
	"math"
	"math/bits"
)

// tensors reads the tensor infos into g and returns where the last tensor ends within the tensor data.
func (r *reader) tensors(g *GGUF, count, alignment uint64) (end uint64, err error) {
	var next uint64 // where the next tensor must begin
	for range count {
		t, err := r.tensor()
		if err != nil {
			return 0, err
		}
		if t.Offset != next {
			return 0, malformed(fmt.Sprintf("tensor %q begins at byte %d of the tensor data, expected %d", t.Name, t.Offset, next))
		}
		last, carry := bits.Add64(t.Offset, t.Bytes, 0)
		if carry != 0 || last > math.MaxInt64-maxAlignment {
			return 0, malformed(fmt.Sprintf("tensor %q lies beyond any file", t.Name))
		}
		end, next = last, align(last, alignment)
		g.Tensors = append(g.Tensors, t)
		g.Parameters += t.Elements()
	}
	if count == 0 {
		return 0, refuse(Unsupported, "holds no tensors")
	}
	return end, nil
}

// Elements is how many numbers t has.
func (t Tensor) Elements() uint64 {
	n := uint64(1)
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// tensor reads one tensor info.
func (r *reader) tensor() (t Tensor, err error) {
	if t.Name, err = r.str(maxKey); err != nil {
		return t, err
	}
	if err = r.dims(&t); err != nil {
		return t, err
	}
	kind, err := r.u32()
	if err != nil {
		return t, err
	}
	if t.Offset, err = r.u64(); err != nil {
		return t, err
	}
	of, ok := tensorTypes[kind]
	if !ok {
		return t, refuse(Unsupported, "has a tensor of type %d, which this version doesn't know", kind)
	}
	row := uint64(1)
	if len(t.Dims) > 0 {
		row = t.Dims[0]
	}
	if row%of.block != 0 {
		return t, malformed(fmt.Sprintf("a row of tensor %q has %d numbers, expected a multiple of %d", t.Name, row, of.block))
	}
	over, size := bits.Mul64(t.Elements()/of.block, of.bytes)
	if over != 0 {
		return t, malformed(fmt.Sprintf("tensor %q lies beyond any file", t.Name))
	}
	t.Type, t.Bytes = of.name, size
	return t, nil
}

// dims reads the dimensions of t, whose product fits a number.
func (r *reader) dims(t *Tensor) error {
	dims, err := r.u32()
	if err != nil {
		return err
	}
	if dims > maxDims {
		return malformed(fmt.Sprintf("tensor %q has %d dimensions, expected at most %d", t.Name, dims, maxDims))
	}
	elements := uint64(1)
	for i := range dims {
		n, err := r.u64()
		if err != nil {
			return err
		}
		over, product := bits.Mul64(elements, n)
		if n == 0 || over != 0 || product > math.MaxInt64 {
			return malformed(fmt.Sprintf("dimension %d of tensor %q is %d", i, t.Name, n))
		}
		elements = product
		t.Dims = append(t.Dims, n)
	}
	return nil
}
