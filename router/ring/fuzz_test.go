package ring

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// weightsOfFuzz are what the upper bits of a step say: to leave, or to join or be changed with a weight.
var weightsOfFuzz = [8]int{-1, -1, 100, 100, 0, 1, 37, 250}

// FuzzRing takes steps, each a change of one of 16 members: after each one the ring is what New makes of the set in any order,
// and only keys of the member that changed have another owner: those that a member gains when it joins, and loses when it
// leaves.
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
			for _, members := range orders(set) {
				if d := difference(next, New(members, nodes)); d != "" {
					t.Fatalf("step %d: the ring differs from New's of %v: %s", i, members, d)
				}
			}
			for n := range byte(keysOfFuzz) {
				checkMoves(t, r, next, m.Name, append([]byte{n}, k...))
			}
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

// keysOfFuzz is for how many keys the owners before and after a step are compared.
const keysOfFuzz = 16

// orders are a set's members by their names, and the other way round.
func orders(set map[string]Member) [2][]Member {
	up := make([]Member, 0, len(set))
	for _, name := range slices.Sorted(maps.Keys(set)) {
		up = append(up, set[name])
	}
	down := slices.Clone(up)
	slices.Reverse(down)
	return [2][]Member{up, down}
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
	was, stays := slices.Contains(a, changed), slices.Contains(b, changed)
	if from != to && (!was && to != changed || !stays && from != changed) {
		t.Fatalf("%s, a member before: %v, and after: %v, moved a key from %q to %q", changed, was, stays, from, to)
	}
	is := func(name string) bool { return name == changed }
	if a, b = slices.DeleteFunc(a, is), slices.DeleteFunc(b, is); !slices.Equal(a, b) {
		t.Fatalf("a change of %s made the others' walk %v of %v", changed, b, a)
	}
}
