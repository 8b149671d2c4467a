package openai

import (
	"encoding/binary"
	"errors"
	"math"
)

// decode reads little-endian float32.
func (v *vector) decode(raw []byte) error {
	if len(raw)%4 != 0 {
		return errors.New("an embedding is cut off")
	}
	v.values = make([]float32, len(raw)/4)
	for i := range v.values {
		v.values[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return nil
}

// unit gives the vector the length 1. It returns false for one that has no direction.
func (v *vector) unit() bool {
	sum := 0.0
	for _, x := range v.values {
		sum += float64(x) * float64(x)
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		return false
	}
	length := math.Sqrt(sum)
	for i, x := range v.values {
		v.values[i] = float32(float64(x) / length)
	}
	return true
}
