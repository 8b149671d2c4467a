package ring

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cespare/xxhash/v2"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden is what may never change between releases: routers of two releases run side by side during an upgrade.
type golden struct {
	Positions map[string]uint32   `json:"positions"`
	Version   map[string]uint64   `json:"version"`
	Walk      map[string][]string `json:"walk"`
}

func TestPositionsVersionsAndOwnersNeverChange(t *testing.T) {
	g := golden{Positions: map[string]uint32{}, Version: map[string]uint64{}}
	for _, k := range []string{"", "a", "session-1", "größer", "\x00\xff"} {
		g.Positions[strconv.QuoteToASCII(k)] = position([]byte(k))
	}
	g.Positions["node smollm2-3f2a91c4-7d9b-0 149"] = position(appendNode(nil, podNames(1)[0], 149))
	g.Version["none"] = New(nil, 150).Version()
	g.Version["five with 150"] = New(pods(5), 150).Version()
	g.Version["five with 40"] = New(pods(5), 40).Version()
	g.Walk = walks(New(pods(5), 0), 12)
	compare(t, "golden.json", g)
}

func TestWeightsAndLayoutNeverChange(t *testing.T) {
	weighted := pods(5)
	for i, w := range []int{100, 50, 200, 1, MaxWeight} {
		weighted[i].Weight = w
	}
	r := New(weighted, 150)
	compare(t, "weighted.json", struct {
		Version map[string]uint64   `json:"version"`
		Layout  map[string]uint64   `json:"layout"`
		Walk    map[string][]string `json:"walk"`
	}{
		Version: map[string]uint64{"weighted with 150": r.Version(), "weighted with 40": New(weighted, 40).Version()},
		Layout: map[string]uint64{
			"none":               layout(New(nil, 150)),
			"five with 150":      layout(New(pods(5), 150)),
			"five with 40":       layout(New(pods(5), 40)),
			"thousand with 150":  layout(New(pods(1000), 150)),
			"weighted with 150":  layout(r),
			"weighted with 40":   layout(New(weighted, 40)),
			"weighted, one more": layout(r.Change(even("smollm2-3f2a91c4-7d9b-5"), nil)),
		},
		Walk: walks(r, 12),
	})
}

// walks are the names on the walks of the first n keys.
func walks(r *Ring, n int) map[string][]string {
	out := map[string][]string{}
	for i := range n {
		out[string(key(i))] = named(r, r.Walk(key(i)))
	}
	return out
}

// layout is a hash of the positions of all points in their order, each with the index of its member.
func layout(r *Ring) uint64 {
	var b []byte
	for _, p := range r.points {
		b = binary.BigEndian.AppendUint32(b, p.position())
		b = binary.BigEndian.AppendUint32(b, uint32(p.member()))
	}
	return xxhash.Sum64(b)
}

// compare compares v as JSON with a golden file, which -update rewrites.
func compare(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join("testdata", name)
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
