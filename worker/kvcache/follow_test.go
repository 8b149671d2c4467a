package kvcache

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// followed is a prompt with a mark, and the least of it that the reference had since the mark was set.
type followed struct {
	m      Mark
	key    Key
	tokens []Token
	least  int
	told   int // what the mark has said last
}

// leading is how many of tokens the reference has in whole blocks.
func (r *reference) leading(k Key, tokens []Token) int {
	for n := len(tokens) / BlockTokens; n > 0; n-- {
		for _, s := range r.seqs {
			if len(s.blocks) < n {
				continue
			}
			if b := s.blocks[n-1]; b.fill == BlockTokens && b.key == k && slices.Equal(b.prefix, tokens[:n*BlockTokens]) {
				return n * BlockTokens
			}
		}
	}
	return 0
}

// watch takes note of what is there now.
func (g *game) watch() {
	for _, f := range g.marks {
		f.least = min(f.least, g.r.leading(f.key, f.tokens))
	}
}

// follow sets a mark to a prompt of p or to one that may be there, or sets or ends one that there is.
func (g *game) follow(t *rapid.T, p *player) {
	if len(g.marks) > 6 {
		i := rapid.IntRange(0, len(g.marks)-1).Draw(t, "mark to end")
		g.c.Unfollow(&g.marks[i].m)
		g.marks = slices.Delete(g.marks, i, i+1)
	}
	if rapid.Bool().Draw(t, "found") {
		f := &followed{key: p.key, tokens: prompt(t)}
		g.c.FollowFound(&f.m, f.key, f.tokens)
		g.set(f, g.r.leading(f.key, f.tokens))
		return
	}
	for _, f := range g.marks {
		if f.key == p.key && len(f.tokens) <= p.t.Len() && slices.Equal(f.tokens, p.ref.tokens[:len(f.tokens)]) {
			g.c.Follow(&f.m, p.t, len(f.tokens))
			f.least = len(f.tokens) / BlockTokens * BlockTokens
			f.told = f.least
			return
		}
	}
	n := rapid.IntRange(0, p.t.Len()+3).Draw(t, "tokens to follow")
	f := &followed{key: p.key, tokens: slices.Clone(p.ref.tokens[:min(n, p.t.Len())])}
	g.c.Follow(&f.m, p.t, n)
	g.set(f, len(f.tokens)/BlockTokens*BlockTokens)
}

func (g *game) set(f *followed, least int) {
	f.m.Of, f.least, f.told = f, least, least
	g.marks = append(g.marks, f)
}

// listen compares what the marks say with what was there.
func (g *game) listen(t *rapid.T) {
	g.c.Fallen(func(m *Mark) {
		f := m.Of.(*followed)
		if m.Tokens() > f.told {
			t.Fatalf("a mark that said %d tokens of %d rises to %d", f.told, len(f.tokens), m.Tokens())
		}
		f.told = m.Tokens()
	})
	for _, f := range g.marks {
		if f.m.Tokens() != f.least || f.told != f.least || f.m.Set() != (f.least > 0) {
			t.Fatalf("a mark says that %d tokens of %d are there, and told %d; the reference has had %d (set: %t)",
				f.m.Tokens(), len(f.tokens), f.told, f.least, f.m.Set())
		}
	}
}

// filled is a cache with 40 prompts that share a long beginning, with marks on them, and none of them open any more.
func filled(marks int) (*Cache, []*Mark) {
	c := New(Options{Blocks: 4096, Sequences: 64, MaxIdle: 60})
	all := make([]*Mark, marks)
	shared := make([]Token, 2000*BlockTokens)
	for i := range all {
		all[i] = &Mark{}
	}
	for i := range 40 {
		tokens := append(slices.Clone(shared), make([]Token, BlockTokens)...)
		for k := range BlockTokens {
			tokens[len(shared)+k] = Token(i + 1)
		}
		t, _ := c.Open(Key{}, tokens)
		_ = c.Grow(t, len(tokens))
		c.Append(t, tokens[t.Len():])
		for k := i; k < marks; k += 40 {
			c.Follow(all[k], t, len(tokens))
		}
		c.Close(t, true)
	}
	return c, all
}

func TestMarksOfOneBlockFallTogetherAndEachIsTold(t *testing.T) {
	c, all := filled(200)
	big, err := c.Open(Key{Salt: "other"}, nil)
	if err != nil || c.Grow(big, 3000*BlockTokens) != nil {
		t.Fatal("the other prompt has no room")
	}
	told := 0
	c.Fallen(func(m *Mark) { told++ })
	left := all[0].Tokens()
	for _, m := range all {
		if m.Tokens() != left || left != 1096*BlockTokens {
			t.Errorf("a mark says %d tokens, the first %d", m.Tokens(), left)
		}
	}
	if told != len(all) {
		t.Errorf("%d marks were told of, not %d", told, len(all))
	}
	c.Fallen(func(*Mark) { t.Error("a mark is told of twice") })
}

// TestAMarkThatComesToAnEqualBlockIsToldSo: there it may lie beside another.
func TestAMarkThatComesToAnEqualBlockIsToldSo(t *testing.T) {
	c := New(Options{Blocks: 8, Sequences: 4, MaxIdle: 2, Length: func(Token) int { return 3 }})
	tokens := make([]Token, BlockTokens)
	var tables [2]*Table
	var marks [2]Mark
	for i := range tables { // both compute it
		tables[i], _ = c.Open(Key{}, tokens)
	}
	for i, table := range tables {
		_ = c.Grow(table, len(tokens))
		c.Append(table, tokens)
		c.Follow(&marks[i], table, len(tokens))
	}
	if marks[0].Beside(func(*Mark) bool { return true }) != nil {
		t.Fatal("the marks lie at one block already")
	}
	c.Close(tables[0], false)
	var told []*Mark
	c.Fallen(func(m *Mark) { told = append(told, m) })
	if len(told) != 1 || told[0] != &marks[0] || marks[0].Tokens() != BlockTokens || marks[0].Bytes() != 3*BlockTokens {
		t.Errorf("%d marks are told of; the first has %d tokens", len(told), marks[0].Tokens())
	}
	if marks[0].Beside(func(*Mark) bool { return true }) != &marks[1] || marks[0].Beside(func(*Mark) bool { return false }) != nil {
		t.Error("the marks do not lie beside each other")
	}
}

// BenchmarkEvictWithMarks is what 64 more blocks cost that 64 must give way to, by how many prompts are followed.
func BenchmarkEvictWithMarks(b *testing.B) {
	for _, marks := range []int{0, 40, 10_000} {
		b.Run(strconv.Itoa(marks), func(b *testing.B) {
			full := func() (*Cache, *Table) {
				c, _ := filled(marks)
				t, _ := c.Open(Key{Salt: "other"}, nil)
				_ = c.Grow(t, 2060*BlockTokens)
				return c, t
			}
			c, t := full()
			b.ReportAllocs()
			for b.Loop() {
				if t.Blocks()+64 > 4000 {
					b.StopTimer()
					c, t = full()
					b.StartTimer()
				}
				_ = c.Grow(t, (t.Blocks()+64)*BlockTokens)
			}
		})
	}
}
