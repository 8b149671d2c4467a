package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/gobench"
	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

const (
	step    = "BenchmarkStep/streams=16"
	perStep = "cpu-µs/op"
)

// cost runs the scheduler's own benchmark of a step, and the bench of sampling.
func (r *Rig) cost(ctx context.Context) ([]pairs.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	text, err := gobench.Run(ctx, r.Root, "./worker/scheduler", "^BenchmarkStep$/^streams=16$", min(r.Pairs, 5))
	if err != nil {
		return nil, err
	}
	steps, err := gobench.Read(text, step, perStep)
	if err != nil {
		return nil, err
	}
	rows := []pairs.Row{pairs.AtMost("the scheduler's own cost of a step of 16 streams", steps, "µs", 20)}
	if _, err := r.goTool(ctx, "run", "./test/bench/sampling"); err != nil {
		return rows, err
	}
	file, err := os.ReadFile(filepath.Join(r.Root, "bench", "out", "sampling.json"))
	if err != nil {
		return rows, err
	}
	ratio, err := worst(file)
	if err != nil {
		return rows, err
	}
	return append(rows, pairs.AtMost("the choice of a token, worst setting: worker / llama.cpp", pairs.Series{ratio}, "×", 1)), nil
}

func (r *Rig) goTool(ctx context.Context, args ...string) (string, error) {
	return process.Run(ctx, process.Spec{Path: "go", Args: args, Dir: r.Root})
}

// worst returns the greatest of the figures of the bench of sampling that have a goal.
func worst(file []byte) (float64, error) {
	var all struct{ Figures []bench.Figure }
	if err := json.Unmarshal(file, &all); err != nil {
		return 0, fmt.Errorf("read the figures of the bench of sampling: %w", err)
	}
	greatest := 0.0
	for _, f := range all.Figures {
		if f.Goal != "" {
			greatest = max(greatest, f.Value)
		}
	}
	if greatest == 0 {
		return 0, errors.New("the bench of sampling has no figure with a goal")
	}
	return greatest, nil
}
