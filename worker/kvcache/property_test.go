package kvcache

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestWhateverHappensItIsTheReferenceAndTheDeviceFollows plays random sequences of operations, with steps that the device
// refuses or aborts, against the naive reference and a device that executes the Ops.
func TestWhateverHappensItIsTheReferenceAndTheDeviceFollows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			Blocks:     rapid.SampledFrom([]int{0, 3, 8, 12, 20, 30}).Draw(t, "blocks"),
			Sequences:  rapid.SampledFrom([]int{1, 2, 3, 5, 8}).Draw(t, "sequences"),
			MaxIdle:    rapid.SampledFrom([]int{0, 1, 2, 4, 8}).Draw(t, "max idle"),
			IdleBlocks: rapid.SampledFrom([]int{0, 0, 1, 3, 8}).Draw(t, "idle blocks"),
		}
		g := &game{c: New(o), r: &reference{o: o}, d: newDevice(o.Sequences)}
		for range 400 {
			g.play(t)
			if err := errors.Join(g.compare(), sound(g.c)); err != nil {
				t.Fatal(err)
			}
		}
		for len(g.players) > 0 {
			g.close(t, 0)
			g.watch()
		}
		g.listen(t)
		g.flush(t)
		if s := g.c.Stats(); s.Active != 0 || s.Tables != 0 || s.Tokens != 0 || g.d.cells() > s.Cached*BlockTokens {
			t.Fatalf("after the last table was closed there are %+v and %d cells", s, g.d.cells())
		}
	})
}

// game is the cache, the reference and the device, and the tables that are open.
type game struct {
	c       *Cache
	r       *reference
	d       *device
	players []*player
	marks   []*followed
}

type player struct {
	t    *Table
	ref  *refSequence
	key  Key
	todo []Token // of the prompt
}

func (g *game) play(t *rapid.T) {
	if len(g.players) == 0 {
		g.open(t)
		return
	}
	i := rapid.IntRange(0, len(g.players)-1).Draw(t, "table")
	p := g.players[i]
	switch rapid.SampledFrom([]string{"open", "open", "step", "step", "step", "step", "fork", "truncate", "close", "close", "follow", "listen"}).Draw(t, "operation") {
	case "open":
		g.open(t)
	case "step":
		g.step(t)
	case "fork":
		f, err := g.c.Fork(p.t)
		ref, refErr := g.r.fork(p.ref)
		agree(t, err, refErr)
		if err == nil {
			g.players = append(g.players, &player{f, ref, p.key, slices.Clone(p.todo)})
		}
	case "truncate":
		n := rapid.IntRange(0, p.t.Len()+3).Draw(t, "tokens")
		all := append(slices.Clone(p.ref.tokens), p.todo...)
		g.c.Truncate(p.t, n)
		agree(t, nil, g.r.truncate(p.ref, n))
		p.todo = all[p.t.Len():]
	case "close":
		g.close(t, i)
	case "follow":
		g.listen(t)
		g.follow(t, p)
	case "listen":
		g.listen(t)
	}
}

// prompts are made of few pieces, so that many begin alike.
func prompt(t *rapid.T) (tokens []Token) {
	for range rapid.SampledFrom([]int{0, 1, 2, 2, 3, 4}).Draw(t, "pieces") {
		piece := rapid.SampledFrom([]Token{0, 0, 0, 1}).Draw(t, "piece")
		for range rapid.SampledFrom([]int{16, 16, 16, 32, 1, 5}).Draw(t, "length") {
			tokens = append(tokens, piece)
		}
	}
	if len(tokens) == 0 || rapid.Bool().Draw(t, "goes on") {
		tokens = append(tokens, rapid.SampledFrom([]Token{0, 0, 0, 1}).Draw(t, "last"))
	}
	return tokens
}

func (g *game) open(t *rapid.T) {
	k, tokens := rapid.SampledFrom([]Key{{}, {}, {}, {}, {}, {}, {Salt: "a"}, {Salt: "b"}, {Adapter: "a"}}).Draw(t, "key"), prompt(t)
	found := g.c.Lookup(k, tokens)
	table, err := g.c.Open(k, tokens)
	ref, refErr := g.r.open(k, tokens)
	agree(t, err, refErr)
	if err != nil {
		return
	}
	if found != table.Cached() {
		t.Fatalf("Lookup found %d tokens, Open %d", found, table.Cached())
	}
	g.players = append(g.players, &player{table, ref, k, tokens[table.Cached():]})
}

