package ring

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"testing"
)

// podNames are names as the manager gives them.
func podNames(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("smollm2-3f2a91c4-7d9b-%d", i)
	}
	return out
}

// even are members of weight 100.
func even(names ...string) []Member {
	out := make([]Member, len(names))
	for i, n := range names {
		out[i].Name = n
	}
	return out
}

func pods(n int) []Member { return even(podNames(n)...) }

func key(i int) []byte { return []byte("session-" + strconv.Itoa(i)) }

func owner(t testing.TB, r *Ring, k []byte) string {
	t.Helper()
	name, ok := r.Owner(k)
	if !ok {
		t.Fatalf("nobody owns %q", k)
	}
	return name
}

// named are the names of a walk.
func named(r *Ring, walk iter.Seq[int]) []string {
	out := []string{}
	for i := range walk {
		out = append(out, r.Members()[i].Name)
	}
	return out
}

// difference says in what two rings differ, bit by bit; "" when in nothing.
func difference(a, b *Ring) string {
	switch {
	case a.VirtualNodes() != b.VirtualNodes():
		return fmt.Sprintf("virtual nodes %d and %d", a.VirtualNodes(), b.VirtualNodes())
	case !slices.Equal(a.Members(), b.Members()):
		return fmt.Sprintf("members %v and %v", a.Members(), b.Members())
	case a.Version() != b.Version():
		return fmt.Sprintf("versions %x and %x", a.Version(), b.Version())
	case !slices.Equal(a.points, b.points):
		return fmt.Sprintf("%d and %d points", len(a.points), len(b.points))
	case a.buckets.shift != b.buckets.shift || !slices.Equal(a.buckets.first, b.buckets.first):
		return "buckets"
	}
	return ""
}

func TestXXHashIsXXH64WithSeedZero(t *testing.T) {
	// From the reference implementation: XXH64("", 0) = EF46DB3751D8E999, XXH64("abc", 0) = 44BC2CF5AD770999.
	if p := position(nil); p != 0xEF46DB37 {
		t.Errorf("position of the empty key is %08X", p)
	}
	if p := position([]byte("abc")); p != 0x44BC2CF5 {
		t.Errorf("position of abc is %08X", p)
	}
}

func TestAnEmptyRingHasNoOwnerAndAnEmptyWalk(t *testing.T) {
	for name, r := range map[string]*Ring{
		"nil": nil, "zero": {}, "no members": New(nil, 150), "all gone": New(pods(2), 150).Change(nil, podNames(2)),
	} {
		if _, ok := r.Owner(key(1)); ok {
			t.Errorf("%s: somebody owns a key", name)
		}
		for i := range r.Walk(key(1)) {
			t.Errorf("%s: walk gives %d", name, i)
		}
		if r.Len() != 0 || len(r.Members()) != 0 {
			t.Errorf("%s: has members", name)
		}
	}
}

func TestOrderAndRepetitionOfMembersDoNotMatter(t *testing.T) {
	if d := difference(New(even("a", "b", "c"), 150), New(even("c", "a", "b", "a"), 150)); d != "" {
		t.Errorf("equal sets give different rings: %s", d)
	}
}

func TestOfARepeatedNameTheFirstCounts(t *testing.T) {
	got := New([]Member{{"b", 20}, {"a", 30}, {"b", 40}, {"a", 50}}, 150).Members()
	if want := []Member{{"a", 30}, {"b", 20}}; !slices.Equal(got, want) {
		t.Errorf("members are %v, want %v", got, want)
	}
}

func TestAMemberHasPointsByItsWeight(t *testing.T) {
	for name, c := range map[string]struct{ weight, nodes, points int }{
		"no weight is 100":                    {0, 150, 150},
		"less than none is 100":               {-5, 150, 150},
		"100 is one for each virtual node":    {100, 150, 150},
		"a half":                              {50, 150, 75},
		"double":                              {200, 150, 300},
		"parts of a point are cut off":        {33, 10, 3},
		"one at least":                        {1, 40, 1},
		"no more than ten times":              {1 << 30, 150, 1500},
		"no virtual nodes are the default":    {100, 0, DefaultVirtualNodes},
		"less than none are the default, too": {50, -1, DefaultVirtualNodes / 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := len(New([]Member{{"a", c.weight}}, c.nodes).points); got != c.points {
				t.Errorf("weight %d of %d nodes has %d points, want %d", c.weight, c.nodes, got, c.points)
			}
		})
	}
}

func TestMembersHaveTheWeightThatCounts(t *testing.T) {
	got := New([]Member{{"a", 0}, {"b", -1}, {"c", 7}, {"d", MaxWeight + 1}}, 150).Members()
	if want := []Member{{"a", 100}, {"b", 100}, {"c", 7}, {"d", MaxWeight}}; !slices.Equal(got, want) {
		t.Errorf("members are %v, want %v", got, want)
	}
}

func TestVersionsDifferByMembersWeightsAndVirtualNodes(t *testing.T) {
	seen := map[uint64]string{}
	for name, r := range map[string]*Ring{
		"ab, c": New(even("ab", "c"), 150), "a, bc": New(even("a", "bc"), 150), "abc": New(even("abc"), 150),
		"abc with 151": New(even("abc"), 151), "none": New(nil, 150),
		"half of ab, c": New([]Member{{"ab", 50}, {"c", 100}}, 150),
		"ab, half of c": New([]Member{{"ab", 100}, {"c", 50}}, 150),
		"half of both":  New([]Member{{"ab", 50}, {"c", 50}}, 150),
	} {
		if other, dup := seen[r.Version()]; dup {
			t.Errorf("%q and %q have one version", name, other)
		}
		seen[r.Version()] = name
	}
}

