package bench

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var figures = []Figure{
	AtMost("time <to> first token", 0.158, "s", 1.2),
	AtMost("time back to the ring", 3.1, "s", 2.5),
	AtLeast("tokens per second", 90, "tokens/s", 50),
	Plain("pod created to scheduled", 0.02, "s"),
}

func TestAReportHasAListForMachinesATableAndAPicture(t *testing.T) {
	dir := t.TempDir()
	if err := Write(dir, "example", "An example", figures); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "example.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Bench    string
		Machine  map[string]string
		Versions map[string]string
		Figures  []map[string]any
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Bench != "example" || got.Machine["cpus"] == "" || got.Versions["go"] == "" || len(got.Figures) != 4 {
		t.Errorf("unexpected report: %s", text)
	}
	if f := got.Figures[1]; f["holds"] != false || f["goal"] != "≤ 2.5" || f["value"] != 3.1 {
		t.Errorf("a broken goal is reported as %v", f)
	}
	for _, name := range []string{"example.md", "example.svg"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), "An example") {
			t.Errorf("%s: %v %s", name, err, text)
		}
	}
}

func TestAPictureIsWellFormedAndMarksWhatDoesNotHold(t *testing.T) {
	picture := SVG(Head{Title: "A & B"}, figures)
	d := xml.NewDecoder(strings.NewReader(picture))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Count(picture, "#b23a2f") != 1 {
		t.Errorf("want one red bar:\n%s", picture)
	}
}

func TestAFigureThatWasNotMeasuredMissesItsGoal(t *testing.T) {
	for _, f := range []Figure{AtMost("most", math.NaN(), "s", 1), AtLeast("least", math.NaN(), "s", 1)} {
		if f.Holds {
			t.Errorf("%s: nothing was measured, and the goal holds", f.Name)
		}
		text, err := json.Marshal(written(f))
		if err != nil || !strings.Contains(string(text), `"value":null`) || strings.Count(string(text), "value") != 1 {
			t.Errorf("%s: %s, %v", f.Name, text, err)
		}
	}
	h := Here("b", "t")
	all := []Figure{AtMost("most", math.NaN(), "s", 1)}
	if table, picture := Of(h, all).Text, SVG(h, all); !strings.Contains(table, "| not measured |") || strings.Contains(picture, "-") && strings.Contains(picture, `width="-`) {
		t.Errorf("table %s, picture %s", table, picture)
	}
}
