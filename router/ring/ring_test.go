package ring

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("smollm2-3f2a91c4-7d9b-%d", i)
	}
	return out
}

func key(i int) []byte { return []byte("session-" + strconv.Itoa(i)) }

func owner(t testing.TB, r *Ring, k []byte) string {
	t.Helper()
	m, ok := r.Owner(k)
	if !ok {
		t.Fatalf("nobody owns %q", k)
	}
	return m
}

// golden is what may never change between releases: routers of two releases run side by side during an upgrade.
type golden struct {
	Positions map[string]uint32   `json:"positions"`
	Version   map[string]uint64   `json:"version"`
	Walk      map[string][]string `json:"walk"`
}

func TestPositionsVersionsAndOwnersNeverChange(t *testing.T) {
	g := golden{Positions: map[string]uint32{}, Version: map[string]uint64{}, Walk: map[string][]string{}}
	for _, k := range []string{"", "a", "session-1", "größer", "\x00\xff"} {
		g.Positions[strconv.QuoteToASCII(k)] = position([]byte(k))
	}
	g.Positions["node smollm2-3f2a91c4-7d9b-0 149"] = position(appendNode(nil, names(1)[0], 149))
	g.Version["none"] = New(nil, 150).Version()
	g.Version["five with 150"] = New(names(5), 150).Version()
	g.Version["five with 40"] = New(names(5), 40).Version()
	r := New(names(5), 0)
	for i := range 12 {
		g.Walk[string(key(i))] = slices.Collect(r.Walk(key(i)))
	}
	got, err := json.MarshalIndent(g, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join("testdata", "golden.json")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the ring differs from %s: sessions would move during an upgrade\n%s", file, got)
	}
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
	for name, r := range map[string]*Ring{"nil": nil, "zero": {}, "no members": New(nil, 150)} {
		if _, ok := r.Owner(key(1)); ok {
			t.Errorf("%s: somebody owns a key", name)
		}
		if w := slices.Collect(r.Walk(key(1))); len(w) != 0 {
			t.Errorf("%s: walk gives %v", name, w)
		}
		if r.Len() != 0 || len(r.Members()) != 0 {
			t.Errorf("%s: has members", name)
		}
	}
}

func TestOrderAndRepetitionOfMembersDoNotMatter(t *testing.T) {
	a := New([]string{"a", "b", "c"}, 150)
	b := New([]string{"c", "a", "b", "a"}, 150)
	if a.Version() != b.Version() || !slices.Equal(a.points, b.points) || !slices.Equal(a.Members(), b.Members()) {
		t.Error("equal sets give different rings")
	}
}

func TestVersionsDifferByMembersAndVirtualNodes(t *testing.T) {
	seen := map[uint64]string{}
	for name, r := range map[string]*Ring{
		"ab, c": New([]string{"ab", "c"}, 150), "a, bc": New([]string{"a", "bc"}, 150), "abc": New([]string{"abc"}, 150),
		"abc with 151": New([]string{"abc"}, 151), "none": New(nil, 150),
	} {
		if other, dup := seen[r.Version()]; dup {
			t.Errorf("%q and %q have one version", name, other)
		}
		seen[r.Version()] = name
	}
}

func TestLookupFindsTheFirstPointAtOrAfterEveryPosition(t *testing.T) {
	for _, n := range []int{1, 2, 7, 40} {
		for _, v := range []int{1, 3, 150} {
			r := New(names(n), v)
			probe := []uint32{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1}
			for _, p := range r.points {
				probe = append(probe, p.position-1, p.position, p.position+1)
			}
			for _, p := range probe {
				want := slices.IndexFunc(r.points, func(q point) bool { return q.position >= p })
				if want < 0 {
					want = 0
				}
				if got := r.find(p); got != want {
					t.Fatalf("%d members, %d nodes: find(%d) = %d, want %d", n, v, p, got, want)
				}
			}
		}
	}
}

func TestACollisionGoesToTheSmallerNameWhateverTheOrder(t *testing.T) {
	// With a single position left for all, every ring has the same owner for every key.
	r := New([]string{"b", "a"}, 1)
	r.points = []point{{7, 0}, {7, 1}}
	r.index()
	if got := owner(t, r, key(1)); got != "a" {
		t.Errorf("owner is %s", got)
	}
	if got := slices.Collect(r.Walk(key(1))); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("walk is %v", got)
	}
	for _, in := range [][]string{{"b", "a"}, {"a", "b"}} {
		if p := New(in, 1).points; !slices.IsSortedFunc(p, func(a, b point) int { return int(int64(a.position) - int64(b.position)) }) {
			t.Errorf("points of %v are not sorted", in)
		}
	}
}

