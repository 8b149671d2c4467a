package llamacpp

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/weights"
)

// The most tokens that are computed at a time (n_ubatch). On a CPU larger ones are no faster and take more memory, and an
// aborted step loses less with smaller ones. A GPU is idle for part of a smaller one.
const microTokens, microTokensGPU = 128, 512

// warmTokens is the size of the step by which a CPU is timed: a whole one would hold the load up for seconds.
const warmTokens = 16

// warmSteps are the tokens of the steps that warm a model up: one as of a stream, and one as of a prompt. A GPU has the latter
// twice, since the first compiles its kernels, and the last is timed.
func warmSteps(onGPU bool, c *engine.Caps) []int {
	if !onGPU {
		return []int{1, warmTokens}
	}
	n := min(microTokensGPU, c.KVTokens, c.MaxStepTokens)
	return []int{1, n, n}
}

// model is loaded weights.
type model struct {
	handle       llama.Model
	architecture string
	onGPU        bool // some layers are on a GPU
	tensors      map[string]modelfile.Tensor
}

// openModel loads the weights whose head is given.
func (l *library) openModel(o *Options, head *modelfile.GGUF) (*model, error) {
	if why := impossible(head); why != "" {
		return nil, unsupported(o.WeightsPath, why)
	}
	gpus, err := l.findGPUs(&o.GPU)
	if err != nil {
		return nil, err
	}
	m := &model{architecture: head.Architecture, tensors: map[string]modelfile.Tensor{}}
	for _, t := range head.Tensors {
		m.tensors[t.Name] = t
	}
	params := llama.ModelDefaultParams()
	params.LoadMode = llama.LoadModeMmap
	params.ProgressCallback = l.progress
	params.UseExtraBufts = extraBuffers(m.tensors, llama.PrintSystemInfo())
	onGPU, keep := o.GPU.place(&params, gpus)
	defer runtime.KeepAlive(keep)
	m.onGPU = onGPU
	l.report(o.Progress)
	defer l.report(nil)
	lines.reset()
	if m.handle, err = llama.ModelLoadFromFile(o.WeightsPath, params); err != nil {
		return nil, unsupported(o.WeightsPath, "llama.cpp can't load it: "+lines.errors())
	}
	if why := m.unfit(); why != "" {
		_ = llama.ModelFree(m.handle)
		return nil, unsupported(o.WeightsPath, "its architecture "+m.architecture+" "+why)
	}
	return m, nil
}

// extraBuffers is 1 where matrices on the CPU may be kept repacked in buffers of their own, which makes it faster, else 0.
// The buffers of CPUs with AMX multiply by contiguous numbers only, and the library asks them about no others when it places a
// matrix. With multi-head latent attention the keys' second matrix (attn_k_b) is multiplied by a permuted view: the first
// step would fail an assertion, and the process end. So such a model keeps all its matrices as they are on such a CPU.
func extraBuffers(tensors map[string]modelfile.Tensor, system string) uint8 {
	if !strings.Contains(system, " AMX_INT8 = 1") {
		return 1
	}
	for name := range tensors {
		if strings.HasSuffix(name, ".attn_k_b.weight") {
			return 0
		}
	}
	return 1
}

// text returns a value of the weights' metadata; numbers are written out.
func (m *model) text(key string) string {
	s, _ := llama.ModelMetaValStr(m.handle, key)
	return s
}

// mostTokens is the most tokens that one sequence may have.
func (m *model) mostTokens(o *Options) int {
	if trained := int(llama.ModelNCtxTrain(m.handle)); trained > 0 {
		return min(o.ContextTokens, trained)
	}
	return o.ContextTokens
}

// pooling is how the states of tokens become one vector. Decoders that were not trained for it don't say; the mean of all
// states says more of a text than the last one, which says what comes next.
func (m *model) pooling() llama.PoolingType {
	n, err := strconv.Atoi(m.text(m.architecture + ".pooling_type"))
	switch kind := llama.PoolingType(n); {
	case err != nil:
		return llama.PoolingTypeMean
	case kind == llama.PoolingTypeCLS, kind == llama.PoolingTypeLast, kind == llama.PoolingTypeRank:
		return kind
	}
	return llama.PoolingTypeMean
}

// The library's own limits (LLAMA_MAX_LAYERS, LLAMA_MAX_EXPERTS).
const maxLayers, maxExperts = 512, 1024

