package kvcache

// Mark follows how much of a prompt is in the cache. While it is set, it lies at the last block of the prompt that can be
// found, and as blocks go it falls from one to the one before. To move it costs the same however many marks lie there.
type Mark struct {
	// Of is whatever the mark's owner knows the prompt by.
	Of any

	depth      int32 // blocks that were there at the last Follow or Fallen
	bytes      int64 // of their text
	prev, next *Mark // of a ring; nil: it is not set
	head       bool  // of one, and no mark
}

// Set reports whether the mark follows a prompt of which something was there at the last Follow or Fallen.
func (m *Mark) Set() bool { return m.next != nil }

// Tokens is how many leading tokens of the prompt were there at the last Follow or Fallen.
func (m *Mark) Tokens() int { return int(m.depth) * BlockTokens }

// Bytes is how long the text of Tokens is.
func (m *Mark) Bytes() int64 { return m.bytes }

// Beside returns another mark that lies where m does and that fits, nil if there is none.
func (m *Mark) Beside(fits func(*Mark) bool) *Mark {
	if !m.Set() {
		return nil
	}
	for x := m.next; x != m; x = x.next {
		if !x.head && fits(x) {
			return x
		}
	}
	return nil
}

// Follow sets m to the first tokens of t, as far as they are computed and fill blocks. Where m follows as much already,
// nothing changes. After Fallen, that is certain.
func (c *Cache) Follow(m *Mark, t *Table, tokens int) {
	if n := min(max(tokens, 0), t.computed) / BlockTokens; n > 0 {
		c.pool.set(m, t.seq.blocks[n-1])
	}
}

// FollowFound sets m to as much of tokens as is in the cache.
func (c *Cache) FollowFound(m *Mark, k Key, tokens []Token) {
	last := int32(none)
	for d := k.start(); len(tokens) >= BlockTokens; tokens = tokens[BlockTokens:] {
		d = d.then((*[BlockTokens]Token)(tokens))
		i := c.pool.find(&d)
		if i == none {
			break
		}
		last = i
	}
	if last != none {
		c.pool.set(m, last)
	}
}

// Unfollow ends what m follows.
func (c *Cache) Unfollow(m *Mark) {
	if m.Set() {
		m.unlink()
	}
	m.depth, m.bytes = 0, 0
}

// Fallen tells each mark that lies elsewhere than at its last Follow or Fallen: less of its prompt is there, or what is there is
// in other blocks now, where others may lie too. tell may set and end marks. One of whose prompt nothing is left is not set any
// more.
func (c *Cache) Fallen(tell func(*Mark)) {
	p := &c.pool
	for _, i := range p.fell {
		b := &p.blocks[i]
		b.noted = false
		for b.marks != nil && b.marks.fallen.next != &b.marks.fallen {
			m := b.marks.fallen.next
			m.unlink()
			if m.depth, m.bytes = b.depth, b.bytes; m.depth > 0 {
				m.link(&b.marks.here)
			}
			tell(m)
		}
	}
	p.fell = p.fell[:0]
}

// marks are those at a block: rings that begin with themselves. Fallen ones came from blocks behind it that have gone.
type marks struct{ here, fallen Mark }

// at returns the marks of a block to add to.
func (p *pool) at(i int32) *marks {
	b := &p.blocks[i]
	if b.marks == nil {
		b.marks = &marks{}
		for _, head := range []*Mark{&b.marks.here, &b.marks.fallen} {
			head.prev, head.next, head.head = head, head, true
		}
	}
	return b.marks
}

// set lays m at a full block, unless it lies as deep already.
func (p *pool) set(m *Mark, i int32) {
	depth := p.blocks[i].depth
	if m.Set() {
		if m.depth >= depth {
			return
		}
		m.unlink()
	}
	m.depth, m.bytes = depth, p.blocks[i].bytes
	m.link(&p.at(i).here)
}

// gone takes the marks from a block that can't be found any more. They go to one that equals it, where there is one, and
// fall to the block before it otherwise.
func (p *pool) gone(i int32) {
	b := &p.blocks[i]
	from := b.marks
	if from == nil {
		return
	}
	b.marks = nil
	if j := p.find(&b.digest); j != none {
		from.fallen.take(&from.here)
		p.fall(j, &from.fallen)
		return
	}
	from.fallen.take(&from.here)
	if to := &p.blocks[b.before]; to.marks == nil {
		to.marks = from // as they are: a chain goes block by block
		p.note(b.before)
		return
	}
	p.fall(b.before, &from.fallen)
}

// fall lays the marks of a ring at a block, to be told of.
func (p *pool) fall(i int32, ring *Mark) {
	if ring.next == ring {
		return
	}
	p.at(i).fallen.take(ring)
	p.note(i)
}

// note takes in that marks have fallen to a block.
func (p *pool) note(i int32) {
	if b := &p.blocks[i]; !b.noted {
		b.noted = true
		p.fell = append(p.fell, i)
	}
}

// link puts m behind the head of a ring.
func (m *Mark) link(head *Mark) {
	m.prev, m.next = head, head.next
	head.next.prev = m
	head.next = m
}

// unlink takes m out of its ring.
func (m *Mark) unlink() {
	m.prev.next, m.next.prev = m.next, m.prev
	m.prev, m.next = nil, nil
}

// take moves all of another ring behind m, which is the head of one.
func (m *Mark) take(other *Mark) {
	if other.next == other {
		return
	}
	first, last := other.next, other.prev
	other.prev, other.next = other, other
	last.next, m.next.prev = m.next, last
	m.next, first.prev = first, m
}
