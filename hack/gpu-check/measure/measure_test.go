package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// dir holds links to the libraries.
func dir(t *testing.T) string {
	t.Helper()
	libs := os.Getenv("RINGFLEET_TEST_LIBS")
	if libs == "" {
		t.Fatal("RINGFLEET_TEST_LIBS is not set: run make unit, or export RINGFLEET_TEST_LIBS=$(go run ./hack/image libs)")
	}
	found, err := filepath.Glob(filepath.Join(libs, "*.so"))
	if err != nil || len(found) == 0 {
		t.Fatal(libs, err)
	}
	to := t.TempDir()
	for _, f := range found {
		if err := os.Symlink(f, filepath.Join(to, filepath.Base(f))); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func TestASmallModelIsMeasured(t *testing.T) {
	var out bytes.Buffer
	o := Options{Out: &out, CPU: true, Dir: dir(t), JSON: filepath.Join(t.TempDir(), "figures.json"), Limit: time.Hour,
		Again: []string{"echo", "not a figure", "17"}} // stands for another process
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err, out.String())
	}
	text, err := os.ReadFile(o.JSON)
	if err != nil {
		t.Fatal(err)
	}
	var figures []figure
	if err := json.Unmarshal(text, &figures); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range figures {
		names = append(names, f.Name)
		if f.Milliseconds <= 0 || !strings.Contains(out.String(), f.Name) {
			t.Errorf("%+v", f)
		}
	}
	for _, want := range []string{"first load", "second load", "first prompt", "step of 1 streams", "step of 16 streams", "fork a prefix",
		"step of 16 streams beside 1024 idle cells", "a step whose context ends in its middle"} {
		if !strings.Contains(strings.Join(names, "\n"), want) {
			t.Errorf("there is no figure %q: %v", want, names)
		}
	}
	if !strings.Contains(out.String(), "4096 cells where there are 2048") {
		t.Errorf("the forks are said to be\n%s", out.String())
	}
}

func TestNoPartBeginsWhenTheTimeIsOver(t *testing.T) {
	var out bytes.Buffer
	r := &report{out: &out, start: time.Now().Add(-time.Minute)}
	ran := false
	parts := []part{{"the rest", func(context.Context) error { ran = true; return nil }}}
	if err := r.run(t.Context(), time.Second, parts); err != nil || ran || !strings.Contains(out.String(), "left out, after 60 s: the rest") {
		t.Errorf("%v, it ran: %t, %s", err, ran, out.String())
	}
}

func TestLogitsThatDifferAreAFailure(t *testing.T) {
	for want, b := range map[float64][]float32{0: {3, 4}, 1: {0, 0}, 0.2: {3, 5}} {
		if got := distance(b, []float32{3, 4}); got < want-1e-6 || got > want+1e-6 {
			t.Errorf("%v is %g off", b, got)
		}
	}
}
