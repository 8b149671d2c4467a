package ring

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

func TestAChangeGivesTheRingThatNewMakesOfTheSameSet(t *testing.T) {
	base := []Member{{"b", 100}, {"d", 50}, {"f", 200}}
	for name, c := range map[string]struct {
		add    []Member
		remove []string
		want   []Member
	}{
		"one joins before all":               {add: []Member{{"a", 0}}, want: []Member{{"a", 0}, {"b", 0}, {"d", 50}, {"f", 200}}},
		"one joins between":                  {add: []Member{{"c", 70}}, want: []Member{{"b", 0}, {"c", 70}, {"d", 50}, {"f", 200}}},
		"one joins after all":                {add: []Member{{"g", 1}}, want: []Member{{"b", 0}, {"d", 50}, {"f", 200}, {"g", 1}}},
		"the first leaves":                   {remove: []string{"b"}, want: []Member{{"d", 50}, {"f", 200}}},
		"the last leaves":                    {remove: []string{"f"}, want: []Member{{"b", 0}, {"d", 50}}},
		"all leave":                          {remove: []string{"f", "d", "b"}},
		"many join and leave":                {[]Member{{"z", 0}, {"a", 30}, {"e", 0}}, []string{"f", "b"}, []Member{{"a", 30}, {"d", 50}, {"e", 0}, {"z", 0}}},
		"a weight grows":                     {add: []Member{{"d", 100}}, want: []Member{{"b", 0}, {"d", 100}, {"f", 200}}},
		"a weight shrinks":                   {add: []Member{{"f", 10}}, want: []Member{{"b", 0}, {"d", 50}, {"f", 10}}},
		"a weight of none is 100":            {add: []Member{{"d", 0}}, want: []Member{{"b", 0}, {"d", 100}, {"f", 200}}},
		"one that leaves and joins is in":    {[]Member{{"d", 60}}, []string{"d"}, []Member{{"b", 0}, {"d", 60}, {"f", 200}}},
		"and unchanged with the same weight": {[]Member{{"d", 50}}, []string{"d"}, base},
		"a stranger leaves":                  {remove: []string{"c", ""}, want: base},
		"members join again":                 {add: base, want: base},
		"nothing changes":                    {want: base},
		"of repetitions the first counts":    {add: []Member{{"c", 40}, {"c", 80}}, want: append([]Member{{"c", 40}}, base...)},
		"one leaves twice":                   {remove: []string{"d", "d"}, want: []Member{{"b", 0}, {"f", 200}}},
	} {
		t.Run(name, func(t *testing.T) {
			before := New(base, 150)
			got, want := before.Change(c.add, c.remove), New(c.want, 150)
			if d := difference(got, want); d != "" {
				t.Errorf("the ring differs from New's: %s", d)
			}
			if d := difference(before, New(base, 150)); d != "" {
				t.Errorf("the ring that was changed differs from before: %s", d)
			}
			if same := got == before; same != slices.Equal(want.Members(), before.Members()) {
				t.Errorf("the ring itself is the answer: %v", same)
			}
		})
	}
}

func TestAChangeOfAnEmptyRingIsNew(t *testing.T) {
	for name, c := range map[string]struct {
		ring  *Ring
		nodes int
	}{
		"nil": {nil, DefaultVirtualNodes}, "zero": {&Ring{}, DefaultVirtualNodes}, "no members": {New(nil, 40), 40},
	} {
		t.Run(name, func(t *testing.T) {
			if d := difference(c.ring.Change(pods(3), []string{"x"}), New(pods(3), c.nodes)); d != "" {
				t.Errorf("three joined: %s", d)
			}
			if d := difference(c.ring.Change(nil, nil), New(nil, c.nodes)); d != "" {
				t.Errorf("nobody joined: %s", d)
			}
		})
	}
}

func TestAnyOrderOfJoinsAndLeavesGivesTheSameRing(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	want := New(pods(40), 150)
	for range 20 {
		r := New(pods(5), 150)
		strangers := even("x", "y", "z")
		joins := append(pods(40), strangers...)
		chance.Shuffle(len(joins), func(i, j int) { joins[i], joins[j] = joins[j], joins[i] })
		for len(joins) > 0 {
			n := min(1+chance.IntN(4), len(joins))
			r = r.Change(joins[:n], podNames(2)[:chance.IntN(2)])
			joins = joins[n:]
		}
		r = r.Change(pods(2), []string{"z", "x", "y"})
		if d := difference(r, want); d != "" {
			t.Fatalf("the ring differs from New's: %s", d)
		}
	}
}

func TestWherePointsOfTwoMembersMeetTheSmallerNameHasThePosition(t *testing.T) {
	all := New(pods(1000), 150)
	i := 1
	for ; i < len(all.points); i++ {
		p, q := all.points[i-1], all.points[i]
		if p.position() == q.position() && p.member() != q.member() {
			break
		}
	}
	if i == len(all.points) {
		t.Fatal("no points of a thousand members meet")
	}
	small, large := all.members[all.points[i-1].member()], all.members[all.points[i].member()]
	k := keyAt(t, all.points[i].position(), small)
	other := Member{Name: "zz", Weight: 1}
	for name, r := range map[string]*Ring{
		"New":                   New([]Member{small, large}, 150),
		"New, the other way":    New([]Member{large, small}, 150),
		"the larger joins":      New([]Member{small}, 150).Change([]Member{large}, nil),
		"the smaller joins":     New([]Member{large}, 150).Change([]Member{small}, nil),
		"both join":             New([]Member{other}, 150).Change([]Member{large, small}, []string{other.Name}),
		"a third leaves":        New([]Member{other, small, large}, 150).Change(nil, []string{other.Name}),
		"the smaller's changes": New([]Member{{small.Name, 50}, large}, 150).Change([]Member{small}, nil),
	} {
		if got := named(r, r.Walk(k)); !slices.Equal(got, []string{small.Name, large.Name}) {
			t.Errorf("%s: walk from the common position is %v", name, got)
		}
		if d := difference(r, New([]Member{small, large}, 150)); d != "" {
			t.Errorf("%s: the ring differs from New's: %s", name, d)
		}
		if got := owner(t, r.Change(nil, []string{small.Name}), k); got != large.Name {
			t.Errorf("%s: when the smaller has left, the owner is %s", name, got)
		}
	}
}

