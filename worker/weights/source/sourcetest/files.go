// Package sourcetest is what the tests of fetching need: small files that are valid weights, a hub that fails on demand, and a
// real S3 server. The hub is a double because a real one makes no faults to order. It decides nothing and is linked into no
// program.
package sourcetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
)

// GGUF returns a valid file with one tensor of so many bytes, a multiple of 4, that differ with seed.
func GGUF(tensor int, seed uint64) []byte {
	var b bytes.Buffer
	put := func(vs ...any) {
		for _, v := range vs {
			if s, ok := v.(string); ok {
				v = append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...)
			}
			if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
				panic(err) //nolint:forbidigo // the types above are all that is written
			}
		}
	}
	b.WriteString("GGUF")
	put(uint32(3), uint64(1), uint64(2))
	put("general.architecture", uint32(8), "llama", "llama.context_length", uint32(4), uint32(512))
	put("t", uint32(1), uint64(tensor/4), uint32(0), uint64(0))
	for b.Len()%32 != 0 {
		b.WriteByte(0)
	}
	b.Write(noise(tensor, seed))
	return b.Bytes()
}

// Safetensors returns a valid file with one tensor of so many bytes, a multiple of 4, that differ with seed.
func Safetensors(tensor int, seed uint64) []byte {
	head, err := json.Marshal(map[string]any{"t": map[string]any{"dtype": "F32", "shape": []int{tensor / 4}, "data_offsets": []int{0, tensor}}})
	if err != nil {
		panic(err) //nolint:forbidigo // the value above is JSON
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	return append(append(b, head...), noise(tensor, seed)...)
}

func noise(n int, seed uint64) []byte {
	r, b := rand.NewPCG(seed, seed), make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n]
}

// Sum returns the SHA-256 of b in hexadecimal.
func Sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
