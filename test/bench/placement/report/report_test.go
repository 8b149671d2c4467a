package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/placement/sim"
)

func row(policy string, hit float64, mean time.Duration) Row {
	return Row{Policy: policy, Ours: policy == "a", Summary: sim.Summary{
		Hit: hit, Mean: mean, P90: 2 * mean, P99: 3 * mean, PrefillPeak: 1.05, RequestPeak: 1.5,
	}}
}

func shown() Replays {
	one := Table{Name: "one", Title: "One router", Rows: []Row{row("a", 0.3, time.Second), row("b", 0.35, 2*time.Second), row("c", 0.1, 2000*time.Second)}}
	several := Table{Name: "several", Title: "Several routers", Rows: []Row{row("a", 0.29, 1200*time.Millisecond)}}
	return Replays{
		Head:   bench.Head{Bench: "placement", Title: "Placement"},
		Judged: Judge("a", one, several), Tables: []Table{one, several},
	}
}

func TestGoalsAreOfOnePolicy(t *testing.T) {
	var got []string
	for _, f := range shown().Judged {
		got = append(got, f.Name+" "+f.Goal+map[bool]string{true: " holds", false: ""}[f.Holds])
	}
	want := []string{"one: hit rate ≥ 29 holds", "one: hit rate, then ≥ 31", "one: mean TTFT ≤ 1.25 holds", "several: mean TTFT over that of one ≤ 1.15"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if f := Judge("z", shown().Tables[0], shown().Tables[1]); f != nil {
		t.Errorf("a policy that was not replayed is judged: %v", f)
	}
	if f := Judge("b", shown().Tables[0], shown().Tables[1]); len(f) != 3 {
		t.Errorf("several routers that were not replayed are judged: %v", f)
	}
}

func TestTablesHaveARowForEachPolicy(t *testing.T) {
	got := shown().Report().Text
	for _, want := range []string{
		"| one: mean TTFT | 1 s | ≤ 1.25 | yes |", "| several: mean TTFT over that of one | 1.2 × | ≤ 1.15 | no |",
		"One router:\n\n| policy |", "| **a** | 30.0 % | 1.00 s | 2.00 s | 3.00 s | 1.05 | 1.50 |", "| b | 35.0 % | 2.00 s |", "| c | 10.0 % | 2000 s |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestAPolicyThatTakesForEverHasNoBar(t *testing.T) {
	got := shown().Report().Picture
	for text, want := range map[string]int{"hit rate: c": 1, "mean TTFT: c": 0, "mean TTFT: b": 1, "<line": 4} {
		if n := strings.Count(got, text); n != want {
			t.Errorf("%q is there %d times, want %d", text, n, want)
		}
	}
}

func TestMachinesAreToldWhatHasAGoalAndThenEverything(t *testing.T) {
	f := shown().figures()
	if len(f) != 4+4*6 || f[0].Goal != "≥ 29" || f[4].Name != "one: a: hit rate" || f[4].Value != 30 {
		t.Errorf("%+v", f)
	}
}
