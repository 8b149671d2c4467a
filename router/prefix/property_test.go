package prefix

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// game plays an index and the reference.
type game struct {
	x       *Index
	r       reference
	slots   []Slot
	names   []string
	made    int
	chains  []Chain // that were used
	sent    []sending
	bounded bool // the index is too small for all: it may know less than the reference
	exact   map[Slot]bool
}

type sending struct {
	s     Slot
	c     Chain
	claim Claim
}

func (g *game) join() {
	g.made++
	g.names = append(g.names, fmt.Sprint("instance ", g.made))
	g.slots = append(g.slots, g.x.Slot(g.names[len(g.names)-1]))
}

// draw returns a chain that leaves one of those used before somewhere, or goes on behind it.
func (g *game) draw(t *rapid.T) Chain {
	var c Chain
	if len(g.chains) > 0 && rapid.IntRange(0, 5).Draw(t, "alone") > 0 {
		from := g.chains[rapid.IntRange(0, len(g.chains)-1).Draw(t, "from")]
		c = slices.Clone(from[:rapid.IntRange(0, len(from)).Draw(t, "cut")])
	}
	rng := rand.New(rand.NewPCG(rapid.Uint64Range(0, 3).Draw(t, "text"), 1))
	for range rapid.SampledFrom([]int{0, 0, 1, 2, 5, 61, 62, 63, 100, 150}).Draw(t, "more") {
		last := uint64(1)
		if len(c) > 0 {
			last = c[len(c)-1]
		}
		c = append(c, join(last, rng.Uint64N(2)))
	}
	if len(g.chains) < 12 {
		g.chains = append(g.chains, c)
	} else {
		g.chains[rapid.IntRange(0, 11).Draw(t, "instead of")] = c
	}
	return c
}

func (g *game) play(t *rapid.T) error {
	i := rapid.IntRange(0, len(g.slots)-1).Draw(t, "worker")
	s := g.slots[i]
	switch rapid.IntRange(0, 13).Draw(t, "what") {
	case 0:
		g.x.Forget(g.names[i])
		delete(g.r.workers, s)
		g.slots, g.names = slices.Delete(g.slots, i, i+1), slices.Delete(g.names, i, i+1)
		g.join()
	case 1:
		if !g.bounded {
			g.x.Resize(s, rapid.SampledFrom([]int{0, 1, 3, 62, 100, 101, 250, 1000}).Draw(t, "room"))
		}
	case 2, 3, 4:
		g.settle(t)
	case 10:
		g.exact[s] = !g.exact[s]
		g.x.SetExact(s, g.exact[s])
		delete(g.r.workers, s)
	case 11, 12, 13:
		g.cut(t, s)
	default:
		c := g.draw(t)
		claim := g.x.Insert(s, c)
		if _, known := g.r.worker(s).leading(c); claim.Known > known || claim.Known < known && !g.bounded {
			return fmt.Errorf("%d blocks had settled, not %d", known, claim.Known)
		}
		g.r.put(s, c, false)
		g.sent = append(g.sent, sending{s, c, claim})
		if got := g.x.Match(c, []Slot{s}, nil)[0]; len(c) > 0 && got == 0 {
			return fmt.Errorf("nothing is known of %d blocks that were just sent", len(c))
		}
	}
	for _, s := range g.slots {
		was, _ := g.x.Worker(s)
		g.r.worker(s).trim(was.Believed)
	}
	return nil
}

func (g *game) settle(t *rapid.T) {
	if len(g.sent) == 0 {
		return
	}
	i := rapid.IntRange(0, len(g.sent)-1).Draw(t, "request")
	q := g.sent[i]
	g.sent = slices.Delete(g.sent, i, i+1)
	cached := q.claim.Known
	if !g.bounded {
		cached = rapid.IntRange(0, len(q.c)).Draw(t, "cached")
	}
	g.x.Settle(q.s, q.c, q.claim, cached)
	if !slices.Contains(g.slots, q.s) {
		return
	}
	if g.exact[q.s] {
		has, _ := g.r.worker(q.s).leading(q.c)
		g.r.put(q.s, q.c[:has], false)
		return
	}
	g.r.put(q.s, q.c, true)
}

