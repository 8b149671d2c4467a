package kvcache

import (
	"crypto/sha256"
	"encoding/binary"
)

// digest names a prefix: the key, and all tokens from the first to the end of a block. It is SHA-256, for a collision would
// give one tenant the cells of another, and whoever sends prompts could look for collisions of a hash that is not
// cryptographic. It costs about a quarter of a microsecond for a block, a thousandth of what computing its 16 tokens does.
type digest [sha256.Size]byte

// What is hashed begins with its kind, so that no key, however chosen, has the digest of a block.
const (
	kindKey   = 'k'
	kindBlock = 'b'
)

// start is the digest that the first block of a key's prompts follows. The length keeps salt and adapter apart.
func (k Key) start() digest {
	b := make([]byte, 0, 128)
	b = append(b, kindKey)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(k.Salt)))
	b = append(b, k.Salt...)
	b = append(b, k.Adapter...)
	return sha256.Sum256(b)
}

// then is the digest of a block that follows d.
func (d *digest) then(tokens *[BlockTokens]Token) digest {
	var b [1 + sha256.Size + 4*BlockTokens]byte
	b[0] = kindBlock
	copy(b[1:], d[:])
	for i, t := range tokens {
		binary.LittleEndian.PutUint32(b[1+sha256.Size+4*i:], uint32(t))
	}
	return sha256.Sum256(b[:])
}

// index finds full blocks by their digest: a table of lists that run through the blocks, so that it never allocates. Equal
// blocks that were computed twice are all in it.
type index struct {
	heads []int32 // a power of two
}

func newIndex(blocks int) index {
	n := 1
	for n < blocks {
		n *= 2
	}
	x := index{heads: make([]int32, n)}
	for i := range x.heads {
		x.heads[i] = none
	}
	return x
}

// head is where the list of a digest begins.
func (x *index) head(d *digest) *int32 {
	return &x.heads[binary.LittleEndian.Uint64(d[:])&uint64(len(x.heads)-1)]
}
