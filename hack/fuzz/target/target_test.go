package target

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

var everything = regexp.MustCompile("")

// tree makes a module of one package.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.26\n",
		"a/a_test.go": `package a

import "testing"

func FuzzSound(f *testing.F) { f.Fuzz(func(t *testing.T, b []byte) {}) }

func FuzzBroken(f *testing.F) {
	f.Add(1)
	f.Fuzz(func(t *testing.T, n int) {
		if n != 1 {
			t.Error("not one")
		}
	})
}

func FuzzBadSeed(f *testing.F) { f.Fuzz(func(t *testing.T, n int) { t.Error("never") }) }

type x struct{}

func (x) FuzzMethod(f *testing.F) {}
`,
		"a/testdata/fuzz/FuzzBadSeed/five": "go test fuzz v1\nint(5)\n",
		"a/a.go":                           "package a\n\nimport \"testing\"\n\nfunc FuzzNoTest(f *testing.F) {}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTargetsAreFoundByTheirNameOrFolder(t *testing.T) {
	dir := tree(t)
	for only, want := range map[string]string{
		"":            "FuzzBadSeed FuzzBroken FuzzSound",
		"FuzzSound":   "FuzzSound",
		"^a$":         "FuzzBadSeed FuzzBroken FuzzSound",
		"FuzzMissing": "",
	} {
		targets, err := Find(dir, regexp.MustCompile(only))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range targets {
			if x.Dir != "a" {
				t.Errorf("%s is in %q", x.Name, x.Dir)
			}
			got = append(got, x.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q finds %v, want %s", only, got, want)
		}
	}
}

func TestARunSaysWhatItTriedAndWhichInputBroke(t *testing.T) {
	dir := tree(t)
	run := func(name string) (Result, error) {
		return Run(t.Context(), Settings{Root: dir, Time: "200x", Parallel: 1}, Target{Dir: "a", Name: name})
	}
	if r, err := run("FuzzSound"); err != nil || r.Executions < 200 || r.Found != "" {
		t.Errorf("a sound target: %d executions, broken by %q, %v\n%s", r.Executions, r.Found, err, r.Output)
	}
	r, err := run("FuzzBroken")
	if err == nil || !strings.HasPrefix(r.Found, "a/testdata/fuzz/FuzzBroken/") || !strings.Contains(err.Error(), r.Found) {
		t.Fatalf("a target that an input breaks: broken by %q, %v\n%s", r.Found, err, r.Output)
	}
	if _, err := os.Stat(filepath.Join(dir, r.Found)); err != nil {
		t.Error(err)
	}
	if r, err := run("FuzzBadSeed"); err == nil || r.Found != "a/testdata/fuzz/FuzzBadSeed/five" {
		t.Errorf("a target that a file of its corpus breaks: broken by %q, %v\n%s", r.Found, err, r.Output)
	}
	if r, err := run("FuzzMissing"); err != nil || r.Executions != 0 {
		t.Errorf("a target that is not there: %d executions, %v", r.Executions, err)
	}
}

func TestACancelledRunEndsWithItsReason(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Settings{Root: tree(t), Time: "1h", Parallel: 1}, Target{Dir: "a", Name: "FuzzSound"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestEveryTargetIsInTheTable compares docs/testing.md with the tree.
func TestEveryTargetIsInTheTable(t *testing.T) {
	targets, err := Find(root, everything)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(Fuzz\\w+)` \\| `([^`]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, m[2]+" "+m[1])
	}
	var there []string
	for _, x := range targets {
		there = append(there, x.Dir+" "+x.Name)
	}
	for _, x := range there {
		if !slices.Contains(listed, x) {
			t.Errorf("docs/testing.md does not say what %s holds", x)
		}
	}
	for _, x := range listed {
		if !slices.Contains(there, x) {
			t.Errorf("docs/testing.md names %s, which is not there", x)
		}
	}
	if len(there) < 30 {
		t.Errorf("only %d targets are found", len(there))
	}
}
