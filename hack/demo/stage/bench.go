package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringfleet/ringfleet/hack/demo/phase"
)

// Bench brings up a cluster with the installed chart, runs benches of test/bench against it, all when names is empty,
// prints what stands in bench/out, and removes the cluster unless keep is set. A bench that can't measure makes the run
// fail, but the others still run.
func (d *Demo) Bench(ctx context.Context, keep bool, names []string) error {
	names, err := d.benches(names)
	if err != nil {
		return err
	}
	var broken []error
	var phases []phase.Phase
	for _, n := range names {
		phases = append(phases, phase.Phase{Name: "bench " + n, Run: func(ctx context.Context, out io.Writer) error {
			if err := d.run(ctx, out, "go", "run", "./test/bench/"+n); err != nil {
				fmt.Fprintf(out, "      %v\n", err)
				broken = append(broken, err)
			}
			return ctx.Err()
		}})
	}
	phases = append(phases, phase.Phase{Name: "print bench/out", Run: func(_ context.Context, out io.Writer) error {
		return errors.Join(append(broken, d.tables(out))...)
	}})
	return d.on(ctx, keep, phases)
}

// benches checks names, or finds all: the programs below test/bench.
func (d *Demo) benches(names []string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(d.Root, "test", "bench", "*", "main.go"))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, f := range files {
		all = append(all, filepath.Base(filepath.Dir(f)))
	}
	for _, n := range names {
		if !slices.Contains(all, n) {
			return nil, fmt.Errorf("there is no bench %s; choose from %s", n, strings.Join(all, ", "))
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	return names, nil
}

// tables prints every table in bench/out.
func (d *Demo) tables(out io.Writer) error {
	files, err := filepath.Glob(filepath.Join(d.Root, "bench", "out", "*.md"))
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "\n%s", text)
	}
	return nil
}
