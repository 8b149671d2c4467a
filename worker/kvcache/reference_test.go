package kvcache

import (
	"fmt"
	"slices"
)

// reference is the cache written the obvious way: it has no counts, lists or hashes, and finds everything by looking at all
// sequences. It knows no sequence ids.
type reference struct {
	o     Options
	clock int
	seqs  []*refSequence
	count Stats
}

type refSequence struct {
	open   bool
	key    Key
	tokens []Token // computed
	cached int
	blocks []*refBlock
}

// refBlock is what one block holds: the key and all tokens up to its end.
type refBlock struct {
	key          Key
	prefix       []Token
	fill         int
	kept         bool
	used, sealed int // times
}

func (r *reference) now() int {
	r.clock++
	return r.clock
}

func (r *reference) holders(b *refBlock, open bool) (n int) {
	for _, s := range r.seqs {
		if (s.open || !open) && slices.Contains(s.blocks, b) {
			n++
		}
	}
	return n
}

func (r *reference) blocks() (all []*refBlock) {
	for _, s := range r.seqs {
		for _, b := range s.blocks {
			if !slices.Contains(all, b) {
				all = append(all, b)
			}
		}
	}
	return all
}

func (r *reference) cached() (all []*refBlock) {
	for _, b := range r.blocks() {
		if r.holders(b, true) == 0 {
			all = append(all, b)
		}
	}
	return all
}

func (r *reference) idle() (all []*refSequence) {
	for _, s := range r.seqs {
		if !s.open {
			all = append(all, s)
		}
	}
	return all
}

func (r *reference) stats() Stats {
	s := r.count
	s.Total, s.Cached, s.Idle = r.o.Blocks, len(r.cached()), len(r.idle())
	s.Active = len(r.blocks()) - s.Cached
	s.Free = s.Total - s.Active - s.Cached
	s.Tables = len(r.seqs) - s.Idle
	for _, b := range r.blocks() {
		if r.holders(b, true) > 0 {
			s.Tokens += b.fill
		}
	}
	s.Waste = s.Active*BlockTokens - s.Tokens
	return s
}

// find returns the longest chain of cached blocks for tokens but the last; of equal ones that of the block computed last.
func (r *reference) find(k Key, tokens []Token) []*refBlock {
	for n := (len(tokens) - 1) / BlockTokens; n > 0; n-- {
		var best *refBlock
		var chain []*refBlock
		for _, s := range r.seqs {
			if len(s.blocks) < n {
				continue
			}
			b := s.blocks[n-1]
			if b.fill == BlockTokens && b.key == k && slices.Equal(b.prefix, tokens[:n*BlockTokens]) && (best == nil || b.sealed > best.sealed) {
				best, chain = b, s.blocks[:n]
			}
		}
		if best != nil {
			return slices.Clone(chain)
		}
	}
	return nil
}

// evict takes the least recently used cached block, pinned ones excepted, and the chain with it when the rest of that is a
// part of another sequence.
func (r *reference) evict(pinned []*refBlock) error {
	var oldest *refBlock
	for _, b := range r.cached() {
		if !slices.Contains(pinned, b) && (oldest == nil || b.used < oldest.used) {
			oldest = b
		}
	}
	if oldest == nil {
		return fmt.Errorf("nothing to evict")
	}
	r.count.Evictions++
	for _, s := range r.idle() {
		k := slices.Index(s.blocks, oldest)
		if k < 0 {
			continue
		}
		if k != len(s.blocks)-1 {
			return fmt.Errorf("the oldest cached block is number %d of a chain of %d", k, len(s.blocks))
		}
		s.blocks = s.blocks[:k]
		if k == 0 || r.holders(s.blocks[k-1], false) > 1 {
			r.end(s)
		}
	}
	return nil
}

func (r *reference) end(s *refSequence) {
	r.seqs = slices.DeleteFunc(r.seqs, func(x *refSequence) bool { return x == s })
}

func (r *reference) open(k Key, tokens []Token) (*refSequence, error) {
	if len(r.seqs) == r.o.Sequences && len(r.idle()) == 0 {
		return nil, ErrNoSequence
	}
	hit := r.find(k, tokens)
	adopted := func() *refSequence {
		for _, s := range r.idle() {
			if len(hit) > 0 && slices.Equal(s.blocks, hit) {
				return s
			}
		}
		return nil
	}
	for len(r.seqs) == r.o.Sequences && adopted() == nil {
		if err := r.evict(hit); err != nil {
			return nil, err
		}
	}
	s := adopted()
	if s == nil {
		s = &refSequence{blocks: hit}
		r.seqs = append(r.seqs, s)
		if len(hit) > 0 {
			r.count.Forks++
		}
	}
	s.open, s.key, s.cached = true, k, len(hit)*BlockTokens
	s.tokens = slices.Clone(tokens[:s.cached])
	r.count.Hits += int64(s.cached)
	r.count.Queries += int64(len(tokens))
	return s, nil
}

