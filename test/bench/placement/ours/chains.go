package ours

import (
	"encoding/binary"

	"github.com/ringfleet/ringfleet/router/prefix"
	"github.com/ringfleet/ringfleet/test/bench/placement/trace"
)

// TokenBytes is how long the text of a token is taken to be, in bytes.
const TokenBytes = 4

// pieces is how many blocks of the index a block of the trace is: 32 of 16 tokens.
const pieces = trace.BlockTokens * TokenBytes / prefix.BlockBytes

// Chains are the hash chains of a trace's prompts, by the requests' index. A trace has no text: each id is written out
// as 2 KiB that no other id has, and the last block as far as the prompt goes.
func Chains(t *trace.Trace) []prefix.Chain {
	out := make([]prefix.Chain, len(t.Requests))
	var text []byte
	for i, q := range t.Requests {
		text = text[:0]
		for _, id := range q.Blocks {
			text = write(text, id)
		}
		b := prefix.Begin(nil, modelUID, "", "")
		b.Write(text[:q.Input*TokenBytes])
		out[i] = b.Chain()
	}
	return out
}

// write appends the text of a block.
func write(dst []byte, id uint64) []byte {
	for piece := range uint64(pieces) {
		for word := range uint64(prefix.BlockBytes / 16) {
			dst = binary.LittleEndian.AppendUint64(dst, id)
			dst = binary.LittleEndian.AppendUint64(dst, piece<<8|word)
		}
	}
	return dst
}
