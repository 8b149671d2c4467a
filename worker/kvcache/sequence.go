package kvcache

// sequence is one of the device's: free, an open table's, or an idle chain. An idle chain has full blocks only, and nothing
// else holds its last one: what would be a part of another sequence needs none of its own.
type sequence struct {
	id     int32
	blocks []int32
}

func (c *Cache) hasSequence() bool { return len(c.freeSeqs) > 0 || c.idle > 0 }

// sequence takes a sequence without blocks. Where none is free, cached blocks give way until one is.
func (c *Cache) sequence() *sequence {
	for len(c.freeSeqs) == 0 {
		c.evict()
	}
	s := &c.seqs[c.freeSeqs[len(c.freeSeqs)-1]]
	c.freeSeqs = c.freeSeqs[:len(c.freeSeqs)-1]
	return s
}

// share takes a sequence that holds the n cached blocks up to last: the idle chain that they are, or a fork.
func (c *Cache) share(last int32, n int) *sequence {
	c.pinned = append(c.pinned[:0], c.holder(last, n).blocks[:n]...)
	for _, i := range c.pinned {
		c.pool.enter(i) // so that they don't give way to the sequence
	}
	for len(c.freeSeqs) == 0 && c.pool.blocks[last].chain == none {
		c.evict() // of others, or of what follows last in its chain
	}
	if chain := c.pool.blocks[last].chain; chain != none {
		c.pool.blocks[last].chain = none
		c.idle--
		return &c.seqs[chain]
	}
	s := c.sequence()
	c.fork(c.holder(last, n), s, n*BlockTokens)
	for _, i := range c.pinned {
		c.pool.blocks[i].holders++
	}
	s.blocks = append(s.blocks, c.pinned...)
	return s
}

// holder is a sequence whose n-th block is i. A full block that can be found has one.
func (c *Cache) holder(i int32, n int) *sequence {
	for k := range c.seqs {
		if s := &c.seqs[k]; len(s.blocks) >= n && s.blocks[n-1] == i {
			return s
		}
	}
	return nil
}

// hold adds a block to an open table's sequence.
func (c *Cache) hold(s *sequence, i int32) {
	c.pool.enter(i)
	c.pool.blocks[i].holders++
	s.blocks = append(s.blocks, i)
}

// release lets an open table's sequence keep its first n blocks only.
func (c *Cache) release(s *sequence, n int) {
	for k := len(s.blocks) - 1; k >= n; k-- {
		c.pool.blocks[s.blocks[k]].holders--
		c.pool.leave(s.blocks[k])
	}
	s.blocks = s.blocks[:n]
}

// keep marks the blocks of a table that goes idle. Chains that are a part of it end.
func (c *Cache) keep(blocks []int32) {
	for _, i := range blocks {
		b := &c.pool.blocks[i]
		if b.kept {
			continue
		}
		b.kept = true
		for j := c.pool.twin(i, true); j != none; j = c.pool.twin(i, true) {
			c.endIdle(&c.seqs[c.pool.blocks[j].chain])
		}
	}
}

// worthKeeping reports whether a block may end a chain: it is kept, and no chain goes on from an equal one.
func (c *Cache) worthKeeping(i int32) bool {
	return c.pool.blocks[i].kept && c.pool.twin(i, false) == none
}

// rest makes an idle chain of an open table's sequence.
func (c *Cache) rest(s *sequence) {
	for k := len(s.blocks) - 1; k >= 0; k-- {
		c.pool.leave(s.blocks[k])
	}
	c.pool.blocks[s.blocks[len(s.blocks)-1]].chain = s.id
	c.idle++
	c.truncate(s, len(s.blocks)*BlockTokens)
}

// evict frees the least recently used cached block, which ends a chain. What is left of the chain ends too where it is a part
// of another sequence.
func (c *Cache) evict() {
	i := c.pool.oldest()
	s := &c.seqs[c.pool.blocks[i].chain]
	c.count.Evictions++
	c.forgetLast(s)
	n := len(s.blocks)
	if n == 0 || c.pool.blocks[s.blocks[n-1]].holders > 1 {
		c.endIdle(s)
		return
	}
	c.pool.blocks[s.blocks[n-1]].chain = s.id
	c.truncate(s, n*BlockTokens)
}

// forgetLast takes the last block of an idle chain.
func (c *Cache) forgetLast(s *sequence) {
	n := len(s.blocks) - 1
	i := s.blocks[n]
	s.blocks = s.blocks[:n]
	b := &c.pool.blocks[i]
	b.chain = none
	if b.holders--; b.holders == 0 {
		c.pool.unlist(b)
		c.pool.drop(i)
	}
}

// endIdle ends an idle chain; what only it holds is free.
func (c *Cache) endIdle(s *sequence) {
	for len(s.blocks) > 0 {
		c.forgetLast(s)
	}
	c.idle--
	c.end(s)
}

// end frees a sequence without blocks.
func (c *Cache) end(s *sequence) {
	c.freeSeqs = append(c.freeSeqs, s.id)
	c.emit(Op{Kind: OpDrop, Dst: int(s.id)})
}

// bound holds the idle chains to their limits.
func (c *Cache) bound() {
	for c.idle > c.o.MaxIdle || c.o.IdleBlocks > 0 && c.pool.cached > c.o.IdleBlocks {
		c.evict()
	}
}
