package ring

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// weightsOfFuzz are what the upper bits of a step say: to leave, or to join or be changed with a weight.
var weightsOfFuzz = [8]int{-1, -1, 100, 100, 0, 1, 37, 250}

// FuzzRing takes steps, each a change of one of 16 members: after each one the ring is what New makes of the set, and
// only keys of the member that changed have another owner.
func FuzzRing(f *testing.F) {
	f.Fuzz(func(t *testing.T, steps, k []byte, virtual byte) {
		if len(steps) > 32 || len(k) > 1024 {
			return
		}
		nodes := 1 + int(virtual)%16
		set := map[string]Member{}
		start := New(nil, nodes)
		r := start
		for i, step := range steps {
			m := Member{fmt.Sprintf("w%d", step&15), weightsOfFuzz[step>>5]}
			var next *Ring
			if m.Weight < 0 {
				delete(set, m.Name)
				next = r.Change(nil, []string{m.Name})
			} else {
				set[m.Name] = m
				next = r.Change([]Member{m}, nil)
			}
			members := slices.Collect(maps.Values(set))
			if d := difference(next, New(members, nodes)); d != "" {
				t.Fatalf("step %d: the ring differs from New's: %s", i, d)
			}
			checkMoves(t, r, next, m.Name, k)
			if r = next; i == len(steps)/2 {
				start = r
			}
		}
		members := slices.Collect(maps.Values(set))
		var left []string
		for _, m := range start.Members() {
			if _, in := set[m.Name]; !in {
				left = append(left, m.Name)
			}
		}
		if d := difference(start.Change(members, left), r); d != "" {
			t.Fatalf("the second half of the steps at once gives another ring: %s", d)
		}
		if d := difference(New(append(members, members...), nodes), r); d != "" {
			t.Fatalf("repetitions give another ring: %s", d)
		}
	})
}

// checkMoves checks that the walks from k on two rings are one but for the member that changed, and that a key that
// moved went to it or came from it.
func checkMoves(t *testing.T, before, after *Ring, changed string, k []byte) {
	t.Helper()
	a, b := named(before, before.Walk(k)), named(after, after.Walk(k))
	if len(a) != before.Len() || len(b) != after.Len() {
		t.Fatalf("walks have %d of %d and %d of %d members", len(a), before.Len(), len(b), after.Len())
	}
	from, _ := before.Owner(k)
	to, _ := after.Owner(k)
	if from != to && from != changed && to != changed {
		t.Fatalf("a change of %s moved a key from %s to %s", changed, from, to)
	}
	is := func(name string) bool { return name == changed }
	if a, b = slices.DeleteFunc(a, is), slices.DeleteFunc(b, is); !slices.Equal(a, b) {
		t.Fatalf("a change of %s made the others' walk %v of %v", changed, b, a)
	}
}
