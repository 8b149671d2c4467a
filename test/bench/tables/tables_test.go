package tables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
)

func head() bench.Head {
	return bench.Head{Bench: "some", Title: "Something", Machine: map[string]string{"cpus": "2", "cpu": "some", Load: "0.12"},
		Versions: map[string]string{}}
}

const intro = "What was beside it.\n"

var rows = []pairs.Row{
	pairs.AtMost("a", pairs.Series{1, 2, 4}, "×", 3),
	pairs.AtLeast("b", pairs.Series{0.5}, "×", 1),
	pairs.Plain("c", pairs.Series{123.4, 200}, "tokens/s"),
}

func TestTheTablesSayMedianSpreadPairsAndGoal(t *testing.T) {
	got := Of(head(), intro, rows, "page.md").Text
	for _, want := range []string{
		"Load average at the start: 0.12.\n" + intro,
		"| a | 2 × | 1 to 4 | 3 | 0.0 | ≤ 3 | yes |", "| b | 0.5 × |  | 1 | 0.0 | ≥ 1 | no |", "| c | 162 tokens/s | 123 to 200 | 2 | 0.0 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestThePictureShowsWhatHasAGoal(t *testing.T) {
	if n := strings.Count(Of(head(), intro, rows, "page.md").Picture, "<line"); n != 2 {
		t.Errorf("the picture has %d goals", n)
	}
}

func TestAHeadHasTheLoadThatTheMachineHad(t *testing.T) {
	h, load, err := Here("some", "Something")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%.2f", load); h.Machine[Load] != want || h.Bench != "some" {
		t.Errorf("the load was %s, the head has %q", want, h.Machine[Load])
	}
}
