// Package memoryplan says how much memory a model takes and whether it fits: weights, KV cache, the buffers of the
// computation and what the runtime needs for itself, on each GPU or in a container without one. It decides how many GPUs and
// how many sequences of what length go together, and what to change where they don't. It asks no device and reads no file:
// the shape of a model is modelfile's, the size of a GPU is worker/gpu's or the caller's.
package memoryplan

import (
	"fmt"

	"github.com/ringfleet/ringfleet/api/modelfile"
)

// Engine is what runs the model, which decides how the memory is laid out.
type Engine string

// The engines.
const (
	// LlamaCpp shares the layers out among the GPUs and keeps the KV cache for sliding windows in full, as the worker's
	// llamacpp driver sets it up.
	LlamaCpp Engine = "llamacpp"
	// VLLM shares each layer out among the GPUs (tensor parallel). SGLang and others that do so are alike.
	VLLM Engine = "vllm"
)

// KVType is the type of the numbers in the KV cache.
type KVType string

// The types: F16 (or BF16) of two bytes, Q8 of llama.cpp (Q8_0: 34 bytes for 32 numbers), FP8 of vLLM.
const (
	F16 KVType = "F16"
	Q8  KVType = "Q8"
	FP8 KVType = "FP8"
)

// Options say what is asked of the memory. The zero value of a field that says so means its default.
type Options struct {
	Engine Engine
	// GPUs is how many share the model; with 0 it runs on the CPU.
	GPUs int
	// MemoryBytes is the size of each GPU's memory, or of the container's without a GPU.
	MemoryBytes uint64
	// ContextTokens is the length of each sequence, prompt and output together, and Sequences is how many there are at a time.
	ContextTokens, Sequences int
	// Shared: ContextTokens is the room of the cache, which all sequences share, rather than the length of each.
	Shared bool
	KV     KVType
	// StepTokens is how many tokens are computed at a time. 0: 512 for llama.cpp on a GPU and 128 on a CPU; 8192 for vLLM on
	// a GPU of 70 GiB and more, else 2048.
	StepTokens int
	// RuntimeBytes is what the process takes on each GPU beside the model, or on the CPU in all. 0: see Runtime.
	RuntimeBytes uint64
	// UsePercent of the memory are planned and the rest is left free. 0: 90.
	UsePercent int
}

// Parts is what the memory of one device, or of several, is used for, in bytes.
type Parts struct {
	// Weights of the model.
	Weights uint64 `json:"weights"`
	// KV is the cache of keys and values.
	KV uint64 `json:"kv"`
	// Compute is for the numbers between the layers, the attention's mask and the logits of one step.
	Compute uint64 `json:"compute"`
	// Runtime is for the process: the CUDA context, kernels, workspaces.
	Runtime uint64 `json:"runtime"`
}

// Total is the sum of the parts.
func (p Parts) Total() uint64 { return p.Weights + p.KV + p.Compute + p.Runtime }

// Plan is how a model lies in memory.
type Plan struct {
	// Options are those that were asked for, with the defaults filled in.
	Options Options
	// Devices has an entry for each GPU, or one for the container's memory.
	Devices []Parts
	// Fullest is the device that has most.
	Fullest int
	// Budget is how many bytes of each device are planned, and Fits whether no device needs more.
	Budget uint64
	Fits   bool
	// HostBytes is what the GPUs' process keeps in the container's memory for the model. Without a GPU it is 0.
	HostBytes uint64
	// TokenBytes is what one more token of one sequence takes of the KV cache over all devices.
	TokenBytes uint64
	// MostSequences of the asked length that fit; 0: none.
	MostSequences int
	// Ways are single changes that make it fit, the cheapest first. There are none where it fits.
	Ways []Way
}

// Change is what a Way changes.
type Change string

// The changes.
const (
	FewerSequences Change = "FewerSequences"
	ShorterContext Change = "ShorterContext"
	SmallerKV      Change = "SmallerKV"
	MoreGPUs       Change = "MoreGPUs"
	SmallerWeights Change = "SmallerWeights"
)