// cut lets an exact worker say what it has of a prompt, or a router take back that it sent it.
func (g *game) cut(t *rapid.T, s Slot) {
	if len(g.chains) == 0 || !g.exact[s] {
		return
	}
	c := rapid.SampledFrom(g.chains).Draw(t, "prompt")
	if len(c) == 0 {
		return
	}
	n := rapid.IntRange(0, len(c)-1).Draw(t, "held")
	switch rapid.SampledFrom([]string{"withdrawn", "said", "has", "all"}).Draw(t, "what of it") {
	case "withdrawn":
		g.x.Withdraw(s, c)
		if _, settled := g.r.worker(s).leading(c); settled < len(c) {
			g.r.cut(s, c, settled)
		}
		return
	case "has":
		g.x.Hold(s, c, n, true)
		g.r.put(s, c[:n], true)
		return
	case "all":
		g.x.Hold(s, c, len(c), true)
		g.r.put(s, c, true)
		return
	}
	news, keep := News{Hash: c[len(c)-1], Blocks: len(c), Held: n}, n
	known := g.x.tree.ends.find(news.Hash)
	if known == 0 {
		return // it would be passed over
	}
	depth := int(g.x.tree.ends.at(known).depth) // beyond that nobody had anything when the index looked last
	if heir := rapid.SampledFrom(g.chains).Draw(t, "heir"); len(heir) > 0 && rapid.Bool().Draw(t, "yields") {
		news.Heir = heir[len(heir)-1]
		keep = 0
		if id := g.x.tree.ends.find(news.Heir); id != 0 {
			to := min(n, depth, int(g.x.tree.ends.at(id).depth))
			for keep < to && c[keep] == heir[keep] {
				keep++
			}
		}
	}
	g.x.Hear(s, news)
	g.r.retreat(s, c, depth, keep)
}

// compare asks both for every chain and every worker.
func (g *game) compare() error {
	var dst []int
	for _, c := range g.chains {
		dst = g.x.Match(c, g.slots, dst)
		for i, s := range g.slots {
			if want, _ := g.r.worker(s).leading(c); dst[i] > want || dst[i] < want && !g.bounded {
				return fmt.Errorf("worker %d has %d leading blocks of %d, not %d", i, want, len(c), dst[i])
			}
		}
	}
	return nil
}

func (g *game) run(t *rapid.T, steps int) {
	g.exact = map[Slot]bool{}
	for range rapid.IntRange(1, 6).Draw(t, "workers") {
		g.join()
	}
	for range steps {
		if err := errors.Join(g.play(t), sound(&g.x.tree), g.compare()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhateverHappensTheIndexIsTheReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		(&game{x: newIndex(4096, 4096, 16)}).run(t, 100)
	})
}

func TestWhereThereIsTooLittleRoomTheIndexKnowsLessAndNothingWrong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runs := rapid.IntRange(1, 20).Draw(t, "runs")
		holds := rapid.IntRange(7, 40).Draw(t, "holds") // one for each worker and one more
		(&game{x: newIndex(runs, holds, 16), bounded: true}).run(t, 100)
	})
}

// TestCraftedHashesBreakNothing plays chains in which equal hashes stand for different text, as no honest prompt has them.
func TestCraftedHashesBreakNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newIndex(rapid.SampledFrom([]int{3, 10, 500}).Draw(t, "runs"), 500, 4)
		slots := []Slot{x.Slot("a"), x.Slot("b"), x.Slot("c")}
		x.Resize(slots[0], 100)
		for range 60 {
			s := rapid.SampledFrom(slots).Draw(t, "worker")
			rng := rand.New(rand.NewPCG(rapid.Uint64Range(0, 7).Draw(t, "text"), 1))
			c := make(Chain, rapid.SampledFrom([]int{1, 2, 5, 62, 63, 130, 200}).Draw(t, "blocks"))
			values := rapid.SampledFrom([]uint64{1, 2, 5, 50}).Draw(t, "values")
			for i := range c {
				c[i] = rng.Uint64N(values)
			}
			claim := x.Insert(s, c)
			for _, n := range x.Match(c, slots, nil) {
				if n > len(c) {
					t.Fatalf("%d leading blocks of %d", n, len(c))
				}
			}
			if rapid.Bool().Draw(t, "settle") {
				x.Settle(s, c, claim, rapid.IntRange(0, len(c)).Draw(t, "cached"))
			}
			if rapid.Bool().Draw(t, "hear") {
				n := rapid.IntRange(0, len(c)-1).Draw(t, "held")
				x.SetExact(s, true)
				x.Hear(s, News{
					Hash: c[rapid.IntRange(0, len(c)-1).Draw(t, "last")], Blocks: len(c), Held: n,
					Heir: c[rapid.IntRange(0, len(c)-1).Draw(t, "heir")],
				})
				x.Hold(s, c, n, rapid.Bool().Draw(t, "said"))
				x.Withdraw(s, c)
			}
			if err := sound(&x.tree); err != nil {
				t.Fatal(err)
			}
		}
	})
}