func TestPointsAreThoseOfAPlainSort(t *testing.T) {
	for _, members := range [][]Member{
		pods(1), pods(2), pods(40), {{"a", 1}, {"b", 1000}, {"c", 0}, {"", 30}},
	} {
		for _, v := range []int{1, 3, 150} {
			r := New(members, v)
			type node struct {
				position uint32
				name     string
			}
			var want, got []node
			for _, m := range r.Members() {
				for i := range max(1, v*m.Weight/100) {
					want = append(want, node{position(appendNode(nil, m.Name, i)), m.Name})
				}
			}
			slices.SortFunc(want, func(a, b node) int {
				return cmp.Or(cmp.Compare(a.position, b.position), cmp.Compare(a.name, b.name))
			})
			for _, p := range r.points {
				got = append(got, node{p.position(), r.Members()[p.member()].Name})
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d members with %d nodes: the points differ", len(members), v)
			}
		}
	}
}

func TestLookupFindsTheFirstPointAtOrAfterEveryPosition(t *testing.T) {
	for _, members := range [][]Member{pods(1), pods(2), pods(7), pods(40), {{"a", 1}, {"b", 1000}, {"c", 40}}} {
		for _, v := range []int{1, 3, 150} {
			r := New(members, v)
			probe := []uint32{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1}
			for _, p := range r.points {
				probe = append(probe, p.position()-1, p.position(), p.position()+1)
			}
			for _, p := range probe {
				want := slices.IndexFunc(r.points, func(q point) bool { return q.position() >= p })
				if want < 0 {
					want = 0
				}
				if got := r.find(p); got != want {
					t.Fatalf("%d members, %d nodes: find(%d) = %d, want %d", len(members), v, p, got, want)
				}
			}
		}
	}
}

func TestPointsThatCrowdInOneBucketAreFound(t *testing.T) {
	points := []point{at(7, 1), at(9, 0), at(7, 0), at(1<<32-1, 2), at(8, 1)}
	var r Ring
	r.points, r.buckets = arrange(points)
	if want := []point{at(7, 0), at(7, 1), at(8, 1), at(9, 0), at(1<<32-1, 2)}; !slices.Equal(r.points, want) {
		t.Fatalf("points are %x, want %x", r.points, want)
	}
	for p, want := range map[uint32]int{0: 0, 7: 0, 8: 2, 9: 3, 10: 4, 1<<32 - 1: 4} {
		if got := r.find(p); got != want {
			t.Errorf("find(%d) = %d, want %d", p, got, want)
		}
	}
}

func TestWalkNamesEveryMemberOnceAndEachNextIsTheOwnerWithoutThoseBefore(t *testing.T) {
	for name, all := range map[string][]Member{
		"even":     pods(9),
		"weighted": {{"a", 100}, {"b", 250}, {"c", 10}, {"d", 1}, {"e", 60}},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(all, 150)
			for i := range 40 {
				walk := named(r, r.Walk(key(i)))
				if len(walk) != len(all) {
					t.Fatalf("walk of %s has %d members", key(i), len(walk))
				}
				left := slices.Clone(all)
				for _, m := range walk {
					if got := owner(t, New(left, 150), key(i)); got != m {
						t.Fatalf("walk of %s gives %s, owner among the rest is %s", key(i), m, got)
					}
					left = slices.DeleteFunc(left, func(l Member) bool { return l.Name == m })
				}
			}
		})
	}
}

func TestAWalkStopsWhereItsCallerDoes(t *testing.T) {
	r := New(pods(5), 150)
	whole := slices.Collect(r.Walk(key(3)))
	for n := 1; n <= len(whole); n++ {
		var got []int
		for i := range r.Walk(key(3)) {
			if got = append(got, i); len(got) == n {
				break
			}
		}
		if !slices.Equal(got, whole[:n]) {
			t.Errorf("the first %d are %v, want %v", n, got, whole[:n])
		}
	}
}

func TestAWalkOfMoreMembersThanFitOnTheStackIsWhole(t *testing.T) {
	for _, n := range []int{63, 64, 65, 255, 256, 257, 300} {
		walk := slices.Collect(New(pods(n), 3).Walk(key(1)))
		slices.Sort(walk)
		for i := range n {
			if len(walk) != n || walk[i] != i {
				t.Fatalf("of %d members %d are walked, want each once", n, len(walk))
			}
		}
	}
}

func TestLookupsAllocateNothing(t *testing.T) {
	r, k := New(pods(256), 150), key(1)
	sum := 0
	for name, f := range map[string]func(){
		"the owner": func() {
			name, _ := r.Owner(k)
			sum += len(name)
		},
		"a whole walk": func() {
			for i := range r.Walk(k) {
				sum += i
			}
		},
		"the first three of a walk": func() {
			n := 0
			for i := range r.Walk(k) {
				sum += i
				if n++; n == 3 {
					break
				}
			}
		},
	} {
		if got := testing.AllocsPerRun(100, f); got != 0 {
			t.Errorf("%s takes %v allocations", name, got)
		}
	}
	if sum == 0 {
		t.Error("nothing was looked up")
	}
}
