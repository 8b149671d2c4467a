package repo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheRepositoryIsFoundFromAnyFolderInIt(t *testing.T) {
	root, err := Root(".")
	if err != nil {
		t.Fatal(err)
	}
	if version, err := Version(root); err != nil || version == "" {
		t.Errorf("version %q, %v", version, err)
	}
	if _, err := Root(os.TempDir()); err == nil || !strings.Contains(err.Error(), "inside a clone") {
		t.Errorf("outside of it: error %v", err)
	}
}

func TestAVersionMustBeATag(t *testing.T) {
	for name, c := range map[string]struct{ chart, want string }{
		"a release is":                 {"appVersion: 1.2.3", "1.2.3"},
		"a build's metadata is not":    {"appVersion: 1.2.3+dirty", ""},
		"a chart without one has none": {"name: x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "charts", "ringfleet")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte(c.chart), 0o644); err != nil {
				t.Fatal(err)
			}
			if got, err := Version(root); got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%q, %v; expected %q", got, err, c.want)
			}
		})
	}
}
