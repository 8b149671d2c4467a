package prefix

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text is n blocks of a prompt that begins with name.
func text(name string, n int) string {
	return (name + strings.Repeat(".", n*BlockBytes))[:n*BlockBytes]
}

func index(t *testing.T, instances ...string) (*Index, []Slot) {
	t.Helper()
	x := New(Options{})
	var slots []Slot
	for _, name := range instances {
		slots = append(slots, x.Slot(name))
	}
	return x, slots
}

// want checks how many leading blocks of c each worker is thought to have.
func want(t *testing.T, x *Index, slots []Slot, c Chain, depths ...int) {
	t.Helper()
	if got := x.Match(c, slots, nil); !slices.Equal(got, depths) {
		t.Errorf("leading blocks %v, want %v", got, depths)
	}
}

func TestTextInTheMiddleOfAnotherPromptIsNoPrefix(t *testing.T) {
	x, w := index(t, "w1", "w2")
	a, b := text("A", 3), text("B", 3)
	x.Insert(w[0], chain(a))
	x.Insert(w[1], chain(b))
	want(t, x, w, chain(b+a), 0, 3)
	want(t, x, w, chain(a+b), 3, 0)
}

func TestPromptsOfAnotherModelOrTenantShareNothing(t *testing.T) {
	x, w := index(t, "w1")
	x.Insert(w[0], chain(text("A", 3), "model", "", "tenant"))
	want(t, x, w, chain(text("A", 3), "model", "", "tenant"), 3)
	want(t, x, w, chain(text("A", 3), "model", "", "other"), 0)
	want(t, x, w, chain(text("A", 3), "model", "tenant", ""), 0)
}

func TestEachWorkerHasWhatItWasSent(t *testing.T) {
	x, w := index(t, "w1", "w2", "w3", "w4")
	system := text("system", 100)
	x.Insert(w[0], chain(system+text("one", 80)))
	x.Insert(w[1], chain(system+text("two", 30)))
	x.Insert(w[2], chain(system[:64*7]))
	want(t, x, w, chain(system+text("one", 90)), 180, 100, 7, 0)
	want(t, x, w, chain(system+text("two", 90)), 100, 130, 7, 0)
	want(t, x, w, chain(system+text("three", 90)), 100, 100, 7, 0)
	want(t, x, []Slot{w[3], w[2], w[2], 0, w[0]}, chain(system), 0, 7, 7, 0, 100)
	want(t, x, w, nil, 0, 0, 0, 0)
}

func TestAConversationThatGrowsStaysInFewPieces(t *testing.T) {
	x, w := index(t, "w1")
	talk := ""
	for turn := range 50 {
		talk += text(fmt.Sprint("turn ", turn), 3)
		x.Insert(w[0], chain(talk))
	}
	want(t, x, w, chain(talk), 150)
	if s := x.Stats(); s.Runs != 3 || s.Holds != 3 || s.Blocks != 150 {
		t.Errorf("%+v, want 150 blocks in 3 runs", s)
	}
}

func TestWhatWasUsedLongestAgoGoesFirstAndItsEndBeforeItsBeginning(t *testing.T) {
	x, w := index(t, "w1")
	x.Resize(w[0], 250)
	first, second, third := chain(text("first", 100)), chain(text("second", 100)), chain(text("third", 100))
	x.Insert(w[0], first)
	x.Insert(w[0], second)
	x.Insert(w[0], third)
	want(t, x, w, first, 50)
	x.Insert(w[0], first[:40]) // the beginning is used again; the other 10 blocks are the oldest
	x.Insert(w[0], chain(text("fourth", 10)))
	want(t, x, w, first, 40)
	want(t, x, w, second, 100)
	x.Insert(w[0], chain(text("fifth", 20)))
	want(t, x, w, second, 80)
	want(t, x, w, first, 40)
	want(t, x, w, third, 100)
}

func TestAPromptLongerThanTheCacheLeavesItsBeginning(t *testing.T) {
	x, w := index(t, "w1", "w2")
	x.Resize(w[0], 70)
	c := chain(text("long", 500))
	x.Insert(w[0], c)
	x.Insert(w[1], c)
	want(t, x, w, c, 70, 500)
}

func TestALookIsNoUse(t *testing.T) {
	x, w := index(t, "w1")
	x.Resize(w[0], 20)
	old, recent := chain(text("old", 10)), chain(text("recent", 10))
	x.Insert(w[0], old)
	x.Insert(w[0], recent)
	want(t, x, w, old, 10)
	x.Insert(w[0], chain(text("next", 10)))
	want(t, x, w, old, 0)
	want(t, x, w, recent, 10)
}

