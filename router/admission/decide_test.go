package admission

import (
	"flag"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite transcripts")

func TestDecideTranscripts(t *testing.T) {
	if *update {
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			if td.Cmd != "levels" {
				t.Fatalf("unknown command %q", td.Cmd)
			}
			b, l := DefaultBands(), Levels{KVPercent: -1, InRing: 1, Candidates: 1}
			scan(t, td, &b, &l)
			return table(t, b, l, td.Input)
		})
	})
}

func scan(t *testing.T, td *datadriven.TestData, b *Bands, l *Levels) {
	for _, a := range td.CmdArgs {
		switch a.Key {
		case "queued":
			a.Scan(t, 0, &l.Queued)
		case "ring":
			a.Scan(t, 0, &l.InRing)
		case "seats":
			a.Scan(t, 0, &l.Seats)
		case "running":
			a.Scan(t, 0, &l.Running)
		case "waiting":
			a.Scan(t, 0, &l.Waiting)
		case "bands":
			for i, p := range []*int{&b.WatchPercent, &b.ScaleOutPercent, &b.AdmitPercent, &b.RefusePercent} {
				a.Scan(t, i, p)
			}
		default:
			t.Fatalf("unknown setting %q", a.Key)
		}
	}
}

var kinds = []WhenBusy{WhenBusyFirst, WhenBusyQueue, WhenBusyRefuse}

// table judges each tier at each level, one a line.
func table(t *testing.T, b Bands, l Levels, input string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%7s  %-8s  %-7s  %-7s  %s\n", "level", "band", kinds[0], kinds[1], kinds[2])
	for line := range strings.SplitSeq(input, "\n") {
		l.KVPercent = -1
		if line != "unknown" {
			var err error
			if l.KVPercent, err = strconv.ParseFloat(line, 64); err != nil {
				t.Fatal(err)
			}
		}
		row := fmt.Sprintf("%7s  %-8s", line, b.Band(l.Percent(b)))
		for _, k := range kinds {
			row += fmt.Sprintf("  %-7s", Decide(b, l, Tier{WhenBusy: k}))
		}
		fmt.Fprintln(&out, strings.TrimRight(row, " "))
	}
	return out.String()
}

func TestATierThatSaysNothingQueues(t *testing.T) {
	l := Levels{KVPercent: 92, InRing: 1}
	for _, k := range []WhenBusy{"", "first", "Else"} {
		if got := Decide(DefaultBands(), l, Tier{WhenBusy: k}); got != Queue {
			t.Errorf("%q: %s", k, got)
		}
	}
}

func TestALevelThatIsNoNumberIsUnknown(t *testing.T) {
	l := Levels{KVPercent: math.NaN(), InRing: 1, Seats: 4, Running: 4}
	if got := Decide(DefaultBands(), l, Tier{WhenBusy: WhenBusyFirst}); got != Queue {
		t.Errorf("four of four seats are taken: %s", got)
	}
	l.Running = 0
	if got := Decide(DefaultBands(), l, Tier{WhenBusy: WhenBusyRefuse}); got != Enter {
		t.Errorf("all seats are free: %s", got)
	}
}

// drawLevels draws levels with a worker in the ring.
func drawLevels(t *rapid.T) Levels {
	return Levels{
		KVPercent: rapid.SampledFrom([]float64{-1, 0, 50, 75, 80, 89, 90, 91, 94, 95, 96, 100, 150}).Draw(t, "kv"),
		InRing:    rapid.IntRange(1, 3).Draw(t, "ring"),
		Running:   rapid.IntRange(0, 40).Draw(t, "running"),
		Waiting:   rapid.IntRange(0, 40).Draw(t, "waiting"),
		Seats:     rapid.IntRange(0, 40).Draw(t, "seats"),
		Queued:    rapid.IntRange(0, 2).Draw(t, "queued"),
	}
}

func TestAFullerModelNeverTreatsARequestBetter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tier := Tier{WhenBusy: rapid.SampledFrom(kinds).Draw(t, "tier")}
		l := drawLevels(t)
		before := Decide(DefaultBands(), l, tier)
		switch rapid.IntRange(0, 2).Draw(t, "what") {
		case 0:
			if l.KVPercent >= 0 {
				l.KVPercent += 7
			}
		case 1:
			l.Waiting += 3
		case 2:
			l.Queued++
		}
		if after := Decide(DefaultBands(), l, tier); before != Enter && after == Enter {
			t.Fatalf("%s became %s at %+v", before, after, l)
		}
	})
}

func TestABetterTierIsNeverTreatedWorse(t *testing.T) {
	rank := map[Verdict]int{Enter: 0, Queue: 1, Refuse: 2}
	rapid.Check(t, func(t *rapid.T) {
		l := drawLevels(t)
		for i := range len(kinds) - 1 {
			better, worse := Decide(DefaultBands(), l, Tier{WhenBusy: kinds[i]}), Decide(DefaultBands(), l, Tier{WhenBusy: kinds[i+1]})
			if rank[better] > rank[worse] {
				t.Fatalf("%s is %s where %s is %s, at %+v", kinds[i], better, kinds[i+1], worse, l)
			}
		}
	})
}

func TestOnlyAModelWithoutWorkersHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tier := Tier{WhenBusy: rapid.SampledFrom(kinds).Draw(t, "tier")}
		l := drawLevels(t)
		if got := Decide(DefaultBands(), l, tier); got == Hold {
			t.Fatalf("held with %d workers", l.InRing)
		}
		l.InRing, l.Candidates = 0, 3
		if got := Decide(DefaultBands(), l, tier); got != Hold {
			t.Fatalf("%s without a worker", got)
		}
	})
}

func TestVerdictsAndBandsHaveNames(t *testing.T) {
	for v, want := range map[fmt.Stringer]string{Enter: "Enter", Hold: "Hold", Verdict(9): "Verdict(9)", Open: "Open", Full: "Full", Band(-1): "Band(-1)"} {
		if v.String() != want {
			t.Errorf("got %s, want %s", v, want)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	bands, l, tier := DefaultBands(), Levels{KVPercent: 92, InRing: 4}, Tier{WhenBusy: WhenBusyQueue}
	for b.Loop() {
		if Decide(bands, l, tier) != Queue {
			b.Fatal("it entered")
		}
	}
}
