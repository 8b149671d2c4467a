package prefix

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
)

const (
	// BlockBytes is how much of a prompt one hash of a chain stands for: about 16 tokens, which is the block of most
	// engines' caches.
	BlockBytes = 64
	// MaxBlocks is how long a chain may become: 1 MiB of prompt. What comes after it has no part in any decision.
	MaxBlocks = 16384
)

// Chain is a prompt as a chain of hashes: Chain[i] stands for block i and for everything before it, so two prompts with
// an equal hash at i are equal up to the end of block i, and the same text at another place has another hash. Only whole
// blocks count. Equal prompts have equal chains in every process and every release.
type Chain []uint64

// Builder makes a chain from a prompt that comes in pieces of any size. Begin makes one; it is not for concurrent use.
type Builder struct {
	chain Chain
	last  uint64 // the hash so far
	part  [BlockBytes]byte
	held  int // bytes in part
}

// Begin starts a chain in the memory of dst. Prompts with different seeds (the model's UID, the adapter, a tenant's
// salt) have nothing in common: the first hash takes in each seed with its length.
func Begin(dst Chain, seed ...string) Builder {
	var d xxhash.Digest
	d.Reset()
	var size [4]byte
	for _, s := range seed {
		binary.BigEndian.PutUint32(size[:], uint32(len(s)))
		_, _ = d.Write(size[:]) // never an error
		_, _ = d.WriteString(s)
	}
	return Builder{chain: dst[:0], last: d.Sum64()}
}

// Write appends p to the prompt; it keeps nothing of p but a started block.
func (b *Builder) Write(p []byte) {
	if b.held > 0 {
		n := copy(b.part[b.held:], p)
		b.held += n
		if b.held < BlockBytes {
			return
		}
		b.held = 0
		b.blocks(b.part[:])
		p = p[n:]
	}
	whole := len(p) - len(p)%BlockBytes
	b.blocks(p[:whole])
	b.held = copy(b.part[:], p[whole:])
}

// blocks appends the hashes of p, which is whole blocks.
func (b *Builder) blocks(p []byte) {
	n := min(len(p)/BlockBytes, MaxBlocks-len(b.chain))
	if n == 0 {
		return
	}
	chain, last := slices.Grow(b.chain, n), b.last
	for ; n > 0; n-- {
		last = join(last, xxhash.Sum64(p[:BlockBytes]))
		chain = append(chain, last)
		p = p[BlockBytes:]
	}
	b.chain, b.last = chain, last
}

// Chain returns the chain of all whole blocks written so far, in the memory that Begin was given if it was enough. The
// builder may go on; the chain is then the beginning of the next one.
func (b *Builder) Chain() Chain { return b.chain }

// join is the hash of a block and of everything before it. The block's own hash does not depend on what is before, so
// the processor works on several blocks at once. For either argument fixed it is a bijection of the other one.
func join(before, block uint64) uint64 {
	h := before*0x9E3779B97F4A7C15 + block
	h ^= h >> 32
	h *= 0xD6E8FEB86659FD93
	return h ^ h>>32
}
