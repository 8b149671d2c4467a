// Package gobench runs benchmarks of the tree's packages by the go tool, and reads what they print. Whether a figure is good
// is left to who asks.
package gobench

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// Nanos is the unit of the time that each round takes.
const Nanos = "ns/op"

// Run runs the benchmarks of a package that a pattern names, each count times, and returns what they print. root is the
// tree's.
func Run(ctx context.Context, root, folder, pattern string, count int) (string, error) {
	return process.Run(ctx, process.Spec{Path: "go", Dir: root,
		Args: []string{"test", "-run=^$", "-bench=" + pattern, "-count=" + strconv.Itoa(count), folder}})
}

// Read returns what a benchmark's lines say in a unit, once for each time that it ran.
func Read(text, name, unit string) (pairs.Series, error) {
	var out pairs.Series
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != name && !strings.HasPrefix(f[0], name+"-") {
			continue
		}
		for i := 2; i+1 < len(f); i += 2 {
			if f[i+1] != unit {
				continue
			}
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return nil, fmt.Errorf("read %q of go test: %w", strings.TrimSpace(line), err)
			}
			out = append(out, v)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("go test printed no %s of %s", unit, name)
	}
	return out, nil
}
