package grammar

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// Vocabulary is what a model's tokens mean to a grammar. It is made once for a model and may be used from any goroutine. It
// holds the tokens' bytes and at most 27 bytes more for each: two bits for each state that outputs have come to.
type Vocabulary struct {
	read func() // fills in the rest, once

	bytes  []byte   // of all tokens, one after another
	starts []uint32 // of each token, and the end
	ends   bitmap
	plain  bitmap // tokens that stay in a string
	sorted [maxStates]atomic.Pointer[verdicts]
}

// verdicts sorts the tokens at a state: those that may come there whatever the machine's depth and counts, and those for
// which that depends on these. The rest may not.
type verdicts struct {
	always, depends bitmap
}

type bitmap []uint64

func newBitmap(n int) bitmap             { return make(bitmap, (n+63)/64) }
func (b bitmap) has(t engine.Token) bool { return b[t>>6]>>(t&63)&1 != 0 }
func (b bitmap) add(t engine.Token)      { b[t>>6] |= 1 << (t & 63) }

// New returns the vocabulary of size tokens. piece returns a token's bytes and ends whether it ends an output; both are
// asked about every token by the first use of the vocabulary, and not after that.
func New(size int, piece func(engine.Token) []byte, ends func(engine.Token) bool) *Vocabulary {
	v := &Vocabulary{}
	v.read = sync.OnceFunc(func() {
		v.ends, v.plain = newBitmap(size), newBitmap(size)
		v.starts = make([]uint32, size+1)
		for t := range engine.Token(size) {
			if ends(t) {
				v.ends.add(t)
			} else {
				p := piece(t)
				v.bytes = append(v.bytes, p...)
				if plain(p) {
					v.plain.add(t)
				}
			}
			v.starts[t+1] = uint32(len(v.bytes))
		}
	})
	return v
}

func (v *Vocabulary) size() int { return len(v.starts) - 1 }

// piece returns a token's bytes. Those of special ones, and of those that end an output, are none.
func (v *Vocabulary) piece(t engine.Token) []byte { return v.bytes[v.starts[t]:v.starts[t+1]] }

// at returns the verdicts on all tokens at s.
func (v *Vocabulary) at(s state) *verdicts {
	if found := v.sorted[s].Load(); found != nil {
		return found
	}
	out := &verdicts{newBitmap(v.size()), newBitmap(v.size())}
	switch {
	case s == end:
		copy(out.always, v.ends)
	case grammar.body[s]:
		copy(out.always, v.plain)
	}
	for t := range engine.Token(v.size()) {
		p := v.piece(t)
		if len(p) > 0 && grammar.table[s][p[0]] != wrong && !out.always.has(t) {
			judge(s, p, t, out)
		}
	}
	v.sorted[s].Store(out) // of two that do this at once, both have made the same
	return out
}

// plain reports whether a piece stays in the string that it begins in, between characters.
func plain(piece []byte) bool {
	m := machine{state: grammar.key}
	return len(piece) > 0 && bytes.IndexByte(piece, '"') < 0 && m.read(piece) && m.state == grammar.key
}

// judge enters the verdict on a token's bytes at s. It reads them by a machine at a depth from which it has as far to go in
// as out. What that machine meets at s the true one meets too, except where the bytes leave what the state knows: the
// object or array around it, the room for more of them, and the counts of blanks and digits before.
func judge(s state, piece []byte, t engine.Token, out *verdicts) {
	const around = maxDepth / 2
	m, depends := machine{state: s, depth: around}, false
	if grammar.inObject(s) {
		m.kinds = 1
	}
	for i, b := range piece {
		if grammar.table[m.state][b] == wrong {
			return
		}
		if !m.step(b) || m.depth < around && i+1 < len(piece) {
			depends = true
			break
		}
		depends = depends || m.depth > around || m.run > 0
	}
	if depends {
		out.depends.add(t)
	} else {
		out.always.add(t)
	}
}
