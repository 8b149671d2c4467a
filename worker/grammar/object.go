// Package grammar says which tokens keep an output within a grammar: exactly one JSON object. It reads tokens as bytes, so
// that strings and characters may be split over tokens in any way. It chooses nothing: package sampling does, which takes
// a JSONObject as its Constraint. Text that ends early, by its length, is the beginning of an object and no more.
//
// The automaton is a table of states with a stack of one bit a level. Most tokens may or may not come at a state whatever
// the stack holds; that is found out once for each state and model, so that asking about a token mostly reads a bit. (The
// division into tokens that depend on the stack and such that don't is that of XGrammar, Dong et al., 2024.)
package grammar

import (
	"math"
	"math/bits"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// JSONObject is an output that is a JSON object, and what may come next in it. It isn't safe for use by several goroutines.
//
// The output is RFC 8259's with three bounds: it nests 64 deep, a number has at most 128 bytes, and at most eight blanks
// for each level of nesting and eight more follow each other, so that a model can't write blanks for ever. Its strings are
// UTF-8 without unpaired surrogates, as RFC 7493 asks.
type JSONObject struct {
	vocabulary *Vocabulary
	machine    machine
	here       *verdicts // nil: nothing may come
}

// JSONObject returns an empty output.
func (v *Vocabulary) JSONObject() *JSONObject {
	v.read()
	return &JSONObject{vocabulary: v, here: v.at(start)}
}

// Allows reports whether t may come next. A token that ends the output may when the object is complete, one without bytes
// never.
func (o *JSONObject) Allows(t engine.Token) bool {
	switch {
	case o.here == nil || uint(t) >= uint(o.vocabulary.size()):
		return false
	case o.here.always.has(t):
		return true
	case o.here.depends.has(t):
		m := o.machine
		return m.read(o.vocabulary.piece(t))
	}
	return false
}

// Mask sets the entry of each token that isn't allowed to -Inf. Row has an entry for each token.
func (o *JSONObject) Mask(row []float32) {
	for from := 0; from < len(row); from += 64 {
		some := row[from:min(from+64, len(row))]
		refused := ^o.allowed(from / 64)
		if refused == math.MaxUint64 { // most words, between strings
			for i := range some {
				some[i] = nothing
			}
			continue
		}
		for ; refused != 0; refused &= refused - 1 {
			if i := bits.TrailingZeros64(refused); i < len(some) {
				some[i] = nothing
			}
		}
	}
}

var nothing = float32(math.Inf(-1))

// allowed returns a bit for each of the 64 tokens from 64·word on.
func (o *JSONObject) allowed(word int) uint64 {
	if o.here == nil || word >= len(o.here.always) {
		return 0
	}
	allowed := o.here.always[word]
	for left := o.here.depends[word]; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		m := o.machine
		if m.read(o.vocabulary.piece(engine.Token(word*64 + i))) {
			allowed |= 1 << i
		}
	}
	return allowed
}

// Accept takes t. After one that isn't allowed, none is.
func (o *JSONObject) Accept(t engine.Token) {
	if !o.Allows(t) || !o.machine.read(o.vocabulary.piece(t)) {
		o.here = nil
		return
	}
	o.here = o.vocabulary.at(o.machine.state)
}

// Complete reports whether the output is a whole object. Only blanks could follow.
func (o *JSONObject) Complete() bool { return o.here != nil && o.machine.state == end }
