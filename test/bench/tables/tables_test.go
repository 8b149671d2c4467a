package tables

import (
	"encoding/json"
	"os"
	"path/filepath"
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
	got := Markdown(head(), intro, rows)
	for _, want := range []string{
		"Load average at the start: 0.12.\n" + intro,
		"| a | 2 × | 1 to 4 | 3 | 0.0 | ≤ 3 | yes |", "| b | 0.5 × |  | 1 | 0.0 | ≥ 1 | no |", "| c | 162 tokens/s | 123 to 200 | 2 | 0.0 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestThreeFilesAreWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	if err := Write(dir, head(), intro, rows); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "some.json"))
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Bench   string
		Figures []struct {
			Name, Goal      string
			Value           float64
			Holds           bool
			Least, Greatest float64
		}
	}
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if len(read.Figures) != 3 || read.Bench != "some" || read.Figures[0].Value != 2 || !read.Figures[0].Holds || read.Figures[0].Greatest != 4 {
		t.Errorf("%+v", read)
	}
	picture, err := os.ReadFile(filepath.Join(dir, "some.svg"))
	if err != nil || strings.Count(string(picture), "<line") != 2 {
		t.Errorf("the picture has %d goals, %v", strings.Count(string(picture), "<line"), err)
	}
}

func TestAPageKeepsWhatIsAroundTheTables(t *testing.T) {
	const begin, end = "<!-- mark -->\n", "<!-- /mark -->"
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("before\n"+begin+"old\n"+end+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Publish(page, "mark", head(), intro, rows); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if want := "before\n" + begin + "![What has a goal](mark.svg)\n\n" + Markdown(head(), intro, rows) + end + "\nafter\n"; string(text) != want {
		t.Errorf("%s", text)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(page), "mark.svg")); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", begin, "before " + end} {
		if _, err := Insert(bad, "mark", "tables"); err == nil {
			t.Errorf("%q has a place", bad)
		}
	}
}
