package prefix

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

var update = flag.Bool("update", false, "rewrite golden files")

// chain is the chain of text written in one piece.
func chain(text string, seed ...string) Chain {
	b := Begin(nil, seed...)
	b.Write([]byte(text))
	return b.Chain()
}

func TestChainsNeverChange(t *testing.T) {
	got := map[string][]string{}
	for name, c := range map[string]Chain{
		"100 a":                    chain(strings.Repeat("a", 100)),
		"200 a":                    chain(strings.Repeat("a", 200)),
		"200 a, model":             chain(strings.Repeat("a", 200), "model"),
		"200 a, model and adapter": chain(strings.Repeat("a", 200), "model", "adapter"),
		"a zero block":             chain(string(make([]byte, 64))),
	} {
		for _, h := range c {
			got[name] = append(got[name], fmt.Sprintf("%016x", h))
		}
	}
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	file := filepath.Join("testdata", "golden.json")
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, want) {
		t.Errorf("chains differ from %s: keys made of them would move during an upgrade\n%s", file, text)
	}
}

func TestOnlyWholeBlocksCount(t *testing.T) {
	for bytes, want := range map[int]int{0: 0, 1: 0, 63: 0, 64: 1, 127: 1, 128: 2, 6400: 100} {
		if c := chain(strings.Repeat("x", bytes)); len(c) != want {
			t.Errorf("%d bytes have %d blocks, not %d", bytes, len(c), want)
		}
	}
}

func TestEqualBlocksAtOtherPlacesHaveOtherHashes(t *testing.T) {
	c := chain(strings.Repeat("x", 64*1000))
	slices.Sort(c)
	if len(slices.Compact(c)) != 1000 {
		t.Error("a block has the hash of the same text at another place")
	}
}

func TestWhatIsBeyondTheLongestChainIsLeftOut(t *testing.T) {
	text := strings.Repeat("y", (MaxBlocks+10)*BlockBytes)
	whole := chain(text)
	b := Begin(nil)
	for _, piece := range []string{text[:1000], text[1000 : len(text)-100], text[len(text)-100:], text} {
		b.Write([]byte(piece))
	}
	if len(whole) != MaxBlocks || !slices.Equal(whole, b.Chain()) {
		t.Errorf("%d blocks in one piece and %d in four, not %d in both", len(whole), len(b.Chain()), MaxBlocks)
	}
}

func TestABuilderGoesOnAfterItsChainWasRead(t *testing.T) {
	b := Begin(nil)
	b.Write(make([]byte, 100))
	first := slices.Clone(b.Chain())
	b.Write(make([]byte, 100))
	if got := b.Chain(); len(first) != 1 || len(got) != 3 || got[0] != first[0] {
		t.Errorf("first %x, then %x", first, got)
	}
}

func TestAChainIsMadeInTheMemoryThatItIsGiven(t *testing.T) {
	text := make([]byte, 10_000)
	memory := make(Chain, 0, 200)
	if n := testing.AllocsPerRun(20, func() {
		b := Begin(memory, "model", "adapter", "salt")
		b.Write(text)
		memory = b.Chain()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzChain: any cutting into pieces gives the chain of the definition, and other seeds give other chains.
func FuzzChain(f *testing.F) {
	f.Add([]byte(strings.Repeat("prompt ", 60)), []byte{1, 63, 64, 65, 0, 200}, "model", "adapter")
	f.Add(make([]byte, 64), []byte{64}, "", "")
	f.Add([]byte("short"), []byte{}, "a", "")
	f.Add(bytes.Repeat([]byte{0xff}, 129), []byte{128, 1}, "ab", "c")
	f.Fuzz(func(t *testing.T, text, cuts []byte, one, two string) {
		whole := Begin(nil, one, two)
		before := whole.last
		whole.Write(text)
		var want Chain
		for rest := text; len(rest) >= BlockBytes && len(want) < MaxBlocks; rest = rest[BlockBytes:] {
			before = join(before, xxhash.Sum64(rest[:BlockBytes]))
			want = append(want, before)
		}
		if !slices.Equal(whole.Chain(), want) {
			t.Fatalf("in one piece %x, by definition %x", whole.Chain(), want)
		}
		pieces := Begin(make(Chain, 3, 5), one, two)
		rest := text
		for _, cut := range cuts {
			n := min(int(cut), len(rest))
			pieces.Write(rest[:n])
			rest = rest[n:]
		}
		pieces.Write(rest)
		if !slices.Equal(pieces.Chain(), want) {
			t.Fatalf("in pieces %x, in one piece %x", pieces.Chain(), want)
		}
		for _, seed := range [][]string{nil, {one}, {two, one}, {one + two}, {one, two, ""}, {"", one, two}, {one + "\x00\x00\x00\x00" + two}} {
			if slices.Equal(seed, []string{one, two}) {
				continue
			}
			other := Begin(nil, seed...)
			other.Write(text)
			for i, h := range other.Chain() {
				if h == want[i] {
					t.Fatalf("seeds %q and %q both give %x at block %d", seed, []string{one, two}, h, i)
				}
			}
		}
	})
}
