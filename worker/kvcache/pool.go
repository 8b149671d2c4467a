package kvcache

// none is no block, and no sequence.
const none = -1

// block is BlockTokens cells. Whoever holds a block holds all its computed tokens and the very blocks before it, since it
// came to them by a fork of the whole prefix. So no block has a holder that the one before it lacks.
type block struct {
	digest digest             // when full: of these tokens and all before them
	tokens [BlockTokens]Token // the first fill of them are computed
	fill   int32

	holders int32 // sequences that hold it; 0: it is free
	tables  int32 // those of open tables among them
	chain   int32 // the idle chain that it ends, or none
	kept    bool  // it was in an idle chain, and goes back to one when its table closes, come what may

	older, newer int32 // neighbours in the list of cached blocks
	next         int32 // in the index

	// When full: the block before it, or the one that joins the ends of the list, and how many blocks of its prompt there are up
	// to its end. marks are those of prompts of which it is the last block that is there; noted: it is in pool.fell.
	before, depth int32
	bytes         int64 // of the text up to its end
	marks         *marks
	noted         bool
}

// pool is the blocks: which are free, which are active (an open table holds them), and which are cached (idle chains alone
// do), from the least to the most recently used. A sequence lets go of its blocks from the last to the first, so a block is never
// used more recently than the one before it: the oldest cached block always ends a chain.
type pool struct {
	blocks []block // and one more, which joins the ends of the list of cached blocks
	free   []int32
	cached int
	active int
	tokens int // computed, in active blocks
	index  index
	fell   []int32 // blocks with marks that have fallen, and perhaps others
	length func(Token) int
}

func newPool(n int, length func(Token) int) pool {
	p := pool{length: length, blocks: make([]block, n+1), free: make([]int32, n), index: newIndex(n)}
	for i := range p.blocks {
		p.blocks[i].chain = none
	}
	for i := range p.free {
		p.free[i] = int32(n - 1 - i)
	}
	p.blocks[n].older, p.blocks[n].newer = int32(n), int32(n)
	return p
}

// take returns a free block, which nobody holds yet. There must be one.
func (p *pool) take() int32 {
	i := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return i
}

// enter counts one more open table for a block.
func (p *pool) enter(i int32) {
	b := &p.blocks[i]
	if b.tables == 0 {
		if b.holders > 0 {
			p.unlist(b)
		}
		p.active++
		p.tokens += int(b.fill)
	}
	b.tables++
}

// leave counts one open table less. Where it was the last, the block is cached if a sequence holds it, else free.
func (p *pool) leave(i int32) {
	b := &p.blocks[i]
	if b.tables--; b.tables > 0 {
		return
	}
	p.active--
	p.tokens -= int(b.fill)
	if b.holders > 0 {
		p.list(i)
	} else {
		p.drop(i)
	}
}

// drop frees a block that nobody holds and that is not listed.
func (p *pool) drop(i int32) {
	p.shrink(i, 0)
	p.free = append(p.free, i)
}

// fill adds tokens to a block that one open table holds, and returns how many fit.
func (p *pool) fill(i int32, tokens []Token) int {
	b := &p.blocks[i]
	n := copy(b.tokens[b.fill:], tokens)
	b.fill += int32(n)
	p.tokens += n
	return n
}

// root is the place before every first block.
func (p *pool) root() int32 { return int32(len(p.blocks) - 1) }

// seal makes a full block one that can be found: block before comes before it, whose digest is after.
func (p *pool) seal(i, before int32, after *digest) {
	b := &p.blocks[i]
	b.before, b.depth = before, p.blocks[before].depth+1
	b.digest = after.then(&b.tokens)
	if b.bytes = p.blocks[before].bytes; p.length != nil {
		for _, t := range b.tokens {
			b.bytes += int64(p.length(t))
		}
	}
	head := p.index.head(&b.digest)
	b.next, *head = *head, i
}

// shrink leaves the first n tokens of a block; one that loses tokens can't be found any more.
func (p *pool) shrink(i int32, n int) {
	b := &p.blocks[i]
	if b.fill == BlockTokens && n < BlockTokens {
		at := p.index.head(&b.digest)
		for *at != i {
			at = &p.blocks[*at].next
		}
		*at = b.next
		b.kept = false
		p.gone(i)
	}
	if b.tables > 0 {
		p.tokens -= int(b.fill) - n
	}
	b.fill = int32(n)
}

// find returns a full block of a digest, or none. Where equal blocks were computed twice it is any of them.
func (p *pool) find(d *digest) int32 {
	i := *p.index.head(d)
	for i != none && p.blocks[i].digest != *d {
		i = p.blocks[i].next
	}
	return i
}

// twin returns another block that equals i and is cached, or none: one that ends its chain, or one that doesn't.
func (p *pool) twin(i int32, ends bool) int32 {
	b := &p.blocks[i]
	for j := *p.index.head(&b.digest); j != none; j = p.blocks[j].next {
		if o := &p.blocks[j]; j != i && o.tables == 0 && (o.chain != none) == ends && o.digest == b.digest {
			return j
		}
	}
	return none
}

// oldest is the least recently used cached block, which ends an idle chain. There must be one.
func (p *pool) oldest() int32 { return p.blocks[p.root()].newer }

// list makes a block the most recently used of the cached ones.
func (p *pool) list(i int32) {
	b, end := &p.blocks[i], int32(len(p.blocks)-1)
	last := p.blocks[end].older
	b.older, b.newer = last, end
	p.blocks[last].newer, p.blocks[end].older = i, i
	p.cached++
}

func (p *pool) unlist(b *block) {
	p.blocks[b.older].newer, p.blocks[b.newer].older = b.newer, b.older
	p.cached--
}
