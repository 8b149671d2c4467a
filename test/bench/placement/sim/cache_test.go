package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTheLeastRecentlyUsedBlockGivesWay(t *testing.T) {
	c := NewCache(3)
	steps := []struct {
		use  []uint64
		want map[uint64]int // of a prompt that is this block only
	}{
		{[]uint64{1, 2}, map[uint64]int{1: 1, 2: 1}},
		{[]uint64{3}, map[uint64]int{1: 1, 2: 1, 3: 1}},
		{[]uint64{4}, map[uint64]int{1: 1, 2: 0, 3: 1, 4: 1}}, // 2 ends the prompt of 1 and goes first
		{[]uint64{1}, map[uint64]int{1: 1, 3: 1, 4: 1}},
		{[]uint64{5}, map[uint64]int{1: 1, 3: 0, 4: 1, 5: 1}},
		{[]uint64{6, 7, 8, 9}, map[uint64]int{6: 1, 7: 1, 8: 1, 9: 0, 1: 0}},
	}
	for i, s := range steps {
		c.Use(s.use)
		for id, want := range s.want {
			if got := c.Match([]uint64{id}); got != want {
				t.Errorf("step %d: block %d matches %d, want %d", i, id, got, want)
			}
		}
	}
	if c.Len() != 3 {
		t.Errorf("it holds %d blocks", c.Len())
	}
}

func TestOnlyLeadingBlocksMatch(t *testing.T) {
	c := NewCache(8)
	c.Use([]uint64{1, 2, 3})
	for _, s := range []struct {
		ids  []uint64
		want int
	}{{nil, 0}, {[]uint64{1, 2, 3, 4}, 3}, {[]uint64{1, 9, 3}, 1}, {[]uint64{2, 3}, 2}, {[]uint64{9, 1}, 0}} {
		if got := c.Match(s.ids); got != s.want {
			t.Errorf("%v matches %d, want %d", s.ids, got, s.want)
		}
	}
}

func TestTheCacheIsAListInTheOrderOfUse(t *testing.T) {
	chance := rand.New(rand.NewPCG(3, 0))
	c := NewCache(7)
	var list []uint64 // the most recently used last
	for range 5000 {
		var ids []uint64
		for range 1 + chance.IntN(9) {
			if id := chance.Uint64N(20); !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		c.Use(ids)
		for _, id := range slices.Backward(ids[:min(7, len(ids))]) {
			if i := slices.Index(list, id); i >= 0 {
				list = slices.Delete(list, i, i+1)
			}
			list = append(list, id)
		}
		list = list[max(0, len(list)-7):]
		for id := range uint64(20) {
			if got, want := c.Match([]uint64{id}) == 1, slices.Contains(list, id); got != want {
				t.Fatalf("after %v block %d is there: %v, want %v", ids, id, got, want)
			}
		}
	}
}