func TestWalkNamesEveryMemberOnceAndEachNextIsTheOwnerWithoutThoseBefore(t *testing.T) {
	all := names(9)
	r := New(all, 150)
	for i := range 40 {
		walk := slices.Collect(r.Walk(key(i)))
		if len(walk) != len(all) {
			t.Fatalf("walk of %s has %d members", key(i), len(walk))
		}
		left := slices.Clone(all)
		for _, m := range walk {
			if got := owner(t, New(left, 150), key(i)); got != m {
				t.Fatalf("walk of %s gives %s, owner among the rest is %s", key(i), m, got)
			}
			left = slices.DeleteFunc(left, func(s string) bool { return s == m })
		}
	}
}

func TestAddingTheNthMemberMovesOneNthOfTheKeysAllToIt(t *testing.T) {
	const keys = 10000
	for _, n := range []int{2, 5, 10} {
		before, after := New(names(n-1), 150), New(names(n), 150)
		moved := 0
		for i := range keys {
			from, to := owner(t, before, key(i)), owner(t, after, key(i))
			if from != to {
				moved++
				if to != names(n)[n-1] {
					t.Fatalf("key %d moved from %s to %s", i, from, to)
				}
			}
		}
		if share, want := float64(moved)/keys, 1/float64(n); share < 0.75*want || share > 1.25*want {
			t.Errorf("adding member %d moved %.3f of the keys, want about %.3f", n, share, want)
		}
	}
}

func TestEightMembersShareTheRingEvenly(t *testing.T) {
	var worst, sum float64
	const sets = 100
	for s := range sets {
		members := make([]string, 8)
		for i := range members {
			members[i] = fmt.Sprintf("model-%d-%d", s, i)
		}
		peak := slices.Max(slices.Collect(maps.Values(arcs(New(members, 150))))) * 8
		worst, sum = max(worst, peak), sum+peak
	}
	if mean := sum / sets; mean > 1.15 || worst > 1.30 {
		t.Errorf("peak over mean is %.3f on average and %.3f at worst, want at most 1.15 and 1.30", sum/sets, worst)
	}
}

// arcs returns each member's exact share of the ring.
func arcs(r *Ring) map[string]float64 {
	out := map[string]float64{}
	for i, p := range r.points {
		arc := p.position - r.points[(i+len(r.points)-1)%len(r.points)].position // wraps as the ring does
		out[r.members[p.member]] += float64(arc) / (1 << 32)
	}
	return out
}

func FuzzRing(f *testing.F) {
	f.Add([]byte{1, 2, 3}, byte(4), []byte("k"), uint8(3))
	f.Add([]byte{}, byte(0), []byte{}, uint8(0))
	f.Add([]byte{9, 9, 200, 7, 1, 40}, byte(7), []byte("session"), uint8(150))
	f.Fuzz(func(t *testing.T, ids []byte, one byte, k []byte, virtual uint8) {
		if len(ids) > 40 {
			return
		}
		var members []string
		for _, id := range ids {
			members = append(members, "w"+strconv.Itoa(int(id)))
		}
		changed := "w" + strconv.Itoa(int(one))
		without := New(slices.DeleteFunc(slices.Clone(members), func(m string) bool { return m == changed }), int(virtual))
		with := New(append(slices.Clone(members), changed), int(virtual))
		slices.Reverse(members)
		if again := New(append([]string{changed}, members...), int(virtual)); again.Version() != with.Version() || !slices.Equal(again.points, with.points) {
			t.Fatal("the order of members matters")
		}
		a, b := slices.Collect(without.Walk(k)), slices.Collect(with.Walk(k))
		if slices.Contains(a, changed) || !slices.Contains(b, changed) || len(b) != len(a)+1 {
			t.Fatalf("walks are %v and %v", a, b)
		}
		if !slices.Equal(a, slices.DeleteFunc(b, func(m string) bool { return m == changed })) {
			t.Fatalf("%s moved the keys of others", changed)
		}
	})
}

func BenchmarkOwner(b *testing.B) {
	for _, n := range []int{2, 8, 128, 1000} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			r := New(names(n), 150)
			keys := make([][]byte, 1024)
			for i := range keys {
				keys[i] = key(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Owner(keys[i&1023])
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for _, n := range []int{8, 128} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			members := names(n)
			for b.Loop() {
				New(members, 150)
			}
		})
	}
}
