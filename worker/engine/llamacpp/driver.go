// Package llamacpp runs models by llama.cpp's own library within the process: an engine.Executor and an engine.Vocabulary
// over libllama, called without a C binding of ours. It decides how the library is set up and nothing about requests: what
// runs in a step is package scheduler's decision. A failed assertion of the C library ends the process; so everything that
// it would assert is checked here first, and the worker is a process of its own.
package llamacpp

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/weights"
)

// KVType is the type of the numbers in the KV cache.
type KVType string

// The types of KV cache. Q8 takes about half of the memory of F16.
const (
	F16 KVType = "F16"
	Q8  KVType = "Q8"
)

const (
	// maxSequences is the library's own limit (LLAMA_MAX_SEQ).
	maxSequences = 256
	// minContext is the smallest context; the library works in units of 256 cells.
	minContext = 256
	// maxContext bounds positions and sizes well within 32 bits.
	maxContext = 4 << 20
	// stepTokens is the most tokens of one step (n_batch). microTokens is how many of them are computed at a time
	// (n_ubatch): on a CPU larger ones are no faster and take more memory, and an aborted step loses less with smaller ones.
	stepTokens, microTokens = 512, 128
)

// Options say what is loaded and how. All but Progress and Logger are needed.
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
	// KVType is F16 or Q8.
	KVType KVType
	// Threads that compute. More than the free cores makes everything many times slower: the library's threads spin
	// while they wait for each other.
	Threads int
	// Logger gets the library's lines. The last Open's logger gets those of the whole process.
	Logger *slog.Logger
	// Progress gets every new percentage of the load, from 0 to 100. It must return soon.
	Progress func(percent int)
}

func (o *Options) validate() error {
	switch {
	case o.LibraryDir == "":
		return errors.New("open llama.cpp: the library folder is empty")
	case o.ContextTokens < minContext || o.ContextTokens > maxContext:
		return fmt.Errorf("open llama.cpp: context tokens are %d, expected %d to %d", o.ContextTokens, minContext, maxContext)
	case o.MaxSequences < 1 || o.MaxSequences > maxSequences:
		return fmt.Errorf("open llama.cpp: sequences are %d, expected 1 to %d", o.MaxSequences, maxSequences)
	case o.KVType != F16 && o.KVType != Q8:
		return fmt.Errorf("open llama.cpp: the KV cache type is %q, expected %s or %s", o.KVType, F16, Q8)
	case o.Threads < 1:
		return fmt.Errorf("open llama.cpp: threads are %d, expected at least 1", o.Threads)
	}
	return nil
}

// opening serialises Open: the library reports progress and lines of a load to one place in the process.
var opening sync.Mutex

// Open loads the library, once in a process, and the model, and runs one step so that the first request finds everything
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
	model, err := lib.openModel(&o, header)
	if err != nil {
		return nil, err
	}
	context, abort, err := lib.openContext(&o, model)
	if err != nil {
		_ = llama.ModelFree(model)
		return nil, err
	}
	x := newExecutor(&o, model, context, abort)
	info := engine.Info{Model: description(model, header), ContextTokens: o.ContextTokens, Vocab: x.caps.Vocab, Caps: x.caps}
	if trained := int(llama.ModelNCtxTrain(model)); trained > 0 {
		info.ContextTokens = min(info.ContextTokens, trained)
	}
	v := newVocabulary(lib, model, info.ContextTokens, o.Logger)
	x.onClose = v.close
	if err := x.warm(); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return &engine.Loaded{Executor: x, Vocabulary: v, Info: info}, nil
}

// openModel loads the weights.
func (l *library) openModel(o *Options, header *weights.Header) (llama.Model, error) {
	params := llama.ModelDefaultParams()
	params.LoadMode = llama.LoadModeMmap
	params.ProgressCallback = l.progress
	l.report(o.Progress)
	defer l.report(nil)
	lines.reset()
	model, err := llama.ModelLoadFromFile(o.WeightsPath, params)
	if err != nil {
		return 0, unsupported(o.WeightsPath, "llama.cpp can't load it: "+lines.errors())
	}
	if why := unfit(model); why != "" {
		_ = llama.ModelFree(model)
		return 0, unsupported(o.WeightsPath, "its architecture "+header.Architecture+" "+why)
	}
	return model, nil
}

// unfit says why a model can't do what engine.Executor promises, or "".
func unfit(m llama.Model) string {
	switch {
	case llama.ModelHasEncoder(m) || !llama.ModelHasDecoder(m):
		return "is no decoder-only language model"
	case llama.ModelIsDiffusion(m):
		return "generates by diffusion, not token after token"
	case llama.ModelIsRecurrent(m), llama.ModelIsHybrid(m):
		return "keeps a recurrent state, which can be neither shared nor cut back"
	}
	return ""
}

// openContext makes the KV cache and the graph of a model. The abort of the result is read in every step.
func (l *library) openContext(o *Options, model llama.Model) (llama.Context, *abort, error) {
	a := &abort{}
	a.pin.Pin(a)
	params := llama.ContextDefaultParams()
	params.NCtx = uint32(o.ContextTokens)
	params.NBatch = uint32(min(stepTokens, o.ContextTokens))
	params.NUbatch = min(microTokens, params.NBatch)
	params.NSeqMax = uint32(o.MaxSequences)
	params.NOutputsMax = uint32(o.MaxSequences) // the library asserts that it is no less
	params.NThreads, params.NThreadsBatch = int32(o.Threads), int32(o.Threads)
	params.KVUnified = 1 // sequences share cells, so forks cost nothing
	params.SwaFull = 1   // or the library forgets cells that a later truncation or fork needs
	params.NoPerf = 1
	params.AbortCallback, params.AbortCallbackData = l.abort, a.address()
	if o.KVType == Q8 {
		params.TypeK, params.TypeV = llama.GGMLTypeQ8_0, llama.GGMLTypeQ8_0
	}
	lines.reset()
	context, err := llama.InitFromModel(model, params)
	if err != nil {
		a.pin.Unpin()
		return 0, nil, unsupported(o.WeightsPath, fmt.Sprintf("llama.cpp can't make a context of %d tokens and %d sequences "+
			"with a KV cache of %s: %s", o.ContextTokens, o.MaxSequences, o.KVType, lines.errors()))
	}
	return context, a, nil
}

func unsupported(path, why string) error {
	return &engine.LoadError{Reason: weights.Unsupported, Message: fmt.Sprintf("the weights file %s is sound, but %s", path, why)}
}

// description is the model as the library and the file name it.
func description(m llama.Model, h *weights.Header) string {
	d := llama.ModelDesc(m)
	if h.Name != "" {
		d = h.Name + " (" + d + ")"
	}
	return d
}

// device describes what computes.
func device(threads int) string {
	if llama.SupportsGpuOffload() {
		for i := range llama.GGMLBackendDeviceCount() {
			d := llama.GGMLBackendDeviceGet(i)
			if llama.GGMLBackendDevType(d) == llama.GGMLBackendDeviceTypeGPU {
				return llama.GGMLBackendDeviceDescription(d)
			}
		}
	}
	set := runtime.GOARCH
	info := llama.PrintSystemInfo()
	for _, name := range []string{"AVX512", "AVX2", "AVX", "SVE", "NEON"} {
		if strings.Contains(info, " "+name+" = 1") {
			set = name
			break
		}
	}
	if threads == 1 {
		return "CPU (" + set + ", 1 thread)"
	}
	return fmt.Sprintf("CPU (%s, %d threads)", set, threads)
}
