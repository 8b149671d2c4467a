// Package kvcache decides which KV blocks each sequence of tokens holds, which prefixes are shared, what stays to be hit
// when a request has ended, and what gives way when room is short. It is also the one place that decides which sequence of
// the device holds which cells: every decision comes out as operations that make the device follow. It computes nothing,
// decides nothing about who runs (package scheduler does) and touches no device (an engine.Executor does). No lock, no
// goroutine, no clock: one goroutine calls it.
//
// A step goes so. Before: Open, Fork, Close and Truncate as there is reason to; Grow each table of the step, after its last
// Fork; Ops, for the device to run first. After: Append what was computed. A device that refused the step and changed
// nothing has not run the operations either: Unrun. One that aborted it has run them, and may have left cells:
// Truncate(t, t.Len()) each table of the step.
package kvcache

import "errors"

// BlockTokens is the number of tokens in a block.
const BlockTokens = 16

// Token is an index into a model's vocabulary.
type Token = int32

// Options sizes a Cache.
type Options struct {
	// Blocks is the number of blocks there are: the device's cells / BlockTokens.
	Blocks int
	// Sequences is the number of the device's sequences, 0 to Sequences-1, of tables and idle chains together. libllama has
	// at most 256.
	Sequences int
	// MaxIdle is the most idle chains: sequences kept only so that their prefix can be hit. 0 keeps none, so only what
	// running requests hold can be hit.
	MaxIdle int
	// IdleBlocks is the most blocks that idle chains hold alone; 0 bounds them by Blocks only. Idle cells cost time in every
	// step on libllama.
	IdleBlocks int
	// Length is how long a token's text is, for Mark.Bytes; nil: they have none.
	Length func(Token) int
}

// Key parts the cache: nothing is shared between tables of different keys.
type Key struct {
	Salt    string // of the tenant, where it asks for isolation
	Adapter string // another name for another content, for the cells depend on it
}

// The errors of a Cache. Each leaves everything as it was.
var (
	// ErrNoSequence: every sequence belongs to an open table.
	ErrNoSequence = errors.New("kv cache has no free sequence")
	// ErrNoBlocks: open tables hold too many blocks.
	ErrNoBlocks = errors.New("kv cache has too few free blocks")
)

// Cache is the state of all blocks and sequences.
type Cache struct {
	o        Options
	pool     pool
	seqs     []sequence
	freeSeqs []int32
	idle     int     // sequences that are idle chains
	pinned   []int32 // scratch of share
	pending  []Op
	handed   []Op  // out by the last Ops
	count    Stats // what is counted since the start
}

// New returns an empty Cache.
func New(o Options) *Cache {
	o.Blocks, o.Sequences = max(o.Blocks, 0), max(o.Sequences, 0)
	c := &Cache{o: o, pool: newPool(o.Blocks, o.Length), seqs: make([]sequence, o.Sequences), freeSeqs: make([]int32, o.Sequences)}
	for i := range c.seqs {
		c.seqs[i].id = int32(i)
		c.freeSeqs[i] = int32(o.Sequences - 1 - i)
	}
	return c
}

// Open makes a table for tokens. It holds the longest prefix of them that is in the cache, in whole blocks and without the
// last token, which must be computed for its logits: see Table.Cached. It may end idle chains to get a sequence.
// ErrNoSequence.
func (c *Cache) Open(k Key, tokens []Token) (*Table, error) {
	if !c.hasSequence() {
		return nil, ErrNoSequence
	}
	t := &Table{start: k.start()}
	last, n := c.find(&t.start, tokens)
	if n == 0 {
		t.seq = c.sequence()
	} else {
		t.seq = c.share(last, n)
	}
	t.cached, t.computed = n*BlockTokens, n*BlockTokens
	c.count.Queries += int64(len(tokens))
	c.count.Hits += int64(t.cached)
	return t, nil
}

// Fork makes a table that shares every computed token of t, those of its last, partial block too. Both must Grow before they
// Append again, for only one of them may write to that block. It may end idle chains to get a sequence. ErrNoSequence.
func (c *Cache) Fork(t *Table) (*Table, error) {
	if !c.hasSequence() {
		return nil, ErrNoSequence
	}
	s := c.sequence()
	for _, i := range t.seq.blocks[:blocksOf(t.computed)] {
		c.hold(s, i)
	}
	c.fork(t.seq, s, t.computed)
	return &Table{seq: s, start: t.start, cached: t.cached, computed: t.computed}, nil
}

// Close ends t. With keep its full blocks stay as an idle chain that can be hit. Without, its blocks are free but those that
// others hold or that were kept before. A second Close does nothing.
func (c *Cache) Close(t *Table, keep bool) {
	s := t.seq
	if s == nil {
		return
	}
	t.seq = nil
	full := t.computed / BlockTokens
	if keep && c.o.MaxIdle > 0 {
		c.keep(s.blocks[:full])
	}
	for full > 0 && !c.worthKeeping(s.blocks[full-1]) {
		full--
	}
	c.release(s, full)
	if full == 0 || c.pool.blocks[s.blocks[full-1]].holders > 1 { // nothing, or a part of another sequence
		c.release(s, 0)
		c.end(s)
	} else {
		c.rest(s)
	}
	c.bound()
}

// Lookup returns how many of tokens Open would find. It changes nothing.
func (c *Cache) Lookup(k Key, tokens []Token) int {
	start := k.start()
	_, n := c.find(&start, tokens)
	return n * BlockTokens
}

// Free returns how many blocks Grow can give: free ones and those that only idle chains hold. What Lookup finds may be among
// them, and is not any more once it is open.
func (c *Cache) Free() int { return len(c.pool.free) + c.pool.cached }

// find returns the last block of the longest cached prefix of tokens but the last, and the number of its blocks.
func (c *Cache) find(start *digest, tokens []Token) (last int32, n int) {
	last = none
	for d := *start; (n+1)*BlockTokens < len(tokens); n++ {
		d = d.then((*[BlockTokens]Token)(tokens[n*BlockTokens:]))
		i := c.pool.find(&d)
		if i == none {
			break
		}
		last = i
	}
	return last, n
}
