// Package measure runs the llama.cpp driver on this machine's GPU and says what it saw: figures, and what is wrong. It
// decides what is measured and how often; where the libraries come from is package pack's concern. Every part ends by
// itself, and none begins when the time is over, so that what was measured is always told.
package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/api/modelfile/ggufgen"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/llamacpp"
)

// Options say what is measured.
type Options struct {
	Out io.Writer
	// JSON is a file that gets the figures too; "" is none.
	JSON string
	// Dir holds the libraries. The model and the driver's cache of kernels are written there.
	Dir string
	// CPU measures that instead, with a small model.
	CPU bool
	// FirstLoad only loads the library with a small model, and prints how many milliseconds that took. Again is the command
	// line of a process that does so.
	FirstLoad bool
	Again     []string
	// Limit is when no further part begins.
	Limit time.Duration
}

// scale is how much is measured.
type scale struct {
	model            ggufgen.Model
	cells, sequences int
	streams          []int // that decode together
	idle             []int // cells that only lie there
	prefix           int   // tokens that are shared
	steps            int   // that are timed
}

// template is one for chats, of which there are none here: without any the driver warns.
const template = "{{ messages }}"

var (
	small = scale{model: ggufgen.Model{Architecture: "llama", Name: "Small", Layers: 2, Embedding: 128, FeedForward: 256, Heads: 2, KVHeads: 1,
		Context: 65536, Vocab: 512, Type: "Q8_0", Seed: 1, Template: template},
		cells: 2048, sequences: 64, streams: []int{1, 16}, idle: []int{0, 1024}, prefix: 128, steps: 4}
	// large has 0.4 billion parameters in the proportions of Qwen2.5-0.5B.
	large = scale{model: ggufgen.Model{Architecture: "llama", Name: "Half a billion", Layers: 24, Embedding: 896, FeedForward: 4864, Heads: 14,
		KVHeads: 2, Context: 65536, Vocab: 32000, Type: "Q8_0", Seed: 1, Template: template},
		cells: 40960, sequences: 128, streams: []int{1, 16, 64}, idle: []int{0, 8192, 32768}, prefix: 1024, steps: 32}
)

// Run measures and reports. An error that is llamacpp.ErrNoGPU says what is missing.
func Run(ctx context.Context, o Options) error {
	r := &report{out: o.Out, json: o.JSON, start: time.Now()}
	of := large
	if o.CPU {
		of = small
	}
	// Kernels that the driver compiles are kept here, so that their size and a second start can be measured.
	kernels := filepath.Join(o.Dir, "kernels")
	if !o.FirstLoad {
		if err := os.Setenv("CUDA_CACHE_PATH", kernels); err != nil {
			return err
		}
	}
	first := time.Now()
	l, err := o.open(small.model, "small.gguf", small.cells, 4)
	if err != nil {
		return err
	}
	took := time.Since(first)
	if err := l.Executor.Close(); err != nil {
		return err
	}
	if o.FirstLoad {
		_, err := fmt.Fprintln(o.Out, took.Milliseconds())
		return err
	}
	r.say("the driver computes what the golden conversation wants, on %s", l.Info.Caps.Device)
	describe(ctx, r)
	r.figure("first load: library, kernels and a small model", ms(took), "kernels compiled by the driver take "+megabytes(kernels))
	parts := []part{
		{"load again, with the kernels compiled", func(ctx context.Context) error { return again(ctx, r, o) }},
		{"measure a model", func(ctx context.Context) error { return o.model(ctx, r, of) }},
	}
	return r.run(ctx, o.Limit, parts)
}

// open generates a model and opens it.
func (o *Options) open(m ggufgen.Model, name string, cells, sequences int) (*engine.Loaded, error) {
	path := filepath.Join(o.Dir, name)
	if err := m.WriteFile(path); err != nil {
		return nil, err
	}
	gpu := llamacpp.GPU{Require: true, Layers: llamacpp.AllLayers}
	if o.CPU {
		gpu = llamacpp.GPU{}
	}
	return llamacpp.Open(llamacpp.Options{LibraryDir: o.Dir, WeightsPath: path, ContextTokens: cells, MaxSequences: sequences,
		KVType: llamacpp.F16, Threads: 1, GPU: gpu, Logger: slog.New(slog.NewTextHandler(o.Out, &slog.HandlerOptions{Level: slog.LevelWarn}))})
}

// again loads the library in another process, which finds the kernels compiled.
func again(ctx context.Context, r *report, o Options) error {
	c := exec.CommandContext(ctx, o.Again[0], o.Again[1:]...)
	c.Env = os.Environ() // with the cache of kernels
	text, err := c.Output()
	if err != nil {
		return fmt.Errorf("load in another process: %w", err)
	}
	lines := strings.Fields(string(text))
	n, err := strconv.ParseFloat(lines[len(lines)-1], 64)
	if err != nil {
		return fmt.Errorf("load in another process: it printed %q", text)
	}
	r.figure("second load, in another process", n, "")
	return nil
}

// model measures a model of that scale.
func (o *Options) model(ctx context.Context, r *report, of scale) (err error) {
	start := time.Now()
	l, err := o.open(of.model, "model.gguf", of.cells, of.sequences)
	if err != nil {
		return err
	}
	r.figure("generate and load a model", ms(time.Since(start)), l.Info.Model+", "+megabytes(filepath.Join(o.Dir, "model.gguf")))
	defer func() { err = errors.Join(err, l.Executor.Close()) }()
	b := &bench{x: l.Executor, r: r, of: of, vocab: l.Info.Vocab, lens: make([]int, of.sequences)}
	for _, p := range []part{
		{"compute a prompt", b.prompt}, {"decode", b.decode}, {"share a prefix", b.share}, {"carry idle cells", b.idle}, {"abort a step", b.abort},
	} {
		if err := r.one(ctx, o.Limit, p); err != nil {
			return err
		}
	}
	return nil
}

// describe adds what the system says of the GPU.
func describe(ctx context.Context, r *report) {
	text, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=name,compute_cap,driver_version,memory.total,memory.used", "--format=csv,noheader").Output()
	if err == nil {
		r.say("nvidia-smi: %s", strings.TrimSpace(string(text)))
	}
}

// megabytes is the size of a file, or of all in a folder.
func megabytes(path string) string {
	var n int64
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what isn't there takes nothing
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
