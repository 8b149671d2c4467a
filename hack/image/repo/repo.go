// Package repo finds this repository's folder and its version. The version stands in one place, the chart's
// appVersion: images are tagged with it, programs stamped with it, and the chart asks for images by it.
package repo

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

const module = "module github.com/ringfleet/ringfleet"

// Root returns the repository's folder: dir or the nearest of its parents with our go.mod.
func Root(dir string) (string, error) {
	from, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for d := from; ; d = filepath.Dir(d) {
		text, err := os.ReadFile(filepath.Join(d, "go.mod"))
		if first, _, _ := strings.Cut(string(text), "\n"); err == nil && strings.TrimSpace(first) == module {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("find the repository: no go.mod of ours in %s or above; run this inside a clone", from)
		}
	}
}

var tag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// Version returns the appVersion of the chart of the repository at root.
func Version(root string) (string, error) {
	file := filepath.Join(root, "charts", "ringfleet", "Chart.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the version: %w", err)
	}
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(text, &chart); err != nil {
		return "", fmt.Errorf("read the version from %s: %w", file, err)
	}
	if !tag.MatchString(chart.AppVersion) {
		return "", fmt.Errorf("read the version from %s: appVersion %q cannot be an image's tag", file, chart.AppVersion)
	}
	return chart.AppVersion, nil
}
