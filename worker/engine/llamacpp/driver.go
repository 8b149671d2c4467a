// Package llamacpp runs models by llama.cpp's own library within the process: an engine.Executor and an engine.Vocabulary
// over libllama, called without a C binding of ours. It decides how the library is set up and nothing about requests: what
// runs in a step is package scheduler's decision. A failed assertion of the C library ends the process; so everything that
// it would assert is checked here first, and the worker is a process of its own.
package llamacpp

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/hybridgroup/yzma/pkg/llama"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/weights"
)

// KVType is the type of the numbers in the KV cache.
type KVType string

// The types of KV cache. Q8 takes about half of the memory of F16, F32 twice as much.
const (
	F32 KVType = "F32"
	F16 KVType = "F16"
	Q8  KVType = "Q8"
)

// kvTypes are the library's types, which store block numbers in bytes bytes.
var kvTypes = map[KVType]struct {
	number       llama.GGMLType
	block, bytes int
}{F32: {llama.GGMLTypeF32, 1, 4}, F16: {llama.GGMLTypeF16, 1, 2}, Q8: {llama.GGMLTypeQ8_0, 32, 34}}

const (
	// maxSequences is the library's own limit (LLAMA_MAX_SEQ).
	maxSequences = 256
	// minContext is the smallest context; the library works in units of 256 cells.
	minContext = 256
	// maxContext bounds positions and sizes well within 32 bits.
	maxContext = 4 << 20
	// stepTokens is the most tokens of one step (n_batch).
	stepTokens = 512
)

// Options say what is loaded and how. All but FlashAttention, GPU, Clock, Progress and Logger are needed.
type Options struct {
	// LibraryDir holds libllama.so, libggml.so, libggml-base.so and the libggml-*.so of the devices. One process loads one
	// folder.
	LibraryDir string
	// WeightsPath is a GGUF file.
	WeightsPath string
	// ContextTokens is the number of KV cells, shared by all sequences, at least 256. The library rounds it up to a
	// multiple of 256.
	ContextTokens int
	// MaxSequences is the number of sequences, at most 256.
	MaxSequences int
	// KVType is F32, F16 or Q8.
	KVType KVType
	// FlashAttention is auto, on or off; empty is auto. A KV cache of Q8 needs it.
	FlashAttention Attention
	// Threads that compute. More than the free cores makes everything many times slower: the library's threads spin
	// while they wait for each other.
	Threads int
	// GPU says what is on GPUs; the zero value is nothing.
	GPU GPU
	// Logger gets the library's lines. The last Open's logger gets those of the whole process.
	Logger *slog.Logger
	// Clock times the last of the steps that warm the model up; nil: the machine's.
	Clock clock.PassiveClock
	// Progress gets every new percentage of the load, from 0 to 100. It must return soon.
	Progress func(percent int)
}

func (o *Options) validate() error {
	if err := o.GPU.validate(); err != nil {
		return fmt.Errorf("open llama.cpp: %w", err)
	}
	_, known := attentions[o.FlashAttention]
	switch {
	case !known:
		return fmt.Errorf("open llama.cpp: flash attention is %q, expected %s, %s or %s", o.FlashAttention, FlashAuto, FlashOn, FlashOff)
	case o.KVType == Q8 && o.FlashAttention == FlashOff:
		return fmt.Errorf("open llama.cpp: a KV cache of %s needs flash attention, which is %s", o.KVType, o.FlashAttention)
	case o.LibraryDir == "":
		return errors.New("open llama.cpp: the library folder is empty")
	case o.ContextTokens < minContext || o.ContextTokens > maxContext:
		return fmt.Errorf("open llama.cpp: context tokens are %d, expected %d to %d", o.ContextTokens, minContext, maxContext)
	case o.MaxSequences < 1 || o.MaxSequences > maxSequences:
		return fmt.Errorf("open llama.cpp: sequences are %d, expected 1 to %d", o.MaxSequences, maxSequences)
	case kvTypes[o.KVType].bytes == 0:
		return fmt.Errorf("open llama.cpp: the KV cache type is %q, expected %s, %s or %s", o.KVType, F32, F16, Q8)
	case o.Threads < 1:
		return fmt.Errorf("open llama.cpp: threads are %d, expected at least 1", o.Threads)
	}
	return nil
}

// opening serialises Open: the library reports progress and lines of a load to one place in the process.
var opening sync.Mutex

// Open loads the library, once in a process, and the model, and runs some steps so that the first request finds everything
// warm. An error about the weights is an *engine.LoadError; others are about the options or the library. The weights pass
// weights.Inspect first: the library never opens a file that it refuses. Closing the executor frees the model and ends the
// vocabulary too.
func Open(o Options) (*engine.Loaded, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	header, err := weights.Inspect(o.WeightsPath)
	if err != nil {
		return nil, err
	}
	opening.Lock()
	defer opening.Unlock()
	lib, err := load(o.LibraryDir, o.Logger)
	if err != nil {
		return nil, err
	}
	if _, err := lib.findGPUs(&o.GPU); err != nil {
		return nil, err
	}
	if err := lib.check(&o); err != nil {
		return nil, err
	}
	x, m, err := lib.open(&o, header)
	if err != nil {
		return nil, err
	}
	v := newVocabulary(lib, m.handle, m.mostTokens(&o), o.Logger)
	x.onClose = v.close
	x.caps.Tools, x.caps.JSONObject = v.template.calls(), true
	took, err := x.warm(warmSteps(m.onGPU, &x.caps), o.Clock)
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	giveBack(o.WeightsPath)
	info := engine.Info{Model: m.description(header.Name), ContextTokens: m.mostTokens(&o), Vocab: x.caps.Vocab, Caps: x.caps}
	return &engine.Loaded{Executor: x, Vocabulary: v, Splitter: v.template.splitters(), Info: info, Warm: took}, nil
}

// open loads a model and makes its executor.
func (l *library) open(o *Options, header *modelfile.GGUF) (*executor, *model, error) {
	m, err := l.openModel(o, header)
	if err != nil {
		return nil, nil, err
	}
	context, abort, err := l.openContext(o, m)
	if err != nil {
		_ = llama.ModelFree(m.handle)
		return nil, nil, err
	}
	return newExecutor(o, l, m, context, abort), m, nil
}