// impossible says what of a head the library would not refuse but assert, or "".
func impossible(head *modelfile.GGUF) string {
	key := func(name string) string { return head.Architecture + "." + name }
	for _, name := range []string{"attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"} {
		if x, found := head.Float(key(name)); found && !(x >= 0) {
			return fmt.Sprintf("its %s is %v, expected at least 0", key(name), x)
		}
	}
	layers, found := head.Uint(key("block_count"))
	experts, _ := head.Uint(key("expert_count"))
	used, _ := head.Uint(key("expert_used_count"))
	switch {
	case found && (layers < 1 || layers > maxLayers):
		return fmt.Sprintf("its %s is %d, expected 1 to %d", key("block_count"), layers, maxLayers)
	case experts > maxExperts || used > experts || experts > 0 && used == 0:
		return fmt.Sprintf("its %s is %d and its %s %d, expected at most %d and as many as are used", key("expert_count"), experts,
			key("expert_used_count"), used, maxExperts)
	}
	return ""
}

// unfit says why a model can't do what engine.Executor promises, or "".
func (m *model) unfit() string {
	switch {
	case llama.ModelHasEncoder(m.handle) || !llama.ModelHasDecoder(m.handle):
		return "is no decoder-only language model"
	case llama.GetVocabType(llama.ModelGetVocab(m.handle)) == llama.VocabTypeNone:
		return "comes without a vocabulary"
	case m.text(m.architecture+".attention.causal") == "false":
		return "looks at what follows a token, so it can't generate token after token"
	case llama.ModelIsDiffusion(m.handle):
		return "generates by diffusion, not token after token"
	case llama.ModelIsRecurrent(m.handle), llama.ModelIsHybrid(m.handle):
		return "keeps a recurrent state, which can be neither shared nor cut back"
	}
	return ""
}

// openContext makes the KV cache and the graph of a model. The abort of the result is read in every step.
func (l *library) openContext(o *Options, m *model) (llama.Context, *abort, error) {
	a := &abort{}
	a.pin.Pin(a)
	params := l.contextParams(o, a)
	params.NCtx = uint32(o.ContextTokens)
	params.NBatch = uint32(min(stepTokens, o.ContextTokens))
	params.NUbatch = min(microTokens, params.NBatch)
	if m.onGPU {
		params.NUbatch = min(microTokensGPU, params.NBatch)
	}
	params.NSeqMax = uint32(o.MaxSequences)
	params.NOutputsMax = uint32(o.MaxSequences) // the library asserts that it is no less
	context, err := l.newContext(m.handle, params)
	if err != nil {
		a.pin.Unpin()
		return 0, nil, unsupported(o.WeightsPath, fmt.Sprintf("llama.cpp can't make a context of %d tokens and %d sequences "+
			"with a KV cache of %s: %v", o.ContextTokens, o.MaxSequences, o.KVType, err))
	}
	if memory, err := llama.GetMemory(context); err != nil || memory == 0 {
		_ = llama.Free(context)
		a.pin.Unpin()
		return 0, nil, unsupported(o.WeightsPath, "it has no KV cache: it is an encoder, which can't generate")
	}
	return context, a, nil
}

// contextParams are those that all contexts of a model share.
func (l *library) contextParams(o *Options, a *abort) llama.ContextParams {
	params := llama.ContextDefaultParams()
	params.NThreads, params.NThreadsBatch = int32(o.Threads), int32(o.Threads)
	params.FlashAttentionType = attentions[o.FlashAttention]
	params.KVUnified = 1 // sequences share cells, so forks cost nothing
	params.SwaFull = 1   // or the library forgets cells that a later truncation or fork needs
	params.NoPerf = 1
	params.AbortCallback, params.AbortCallbackData = l.abort, a.address()
	params.TypeK, params.TypeV = kvTypes[o.KVType].number, kvTypes[o.KVType].number
	return params
}

// newContext makes a context; the error is what the library said.
func (l *library) newContext(model llama.Model, params llama.ContextParams) (llama.Context, error) {
	lines.reset()
	context, err := llama.InitFromModel(model, params)
	if err != nil {
		return 0, errors.New(lines.errors())
	}
	return context, nil
}

func unsupported(path, why string) error {
	return &engine.LoadError{Reason: weights.Unsupported, Message: fmt.Sprintf("the weights file %s is sound, but %s", path, why)}
}

// description is the model as the library and the file name it.
func (m *model) description(name string) string {
	d := llama.ModelDesc(m.handle)
	if name != "" {
		d = name + " (" + d + ")"
	}
	return d
}

// cellBytes is the memory of one KV cell: keys and values of all layers, taken to be alike.
func (m *model) cellBytes(kv KVType) int {
	heads := int(max(llama.ModelNHead(m.handle), 1))
	size := int(llama.ModelNEmbd(m.handle)) / heads
	numbers := 0
	for _, part := range []string{"key", "value"} {
		n := size
		if v, err := strconv.Atoi(m.text(m.architecture + ".attention." + part + "_length")); err == nil && v > 0 && v < math.MaxInt32 {
			n = v
		}
		numbers += n * int(llama.ModelNHeadKV(m.handle)) * int(llama.ModelNLayer(m.handle))
	}
	return numbers / kvTypes[kv].block * kvTypes[kv].bytes
}