// step grows some tables, and runs a pass over them that the device does, refuses or aborts.
func (g *game) step(t *rapid.T) {
	type item struct {
		*player
		tokens []Token
	}
	var items []item
	for _, p := range g.players {
		if !rapid.Bool().Draw(t, "takes part") {
			continue
		}
		n := rapid.IntRange(0, 40).Draw(t, "tokens")
		if n == 0 {
			agree(t, g.c.Grow(p.t, p.t.Len()), g.r.grow(p.ref, len(p.ref.tokens))) // all it needs it has
			continue
		}
		next := p.todo[:min(n, len(p.todo))]
		if len(next) == 0 {
			next = rapid.SliceOfN(rapid.Int32Range(0, 1), 1, 1).Draw(t, "output")
		}
		err := g.c.Grow(p.t, p.t.Len()+len(next))
		agree(t, err, g.r.grow(p.ref, len(p.ref.tokens)+len(next)))
		g.watch() // what is computed in this step may be what has just gone
		if err == nil {
			items = append(items, item{p, next})
		}
	}
	end := rapid.SampledFrom([]string{"done", "done", "done", "refused", "aborted"}).Draw(t, "end")
	ops := g.c.Ops()
	if end == "refused" {
		if i := rapid.IntRange(0, 2*len(g.players)).Draw(t, "cancelled meanwhile"); i < len(g.players) {
			g.close(t, i)
		}
		g.c.Unrun()
		g.c.Unrun()
		return
	}
	must(t, g.d.run(ops))
	for _, it := range items {
		must(t, g.d.compute(it.t.Seq(), it.t.Len(), it.key, it.tokens))
	}
	if n := g.d.cells(); n > g.c.Stats().Total*BlockTokens {
		t.Fatalf("%d cells are taken of %d", n, g.c.Stats().Total*BlockTokens)
	}
	for _, it := range items {
		if end == "aborted" {
			before := it.t.Len()
			g.c.Truncate(it.t, before)
			must(t, g.r.truncate(it.ref, before))
			if it.t.Len() != before {
				t.Fatalf("an abort cost %d tokens that were computed before", before-it.t.Len())
			}
			continue
		}
		g.c.Append(it.t, it.tokens)
		g.r.append(it.ref, it.tokens)
		it.todo = it.todo[min(len(it.tokens), len(it.todo)):]
	}
	g.flush(t)
}

func (g *game) close(t *rapid.T, i int) {
	p, keep := g.players[i], rapid.SampledFrom([]bool{true, true, false}).Draw(t, "keep")
	g.players = slices.Delete(g.players, i, i+1)
	g.c.Close(p.t, keep)
	g.c.Close(p.t, !keep)
	must(t, g.r.close(p.ref, keep))
}

// flush makes the device follow, and compares what it holds.
func (g *game) flush(t *rapid.T) {
	must(t, g.d.run(g.c.Ops()))
	used := map[int]bool{}
	for _, p := range g.players {
		if used[p.t.Seq()] {
			t.Fatalf("sequence %d belongs to two tables", p.t.Seq())
		}
		used[p.t.Seq()] = true
		must(t, g.d.holds(p.t.Seq(), p.key, p.ref.tokens))
	}
	for i, s := range g.c.seqs {
		if !used[i] && len(g.d.seqs[i]) != len(s.blocks)*BlockTokens {
			t.Fatalf("sequence %d, which no table has, holds %d cells for %d blocks", i, len(g.d.seqs[i]), len(s.blocks))
		}
	}
}

// compare says where the cache differs from the reference.
func (g *game) compare() error {
	g.watch()
	if got, want := g.c.Stats(), g.r.stats(); got != want {
		return fmt.Errorf("the cache says\n%+v, the reference\n%+v", got, want)
	}
	for _, p := range g.players {
		if p.t.Len() != len(p.ref.tokens) || p.t.Blocks() != len(p.ref.blocks) || p.t.Cached() != p.ref.cached {
			return fmt.Errorf("table %d has %d tokens in %d blocks, %d of them cached; the reference %d, %d and %d", p.t.Seq(),
				p.t.Len(), p.t.Blocks(), p.t.Cached(), len(p.ref.tokens), len(p.ref.blocks), p.ref.cached)
		}
	}
	return nil
}

// sound counts all holders again.
func sound(c *Cache) error {
	p := &c.pool
	holders, ends := map[int32]int32{}, map[int32]int32{}
	for _, s := range c.seqs {
		for k, i := range s.blocks {
			if holders[i]++; slices.Contains(s.blocks[:k], i) {
				return fmt.Errorf("sequence %d has block %d twice", s.id, i)
			}
		}
		if n := len(s.blocks); n > 0 && p.blocks[s.blocks[n-1]].chain == s.id {
			ends[s.blocks[n-1]] = s.id
		}
	}
	free := map[int32]bool{}
	for _, i := range p.free {
		if free[i] {
			return fmt.Errorf("block %d is free twice", i)
		}
		free[i] = true
	}
	cached := map[int32]bool{}
	for i := p.oldest(); int(i) < len(p.blocks)-1; i = p.blocks[i].newer {
		cached[i] = true
	}
	for i := range int32(len(p.blocks) - 1) {
		b := &p.blocks[i]
		_, isEnd := ends[i]
		switch {
		case b.holders != holders[i]:
			return fmt.Errorf("block %d has %d holders, counts %d", i, holders[i], b.holders)
		case free[i] != (holders[i] == 0):
			return fmt.Errorf("block %d has %d holders, free: %t", i, holders[i], free[i])
		case cached[i] != (holders[i] > 0 && b.tables == 0):
			return fmt.Errorf("block %d has %d holders, %d open, cached: %t", i, holders[i], b.tables, cached[i])
		case (b.chain != none) != isEnd || isEnd && (holders[i] != 1 || b.tables != 0):
			return fmt.Errorf("block %d has %d holders, %d open, and ends chain %d", i, holders[i], b.tables, b.chain)
		}
	}
	if len(ends) != c.idle || len(cached) != p.cached {
		return fmt.Errorf("%d chains and %d cached blocks, counted %d and %d", len(ends), len(cached), c.idle, p.cached)
	}
	return nil
}

func agree(t *rapid.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("the cache says %v, the reference %v", got, want)
	}
}

func must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
