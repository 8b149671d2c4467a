package ggufgen

import (
	"encoding/binary"
	"io"
	"math"
	"strings"
)

// source is the SplitMix64 generator (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
type source uint64

func (s *source) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// fill writes t's data: vectors of norms are 1, biases 0, and a matrix has numbers evenly spread around 0, so wide that what
// goes through it keeps its size.
func (m *Model) fill(w io.Writer, t tensor, random *source) error {
	kind := t.kind(m.Type)
	switch {
	case len(t.dims) == 1:
		return repeat(w, binary.LittleEndian.AppendUint32(nil, math.Float32bits(constant(t.name))), t.elements())
	case m.Seed == 0:
		return repeat(w, make([]byte, types[kind].bytes), t.elements()/types[kind].block)
	}
	limit := float32(math.Sqrt(3 / float64(t.dims[0]))) // a uniform spread of variance 1 / the length of a row
	for range t.elements() / types[kind].block {
		if _, err := w.Write(block(kind, limit, random)); err != nil {
			return err
		}
	}
	return nil
}

func constant(name string) float32 {
	if strings.HasSuffix(name, ".bias") {
		return 0
	}
	return 1
}

// block returns one block of numbers within ±limit. All but the scale is drawn as whole numbers, so that no machine rounds
// in its own way.
func block(kind string, limit float32, random *source) []byte {
	switch kind {
	case "Q8_0":
		b := binary.LittleEndian.AppendUint16(make([]byte, 0, 34), half(limit/127))
		for range 4 {
			b = binary.LittleEndian.AppendUint64(b, random.next())
		}
		return b
	case "Q4_0":
		b := binary.LittleEndian.AppendUint16(make([]byte, 0, 18), half(limit/8))
		for range 2 {
			b = binary.LittleEndian.AppendUint64(b, random.next())
		}
		return b
	}
	v := float32(int16(random.next())) * (limit / (1 << 15))
	if kind == "F16" {
		return binary.LittleEndian.AppendUint16(nil, half(v))
	}
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))
}

// half returns v as an IEEE 754 half, rounded towards zero; what is below its normal numbers becomes 0.
func half(v float32) uint16 {
	b := math.Float32bits(v)
	sign, exponent, fraction := uint16(b>>16)&0x8000, int(b>>23&0xff)-127, b&0x7fffff
	if exponent < -14 {
		return sign
	}
	return sign | uint16(exponent+15)<<10 | uint16(fraction>>13)
}

func repeat(w io.Writer, b []byte, n int) error {
	for range n {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}
