package stage

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// files writes empty files, or some with a text, below d's repository.
func files(t *testing.T, d *Demo, text string, paths ...string) {
	t.Helper()
	for _, p := range paths {
		p = filepath.Join(d.Root, p)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBenchesAreTheProgramsBelowTestBench(t *testing.T) {
	d := &Demo{Root: t.TempDir()}
	files(t, d, "package main\n", "test/bench/one/main.go", "test/bench/two/main.go", "test/bench/report.go", "test/bench/shared/shared.go")
	for name, c := range map[string]struct {
		names, want []string
		fail        string
	}{
		"all of them":             {nil, []string{"one", "two"}, ""},
		"those that are named":    {[]string{"two"}, []string{"two"}, ""},
		"one that does not exist": {[]string{"one", "shared"}, nil, "no bench shared; choose from one, two"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := d.benches(c.names)
			if !slices.Equal(got, c.want) || (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestEveryTableOfTheBenchesIsPrinted(t *testing.T) {
	d := &Demo{Root: t.TempDir()}
	files(t, d, "# A table\n", "bench/out/a.md", "bench/out/b.md", "bench/out/a.json")
	var out bytes.Buffer
	if err := d.tables(&out); err != nil || out.String() != "\n# A table\n\n# A table\n" {
		t.Errorf("%v, got %q", err, out.String())
	}
}
