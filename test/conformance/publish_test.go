//go:build conformance

package conformance

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/worker/engine/enginetest"
)

var update = flag.Bool("update", false, "write the table into docs/engines.md")

const (
	page   = "../../docs/engines.md"
	output = "../../bench/out"
)

// publish writes the table into bench/out, with the columns of earlier runs for engines that were not run, and compares a
// whole one with the documentation's, which -update writes anew.
func publish(all []enginetest.Report) int {
	if err := write(with(all)); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		return 1
	}
	return 0
}

// engines is how many there are.
const engines = 3

// with adds the columns of earlier runs.
func with(all []enginetest.Report) []enginetest.Report {
	var old struct{ Engines []enginetest.Report }
	text, err := os.ReadFile(filepath.Join(output, "conformance.json"))
	if err == nil && json.Unmarshal(text, &old) == nil {
		for _, o := range old.Engines {
			if !slices.ContainsFunc(all, func(r enginetest.Report) bool { return r.Engine == o.Engine }) {
				all = append(all, o)
			}
		}
	}
	slices.SortFunc(all, func(a, b enginetest.Report) int { return strings.Compare(a.Engine, b.Engine) })
	return all
}

func write(all []enginetest.Report) error {
	table := enginetest.Markdown(all)
	fmt.Println(table)
	head := bench.Here("conformance", "What each engine does")
	text, err := json.MarshalIndent(map[string]any{"head": head, "engines": all}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(output, 0o755); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"conformance.json": append(text, '\n'), "conformance.md": []byte(table)} {
		if err := os.WriteFile(filepath.Join(output, name), content, 0o644); err != nil {
			return err
		}
	}
	if len(all) < engines {
		return nil
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	documented, err := bench.Insert(string(old), "conformance", table)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	switch {
	case documented == string(old):
		return nil
	case *update:
		return os.WriteFile(page, []byte(documented), 0o644)
	}
	return fmt.Errorf("%s has another table; look at the difference, and write this one by -update", page)
}
