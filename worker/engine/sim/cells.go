package sim

import (
	"fmt"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// cells are the device's KV cells, as a unified cache has them: a cell belongs to one position and to any number of
// sequences. Each knows what stands in it and in all cells before it, so that a wrong one is seen in the logits.
type cells struct {
	seqs [][]int32 // cells by position
	refs []int32   // sequences that hold a cell
	data []content
	free []int32 // cells with refs 0
	used int
	undo []held
	seen []bool // sequences with an item in the batch under check
}

// content is what a cell adds to the tokens before it.
type content struct {
	hash  uint64 // of all tokens up to here and the adapters under which they were computed
	since int32  // tokens after the last Answer; -1 without one
}

// held is what a sequence held before an operation.
type held struct {
	seq engine.Seq
	was []int32
}

func newCells(sequences, n int) *cells {
	c := &cells{seqs: make([][]int32, sequences), refs: make([]int32, n), data: make([]content, n), seen: make([]bool, sequences)}
	for i := n - 1; i >= 0; i-- {
		c.free = append(c.free, int32(i))
	}
	return c
}

// begin runs the operations of b and checks its items against what they leave. On an error nothing has changed.
func (c *cells) begin(b *engine.Batch, available, mostTokens int) error {
	c.undo = c.undo[:0]
	mark := len(c.free)
	err := c.operate(b.KV)
	tokens := 0
	if err == nil {
		tokens, err = c.check(b.Items)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", err, engine.ErrFatal)
	case tokens > mostTokens:
		err = fmt.Errorf("a batch of %d tokens, of at most %d: %w", tokens, mostTokens, engine.ErrFatal)
	case c.used+tokens > available:
		err = fmt.Errorf("%d of %d cells are used, %d are needed: %w", c.used, available, tokens, engine.ErrNoKV)
	default:
		return nil
	}
	for i := len(c.undo) - 1; i >= 0; i-- {
		c.set(c.undo[i].seq, c.undo[i].was)
	}
	c.free = c.free[:mark] // what the operations freed is held again
	return err
}

func (c *cells) operate(ops []engine.KVOp) error {
	for _, op := range ops {
		if !c.has(op.Dst) {
			return fmt.Errorf("there is no sequence %d", op.Dst)
		}
		var now []int32
		switch op.Kind {
		case engine.KVDrop:
		case engine.KVTruncate:
			if op.N < 0 {
				return fmt.Errorf("truncate sequence %d to %d cells", op.Dst, op.N)
			}
			now = c.seqs[op.Dst][:min(op.N, len(c.seqs[op.Dst]))]
		case engine.KVFork:
			if !c.has(op.Src) || op.Src == op.Dst || op.N < 0 || op.N > len(c.seqs[op.Src]) {
				return fmt.Errorf("fork %d cells of sequence %d into %d", op.N, op.Src, op.Dst)
			}
			now = c.seqs[op.Src][:op.N]
		default:
			return fmt.Errorf("there is no operation %d", op.Kind)
		}
		c.undo = append(c.undo, held{op.Dst, c.seqs[op.Dst]})
		c.set(op.Dst, now[:len(now):len(now)])
	}
	return nil
}

// check returns the number of tokens in items, each of which continues its sequence.
func (c *cells) check(items []engine.Item) (int, error) {
	clear(c.seen)
	n := 0
	for _, it := range items {
		if !c.has(it.Seq) || c.seen[it.Seq] || len(it.Tokens) == 0 || it.Pos != len(c.seqs[it.Seq]) {
			return 0, fmt.Errorf("item of %d tokens at %d of sequence %d, which is one of %d, holds %d and has an item: %t",
				len(it.Tokens), it.Pos, it.Seq, len(c.seqs), c.holds(it.Seq), c.has(it.Seq) && c.seen[it.Seq])
		}
		for _, t := range it.Tokens {
			if t < 0 || t >= vocab {
				return 0, fmt.Errorf("there is no token %d", t)
			}
		}
		c.seen[it.Seq] = true
		n += len(it.Tokens)
	}
	return n, nil
}

// set gives a sequence other cells.
func (c *cells) set(seq engine.Seq, now []int32) {
	was := c.seqs[seq]
	for _, cell := range now {
		if c.refs[cell]++; c.refs[cell] == 1 {
			c.used++
		}
	}
	for _, cell := range was {
		if c.refs[cell]--; c.refs[cell] == 0 {
			c.used--
			c.free = append(c.free, cell)
		}
	}
	c.seqs[seq] = now
}

// compute writes a token's cell.
func (c *cells) compute(seq engine.Seq, t engine.Token, salt uint64) {
	before := content{hash: 1, since: -1}
	if n := len(c.seqs[seq]); n > 0 {
		before = c.data[c.seqs[seq][n-1]]
	}
	now := content{hash: mix(before.hash ^ mix(uint64(t)+salt)), since: before.since}
	switch {
	case t == Answer:
		now.since = 0
	case now.since >= 0:
		now.since++
	}
	cell := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	c.refs[cell] = 1
	c.used++
	c.data[cell] = now
	c.seqs[seq] = append(c.seqs[seq], cell)
}

// last is the content of a sequence's last cell.
func (c *cells) last(seq engine.Seq) content {
	s := c.seqs[seq]
	return c.data[s[len(s)-1]]
}

func (c *cells) has(seq engine.Seq) bool { return seq >= 0 && int(seq) < len(c.seqs) }

func (c *cells) holds(seq engine.Seq) int {
	if !c.has(seq) {
		return 0
	}
	return len(c.seqs[seq])
}

// mix is SplitMix64's finalizer (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
