// Command sampling measures what a choice of a token costs: our sampler and llama.cpp's own chain of samplers on the same
// logits in one thread, in pairs that take turns. The logits are those of the demo model at each token of a text. It
// fetches the library and the model as `go run ./hack/image` does, writes bench/out/sampling.*, and fails only when it
// can't measure.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/hack/image/repo"
	"github.com/ringfleet/ringfleet/hack/program"
	"github.com/ringfleet/ringfleet/test/bench"
)

func main() { os.Exit(program.Run("sampling", run)) }

func run(ctx context.Context, _ []string, out io.Writer) error {
	root, err := repo.Root(".")
	if err != nil {
		return err
	}
	libs, weights, err := fetched(ctx, out)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // its CPU time is what is measured
	m, err := open(libs, weights)
	if err != nil {
		return err
	}
	defer m.close()
	figures, err := m.measure(out)
	if err != nil {
		return err
	}
	head := bench.Here("sampling", fmt.Sprintf("CPU time of a choice, ours over llama.cpp's, medians of %d pairs", pairs))
	head.Versions["llama.cpp"] = fetch.LlamaVersion
	return bench.Of(head, figures).Keep(root, false)
}

// fetched returns the library's folder and the model's file.
func fetched(ctx context.Context, out io.Writer) (libs, weights string, err error) {
	cache, err := fetch.New(out)
	if err != nil {
		return "", "", err
	}
	p, err := fetch.Libraries()
	if err != nil {
		return "", "", err
	}
	if libs, err = cache.Get(ctx, p); err != nil {
		return "", "", err
	}
	dir, err := cache.Get(ctx, fetch.Weights())
	return libs, filepath.Join(dir, fetch.WeightsFile), err
}