func TestAnotherInstanceStartsEmptyAndTheOldSlotIsDead(t *testing.T) {
	x, w := index(t, "before", "other")
	c := chain(text("A", 1000))
	x.Resize(w[0], 2000)
	claim := x.Insert(w[0], c)
	x.Insert(w[1], c)
	x.Forget("before")
	x.Forget("before")
	x.Forget("never seen")
	x.Insert(w[0], c)
	want(t, x, w, c, 0, 1000)
	after := x.Slot("after")
	if after == w[0] || after.number() != w[0].number() {
		t.Errorf("slot %x after %x: the place is not used again, or cannot be told apart", after, w[0])
	}
	x.Settle(w[0], c, claim, 0)
	x.Insert(w[0], c)
	x.Resize(w[0], 5)
	want(t, x, []Slot{w[0], after, w[1]}, c, 0, 0, 1000)
	if s := x.Stats(); s.Workers != 2 || s.Blocks != 1000 {
		t.Errorf("%+v, want 2 workers with 1000 blocks", s)
	}
	if _, ok := x.Worker(w[0]); ok {
		t.Error("the forgotten instance still has figures")
	}
	if got, ok := x.Worker(after); !ok || got != (WorkerStats{}) {
		t.Errorf("another instance in its place begins with %+v", got)
	}
	x.Forget("other")
	x.Forget("after")
	if s := x.Stats(); s.Workers+s.Runs+s.Holds != 0 || s.Blocks != 0 {
		t.Errorf("%+v after all were forgotten", s)
	}
}

func TestManyPromptsAreForgottenAtOnce(t *testing.T) {
	x, w := index(t, "w1", "w2", "w3")
	for i := range uint64(5 * batch) {
		for _, s := range w {
			x.Insert(s, Chain{1, 2 + i})
		}
	}
	x.Forget("w1")
	x.Resize(w[1], batch)
	x.Resize(w[2], 5*batch)
	for s, blocks := range map[Slot]int{w[1]: batch, w[2]: 5 * batch} {
		if got, _ := x.Worker(s); got.Blocks != blocks {
			t.Errorf("%+v, want %d blocks", got, blocks)
		}
	}
	if s := x.Stats(); s.Blocks != 6*batch {
		t.Errorf("%+v, want %d blocks", s, 6*batch)
	}
}

func TestAHashThatBeginsAPromptCountsOnlyThere(t *testing.T) {
	x, w := index(t, "w1")
	x.Insert(w[0], Chain{1, 2})
	x.Insert(w[0], Chain{7})
	want(t, x, w, Chain{7, 1, 2}, 1) // no honest prompt has the hash 1 at two places
}

func TestThereIsASlotForEachInstanceUpToTheBound(t *testing.T) {
	x := New(Options{MaxBytes: LeastMaxBytes})
	for i := range 64 {
		name := fmt.Sprint(i)
		if s := x.Slot(name); s == 0 || x.Slot(name) != s {
			t.Fatalf("instance %d has slot %x, then %x", i, s, x.Slot(name))
		}
	}
	none := x.Slot("one more")
	if none != 0 {
		t.Errorf("slot %x beyond the bound", none)
	}
	x.Insert(none, chain(text("A", 3)))
	want(t, x, []Slot{none}, chain(text("A", 3)), 0)
	x.Forget("7")
	if x.Slot("one more") == 0 {
		t.Error("no slot after one became free")
	}
}

func TestAPlaceThatIsTakenOftenNeverHasTheSlotZero(t *testing.T) {
	x := New(Options{})
	seen := x.Slot("0")
	for i := range 1 << 16 {
		x.Forget(fmt.Sprint(i))
		if s := x.Slot(fmt.Sprint(i + 1)); s == 0 || s == seen {
			t.Fatalf("slot %x after %d others, the one before was %x", s, i+1, seen)
		} else {
			seen = s
		}
	}
}

func TestManyGoroutinesLeaveTheIndexSound(t *testing.T) {
	x := newIndex(200, 400, 40)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			var dst []int
			mine := fmt.Sprint("worker ", g)
			for i := range 2000 {
				slots := []Slot{x.Slot(mine), x.Slot("shared"), x.Slot(fmt.Sprint("worker ", (g+1)%8))}
				c := chain(text("system", 70) + text(fmt.Sprint(g, i%17), i%90))
				dst = x.Match(c, slots, dst)
				s := slots[i%3]
				claim := x.Insert(s, c)
				x.Resize(s, 100+i%3*200)
				x.Settle(s, c, claim, i%200)
				if i%50 == 0 {
					x.Forget(mine)
				}
				if s := x.Stats(); s.Holds > 400 {
					t.Errorf("%+v, bound of 400 holds", s)
				}
			}
		})
	}
	all.Wait()
	if err := sound(&x.tree); err != nil {
		t.Error(err)
	}
}