// Way is one change that makes a plan fit.
type Way struct {
	Change Change `json:"change"`
	// Value is the number of sequences, tokens or GPUs, or the most bytes of weights.
	Value uint64 `json:"value,omitempty"`
	// KV is the type for SmallerKV.
	KV KVType `json:"kv,omitempty"`
}

// IdleSequences is how many sequences the worker's llama.cpp has beside those that run, unless it is told otherwise: they are
// kept for the reuse of their prefix.
const IdleSequences = 16

// Limits of what is asked for. llama.cpp has 256 sequences, and its driver as many tokens in its cache as maxCells.
const (
	MaxGPUs      = 64
	maxSequences = 1 << 14
	llamaCppMost = 256
	maxCells     = 4 << 20
	maxContext   = 1 << 28
	maxMemory    = 1 << 50
	maxStep      = 1 << 20
)

const (
	mib            = 1 << 20
	defaultPercent = 90
)

// Runtime is the default of Options.RuntimeBytes: 1 GiB a GPU for llama.cpp, 3 GiB for vLLM with its CUDA graphs and NCCL,
// and 256 MiB for a process on the CPU. These are allowances: they depend on driver and library more than on the model.
func Runtime(e Engine, gpus int) uint64 {
	switch {
	case gpus == 0:
		return 256 * mib
	case e == VLLM:
		return 3 << 30
	}
	return 1 << 30
}

// New plans s. The error says which option can't be.
func New(s *modelfile.Shape, o Options) (*Plan, error) {
	o = o.complete(s)
	if err := o.check(s); err != nil {
		return nil, err
	}
	p := lay(s, o)
	p.MostSequences = mostSequences(s, o)
	if !p.Fits {
		p.Ways = ways(s, o, p)
	}
	return p, nil
}

// complete fills in the defaults.
func (o Options) complete(s *modelfile.Shape) Options {
	if o.UsePercent == 0 {
		o.UsePercent = defaultPercent
	}
	if o.KV == "" {
		o.KV = F16
	}
	if o.ContextTokens == 0 {
		o.ContextTokens = s.Context
	}
	if o.RuntimeBytes == 0 {
		o.RuntimeBytes = Runtime(o.Engine, o.GPUs)
	}
	if o.StepTokens == 0 {
		switch {
		case o.Engine == LlamaCpp && o.GPUs == 0:
			o.StepTokens = 128
		case o.Engine == LlamaCpp:
			o.StepTokens = 512
		case o.GPUs > 0 && o.MemoryBytes >= 70<<30:
			o.StepTokens = 8192
		default:
			o.StepTokens = 2048
		}
	}
	return o
}

func (o Options) check(s *modelfile.Shape) error {
	for _, c := range []struct {
		what        string
		n           uint64
		least, most int
	}{
		{"GPUs", uint64(o.GPUs), 0, MaxGPUs}, {"the memory", o.MemoryBytes, mib, maxMemory},
		{"the context", uint64(o.ContextTokens), 1, maxContext}, {"sequences", uint64(o.Sequences), 1, maxSequences},
		{"tokens of a step", uint64(o.StepTokens), 1, maxStep}, {"the used percentage", uint64(o.UsePercent), 1, 100},
	} {
		if c.n < uint64(c.least) || c.n > uint64(c.most) {
			return fmt.Errorf("plan memory: %s %d, expected %d to %d", c.what, int64(c.n), c.least, c.most)
		}
	}
	switch {
	case o.Engine != LlamaCpp && o.Engine != VLLM:
		return fmt.Errorf("plan memory: the engine is %q, expected %s or %s", o.Engine, LlamaCpp, VLLM)
	case o.Sequences > o.limit():
		return fmt.Errorf("plan memory: %d sequences of %d tokens, expected at most %d: llama.cpp has %d sequences, and its driver %d tokens in all",
			o.Sequences, o.ContextTokens, o.limit(), llamaCppMost, maxCells)
	case o.bytes(1) == 0:
		return fmt.Errorf("plan memory: %s has no KV cache of type %q", o.Engine, o.KV)
	case !shares(s, o):
		return fmt.Errorf("plan memory: %d attention heads can't be shared out among %d GPUs, expected %s", s.Heads, o.GPUs, sharers(s))
	}
	return nil
}