// keyAt returns a key with the position of one of m's points: what is hashed for the point.
func keyAt(t *testing.T, at uint32, m Member) []byte {
	t.Helper()
	for i := range 150 {
		if k := appendNode(nil, m.Name, i); position(k) == at {
			return k
		}
	}
	t.Fatalf("%s has no point at %d", m.Name, at)
	return nil
}

// Case B16: 10,000 sessions on four workers, then five, then four again.
func TestAFifthWorkerMovesAFifthOfTheSessionsAndAllReturnWhenItLeaves(t *testing.T) {
	const keys = 10000
	four := New(pods(4), 150)
	five := four.Change(even(podNames(5)[4]), nil)
	again := five.Change(nil, podNames(5)[4:])
	moved := 0
	for i := range keys {
		from, to := owner(t, four, key(i)), owner(t, five, key(i))
		if from != to {
			moved++
			if to != podNames(5)[4] {
				t.Fatalf("session %d moved from %s to %s, which was there before", i, from, to)
			}
		}
		if back := owner(t, again, key(i)); back != from {
			t.Fatalf("session %d was on %s and came back to %s", i, from, back)
		}
	}
	if most := keys / 5 * 12 / 10; moved == 0 || moved > most {
		t.Errorf("%d of %d sessions moved, want some and at most %d", moved, keys, most)
	}
}

// Case B17: one key a hundred times while a second worker joins.
func TestAKeyChangesItsOwnerOnceAtMostWhileAWorkerJoins(t *testing.T) {
	const lookups = 100
	one := New(pods(1), 150)
	joined := podNames(2)[1]
	two := one.Change(even(joined), nil)
	moved := 0
	for i := range 500 {
		var owners []string
		for n := range lookups {
			r := one
			if n >= i%lookups { // the moment of the change
				r = two
			}
			owners = append(owners, owner(t, r, key(i)))
		}
		after := owners[lookups-1]
		if got := slices.Compact(owners); len(got) > 2 {
			t.Fatalf("the owners of session %d were %v in turn", i, got)
		}
		if after == joined {
			moved++
		}
	}
	if moved < 150 || moved > 350 {
		t.Errorf("%d of 500 sessions moved to the second of two workers", moved)
	}
}

func TestCopiesThatHearOfChangesInAnyOrderAgree(t *testing.T) {
	chance := rand.New(rand.NewPCG(3, 4))
	weights := []int{1, 50, 100, 100, 100, 250}
	fleet := map[string]Member{}
	copies := []*Ring{New(nil, 150), New(nil, 150), New(nil, 150)}
	for round := range 60 {
		joins, leaves := map[string]Member{}, map[string]bool{}
		for range 1 + chance.IntN(6) {
			m := Member{podNames(20)[chance.IntN(20)], weights[chance.IntN(len(weights))]}
			_, in := fleet[m.Name]
			if in && chance.IntN(2) == 0 {
				delete(fleet, m.Name)
				delete(joins, m.Name)
				leaves[m.Name] = true
			} else {
				fleet[m.Name], joins[m.Name] = m, m
				delete(leaves, m.Name)
			}
		}
		now := slices.Collect(maps.Values(fleet)) // in any order
		for i := range copies {
			copies[i] = hear(copies[i], joins, leaves)
		}
		copies[round%3] = New(now, 150) // this one restarts
		for i, c := range copies {
			if d := difference(c, New(now, 150)); d != "" {
				t.Fatalf("round %d, copy %d: %s", round, i, d)
			}
			for k := range 20 {
				if a, b := named(c, c.Walk(key(k))), named(copies[0], copies[0].Walk(key(k))); !slices.Equal(a, b) {
					t.Fatalf("round %d: %s goes to %v by copy %d and to %v by copy 0", round, key(k), a, i, b)
				}
			}
		}
	}
}

// hear applies changes one by one, in the order of a map, which is another each time.
func hear(r *Ring, joins map[string]Member, leaves map[string]bool) *Ring {
	for _, m := range joins {
		r = r.Change([]Member{m}, nil)
	}
	for name := range leaves {
		r = r.Change(nil, []string{name})
	}
	return r
}

func TestReadersOfARingSeeNothingOfItsChanges(t *testing.T) {
	r := New(pods(20), 150)
	want := make([]string, 100)
	for i := range want {
		want[i] = owner(t, r, key(i))
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 50 {
				r.Change([]Member{{fmt.Sprintf("x-%d-%d", g, i), 1 + i}}, podNames(20)[i%20:i%20+1])
			}
		})
		all.Go(func() {
			for i := range 1000 {
				if got, _ := r.Owner(key(i % 100)); got != want[i%100] {
					t.Errorf("session %d went from %s to %s", i%100, want[i%100], got)
					return
				}
			}
		})
	}
	all.Wait()
}
