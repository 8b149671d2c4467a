package prefix

import (
	"math/bits"
	"math/rand/v2"
)

// table finds a run by its first hash: open addressing in an array that is made once and at most half full, so no
// request ever pays for its growth. A cell is 32 bits of the mixed hash, which also say where the cell wants to be, and
// the run's id. Clients can choose prompts but not the secret, so they cannot crowd a place of the table.
type table struct {
	cells   []uint64
	shift   uint
	secret  uint64
	factors uint64
}

// newTable returns a table for at most n ids.
func newTable(n int) table {
	width := max(bits.Len(uint(2*n-1)), 1)
	return table{cells: make([]uint64, 1<<width), shift: 32 - uint(width), secret: rand.Uint64(), factors: rand.Uint64() | 1}
}

// tag is the upper half of the cell for hash.
func (t *table) tag(hash uint64) uint32 {
	hi, lo := bits.Mul64(hash^t.secret, t.factors)
	return uint32((hi ^ lo) >> 32)
}

func (t *table) home(tag uint32) uint32 { return tag >> t.shift }

func (t *table) mask() uint32 { return uint32(len(t.cells) - 1) }

// add notes id for hash, which the table does not have.
func (t *table) add(hash uint64, id uint32) {
	tag := t.tag(hash)
	at := t.home(tag)
	for t.cells[at] != 0 {
		at = (at + 1) & t.mask()
	}
	t.cells[at] = uint64(tag)<<32 | uint64(id)
}

// remove takes out id, which the table has for hash, and closes the gap.
func (t *table) remove(hash uint64, id uint32) {
	tag := t.tag(hash)
	gap := t.home(tag)
	for t.cells[gap] != uint64(tag)<<32|uint64(id) {
		gap = (gap + 1) & t.mask()
	}
	for at := (gap + 1) & t.mask(); t.cells[at] != 0; at = (at + 1) & t.mask() {
		home := t.home(uint32(t.cells[at] >> 32))
		if (at-home)&t.mask() >= (at-gap)&t.mask() {
			t.cells[gap], gap = t.cells[at], at
		}
	}
	t.cells[gap] = 0
}
