// Package kvcache decides which KV blocks each sequence of tokens holds, which prefixes are shared, what stays to be hit
// when a request has ended, and what gives way when room is short. It is also the one place that decides which sequence of
// the device holds which cells: every decision comes out as operations that make the device follow. It computes nothing,
// decides nothing about who runs (package scheduler does) and touches no device (an engine.Executor does). No lock, no
// goroutine, no clock: one goroutine calls it.
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
}

// Key parts the cache: nothing is shared between tables of different keys.
type Key struct {
	Salt    string // of the tenant, where it asks for isolation
	Adapter string // whose cells are not those of the model itself
}

// The errors of a Cache. Each leaves everything as it was.
var (
	// ErrNoSequence: every sequence belongs to an open table.
	ErrNoSequence = errors.New("kv cache has no free sequence")
	// ErrNoBlocks: open tables hold too many blocks.
	ErrNoBlocks = errors.New("kv cache has too few free blocks")
)

// Cache is the state of all blocks and sequences.
type Cache struct{ o Options }

// New returns an empty Cache.
func New(o Options) *Cache { return &Cache{o: o} }

// Open makes a table for tokens, which must not be empty. It holds the longest prefix of them that is in the cache, in whole
// blocks and without the last token, which must be computed for its logits: see Table.Cached. It may end idle chains to get
// a sequence. ErrNoSequence.
func (c *Cache) Open(k Key, tokens []Token) (*Table, error) { return &Table{}, nil }

// Fork makes a table that shares every computed token of t, those of its last, partial block too. It may end idle chains to
// get a sequence. ErrNoSequence.
func (c *Cache) Fork(t *Table) (*Table, error) { return &Table{}, nil }

// Grow gives t the blocks for so many tokens in all, so that Append may follow. Cached blocks give way, the least recently
// used first. A last, partial block that another table holds too is replaced by a copy. ErrNoBlocks.
func (c *Cache) Grow(t *Table, tokens int) error { return nil }

// Append says that these tokens were computed and follow the ones that t has. Grow must have made room for them. Each block
// that is full now can be hit.
func (c *Cache) Append(t *Table, tokens []Token) {}

// Truncate leaves the first tokens of t, or all if it has fewer, and takes the blocks beyond, also those that Grow gave.
// Where the cut would go through a block that another sequence holds too, t loses that block whole: see Table.Len. The
// device follows even if nothing changes here, so Truncate(t, t.Len()) clears what an aborted step may have left.
func (c *Cache) Truncate(t *Table, tokens int) {}

// Close ends t. With keep its full blocks stay as an idle chain that can be hit. Without, its blocks are free but those that
// others hold or that were kept before. A second Close does nothing.
func (c *Cache) Close(t *Table, keep bool) {}

// Lookup returns how many of tokens Open would find. It changes nothing.
func (c *Cache) Lookup(k Key, tokens []Token) int { return 0 }

// Free returns how many blocks Grow can give: free ones and those that only idle chains hold.
func (c *Cache) Free() int { return c.o.Blocks }
