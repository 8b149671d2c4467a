package kvcache

// Table is the blocks of one running sequence. It belongs to the Cache that made it and must not be used after Close.
type Table struct {
	seq              *sequence // nil: closed
	start            digest
	cached, computed int
}

// Seq is the device's sequence that holds the cells.
func (t *Table) Seq() int { return int(t.seq.id) }

// Len is the number of computed tokens.
func (t *Table) Len() int { return t.computed }

// Cached is the number of tokens that Open found; a fork has that of its source.
func (t *Table) Cached() int { return t.cached }

// Blocks is the number of blocks that the table holds, shared ones included.
func (t *Table) Blocks() int { return len(t.seq.blocks) }

// blocksOf is the number of blocks that so many tokens take.
func blocksOf(tokens int) int { return (tokens + BlockTokens - 1) / BlockTokens }

// Grow gives t the blocks for so many tokens in all, so that Append may follow. Cached blocks give way, the least recently
// used first. A last, partial block that another table holds too is replaced by a copy. ErrNoBlocks.
func (c *Cache) Grow(t *Table, tokens int) error {
	s, all := t.seq, blocksOf(tokens)
	shared := tokens > t.computed && t.computed%BlockTokens > 0 && c.pool.blocks[s.blocks[t.computed/BlockTokens]].holders > 1
	if all <= len(s.blocks) && !shared {
		return nil
	}
	need := max(all-len(s.blocks), 0)
	if shared {
		need++
	}
	if need > c.Free() {
		return ErrNoBlocks
	}
	if shared {
		c.replace(s, t.computed/BlockTokens)
	}
	for len(s.blocks) < all {
		c.hold(s, c.take())
	}
	return nil
}

// take returns a block that nobody holds. There must be one that is free or cached.
func (c *Cache) take() int32 {
	if len(c.pool.free) == 0 {
		c.evict()
	}
	return c.pool.take()
}

// replace gives a table its own copy of the k-th block, which is partial. On libllama no cell moves: both sequences hold the
// cells that were computed once, and each puts what follows in cells of its own.
func (c *Cache) replace(s *sequence, k int) {
	i, old := c.take(), s.blocks[k]
	b := &c.pool.blocks[i]
	b.tokens, b.fill = c.pool.blocks[old].tokens, c.pool.blocks[old].fill
	c.pool.enter(i)
	b.holders = 1
	s.blocks[k] = i
	c.pool.blocks[old].holders--
	c.pool.leave(old)
	c.count.Copies++
}

// Append says that these tokens were computed and follow the ones that t has. Grow must have made room for them. Each block
// that is full now can be hit.
func (c *Cache) Append(t *Table, tokens []Token) {
	for len(tokens) > 0 {
		k := t.computed / BlockTokens
		i := t.seq.blocks[k]
		n := c.pool.fill(i, tokens)
		t.computed += n
		tokens = tokens[n:]
		if t.computed%BlockTokens == 0 {
			before, after := c.pool.root(), &t.start
			if k > 0 {
				before = t.seq.blocks[k-1]
				after = &c.pool.blocks[before].digest
			}
			c.pool.seal(i, before, after)
		}
	}
}

// Truncate leaves the first tokens of t, or all if it has fewer, and takes the blocks beyond, also those that Grow gave.
// Where the cut would go through a block that another sequence holds too, t loses that block whole: see Table.Len. The
// device follows even if nothing changes here, so Truncate(t, t.Len()) clears what an aborted step may have left.
func (c *Cache) Truncate(t *Table, tokens int) {
	s, n, cut := t.seq, min(max(tokens, 0), t.computed), int32(none)
	if part := n % BlockTokens; part > 0 {
		i := s.blocks[n/BlockTokens]
		switch b := &c.pool.blocks[i]; {
		case part == int(b.fill):
		case b.holders > 1:
			n -= part
		default:
			cut = i
		}
	}
	t.computed = n
	c.release(s, blocksOf(n))
	if cut != none { // after those behind it, as always
		c.pool.shrink(cut, n%BlockTokens)
	}
	c.truncate(s, n)
	c.bound()
}