func (r *reference) fork(s *refSequence) (*refSequence, error) {
	if len(r.seqs) == r.o.Sequences && len(r.idle()) == 0 {
		return nil, ErrNoSequence
	}
	for len(r.seqs) == r.o.Sequences {
		if err := r.evict(nil); err != nil {
			return nil, err
		}
	}
	f := &refSequence{open: true, key: s.key, cached: s.cached, tokens: slices.Clone(s.tokens)}
	f.blocks = slices.Clone(s.blocks[:blocksOf(len(s.tokens))])
	r.seqs = append(r.seqs, f)
	if len(s.tokens) > 0 {
		r.count.Forks++
	}
	return f, nil
}

func (r *reference) grow(s *refSequence, tokens int) error {
	at, part := len(s.tokens)/BlockTokens, len(s.tokens)%BlockTokens
	need := max(blocksOf(tokens)-len(s.blocks), 0)
	copies := tokens > len(s.tokens) && part > 0 && r.holders(s.blocks[at], false) > 1
	if copies {
		need++
	}
	if need > r.o.Blocks-len(r.blocks())+len(r.cached()) {
		return ErrNoBlocks
	}
	for r.o.Blocks-len(r.blocks()) < need {
		if err := r.evict(nil); err != nil {
			return err
		}
	}
	if copies {
		s.blocks[at] = &refBlock{key: s.key, fill: part}
		r.count.Copies++
	}
	for len(s.blocks) < blocksOf(tokens) {
		s.blocks = append(s.blocks, &refBlock{key: s.key})
	}
	return nil
}

func (r *reference) append(s *refSequence, tokens []Token) {
	for _, t := range tokens {
		b := s.blocks[len(s.tokens)/BlockTokens]
		s.tokens = append(s.tokens, t)
		if b.fill++; b.fill == BlockTokens {
			b.prefix, b.sealed = slices.Clone(s.tokens), r.now()
		}
	}
}

// release takes the blocks of an open sequence from the n-th on, the last first.
func (r *reference) release(s *refSequence, n int) {
	for k := len(s.blocks) - 1; k >= n; k-- {
		b := s.blocks[k]
		s.blocks = s.blocks[:k]
		b.used = r.now() // matters when it is cached by now
	}
}

func (r *reference) truncate(s *refSequence, tokens int) error {
	n := min(tokens, len(s.tokens))
	if part := n % BlockTokens; part > 0 && s.blocks[n/BlockTokens].fill != part {
		if b := s.blocks[n/BlockTokens]; r.holders(b, false) > 1 {
			n -= part
		} else {
			b.fill, b.prefix, b.kept = part, nil, false
		}
	}
	s.tokens = s.tokens[:n]
	r.release(s, blocksOf(n))
	return r.bound()
}

func (r *reference) close(s *refSequence, keep bool) error {
	full := len(s.tokens) / BlockTokens
	equal := func(a, b *refBlock) bool { return a != b && a.key == b.key && slices.Equal(a.prefix, b.prefix) }
	if keep && r.o.MaxIdle > 0 {
		for _, b := range s.blocks[:full] {
			for _, x := range r.idle() {
				if end := x.blocks[len(x.blocks)-1]; !b.kept && r.holders(end, true) == 0 && equal(b, end) {
					r.end(x)
				}
			}
			b.kept = true
		}
	}
	goesOn := func(b *refBlock) bool {
		return slices.ContainsFunc(r.idle(), func(x *refSequence) bool {
			return slices.ContainsFunc(x.blocks[:len(x.blocks)-1], func(o *refBlock) bool {
				return r.holders(o, true) == 0 && equal(b, o)
			})
		})
	}
	for full > 0 && (!s.blocks[full-1].kept || goesOn(s.blocks[full-1])) {
		full--
	}
	r.release(s, full)
	shared := full == 0 || r.holders(s.blocks[full-1], false) > 1
	for k := full - 1; k >= 0; k-- {
		s.blocks[k].used = r.now()
	}
	if shared {
		r.end(s)
	}
	s.open = false
	return r.bound()
}

func (r *reference) bound() error {
	for len(r.idle()) > r.o.MaxIdle || r.o.IdleBlocks > 0 && len(r.cached()) > r.o.IdleBlocks {
		if err := r.evict(nil); err != nil {
			return err
		}
	}
	return nil
}
