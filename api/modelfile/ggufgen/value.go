package ggufgen

import (
	"encoding/binary"
	"math"
)

// value is one value of metadata. append appends the number of its type and the value itself.
type value interface{ append(b []byte) []byte }

type (
	text      string
	number    uint32
	fraction  float32
	texts     []string
	fractions []float32
	wholes    []int32
)

// The numbers of the types in the format.
const ofUint32, ofInt32, ofFloat32, ofString, ofArray = 4, 5, 6, 8, 9

func (v text) append(b []byte) []byte {
	return appendString(binary.LittleEndian.AppendUint32(b, ofString), string(v))
}

func (v number) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, ofUint32), uint32(v))
}

func (v fraction) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, ofFloat32), math.Float32bits(float32(v)))
}

func (v texts) append(b []byte) []byte {
	b = appendArray(b, ofString, len(v))
	for _, s := range v {
		b = appendString(b, s)
	}
	return b
}

func (v fractions) append(b []byte) []byte {
	b = appendArray(b, ofFloat32, len(v))
	for _, n := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(n))
	}
	return b
}

func (v wholes) append(b []byte) []byte {
	b = appendArray(b, ofInt32, len(v))
	for _, n := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// appendArray begins an array of n elements of a type.
func appendArray(b []byte, kind uint32, n int) []byte {
	b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, ofArray), kind)
	return binary.LittleEndian.AppendUint64(b, uint64(n))
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}
