// Package engineargs composes the command line of an engine that runs in a container of its own, from plain values. The
// manager writes it into pods and into a model's status; the tests start real engines by it. It decides how each kind of
// engine is told of a setting, and which settings a kind has no word for. It starts nothing and knows no Kubernetes.
package engineargs

import (
	"fmt"
	"strconv"
)

// Kind is a family of engines.
type Kind string

// The kinds.
const (
	VLLM        Kind = "VLLM"
	SGLang      Kind = "SGLang"
	LlamaServer Kind = "LlamaServer"
	// OpenAI is any other engine: it gets the settings' Extra and nothing else.
	OpenAI Kind = "OpenAI"
)

// KVCache is the precision of the KV cache.
type KVCache string

// The precisions; the empty one leaves it to the engine.
const (
	F16 KVCache = "F16"
	Q8  KVCache = "Q8"
)

// Settings are what an engine is told. A zero value leaves a setting to the engine, but for Model, Name and Port, which are
// needed.
type Settings struct {
	// Model is where the weights lie: a folder for vLLM and SGLang, a GGUF file for llama-server. Name is what requests
	// call the model.
	Model, Name string
	Host        string // default 127.0.0.1: only the worker beside it may call
	Port        int

	// TensorParallel and PipelineParallel are over how many GPUs each layer, and the row of layers, is split. llama-server
	// splits over all GPUs that it has.
	TensorParallel, PipelineParallel int
	// ContextTokens is the longest request, MaxSequences how many run together.
	ContextTokens, MaxSequences int
	// DType is the type of the weights as the engine names it, such as bfloat16.
	DType   string
	KVCache KVCache
	// NoPrefixCaching computes every prompt anew.
	NoPrefixCaching bool
	// LoRA lets adapters be loaded while the engine runs: at most MaxAdapters used together, none of a greater rank.
	LoRA                        bool
	MaxAdapters, MaxAdapterRank int
	// ToolParser and ReasoningParser name the engine's own parsers for the model's family.
	ToolParser, ReasoningParser string
	// MemoryPercent of each GPU is the engine's.
	MemoryPercent int
	// Threads compute, where the engine runs on CPUs.
	Threads int
	// Extra is the user's own; it comes last, so that it wins.
	Extra []string
}

// Variable is an environment variable.
type Variable struct{ Name, Value string }

// Command is the program that Args are for, or nil where the image's own is.
func Command(k Kind) []string {
	switch k {
	case VLLM:
		return []string{"vllm", "serve"}
	case SGLang:
		return []string{"python3", "-m", "sglang.launch_server"}
	}
	return nil
}

// Args composes the arguments.
func Args(k Kind, s Settings) []string {
	var a args
	switch k {
	case VLLM:
		a.vllm(&s)
	case SGLang:
		a.sglang(&s)
	case LlamaServer:
		a.llamaServer(&s)
	}
	return append(a, s.Extra...)
}

// Env composes the environment: nothing is sent home or looked up, and adapters may be loaded where they are wanted.
func Env(k Kind, s Settings) []Variable {
	if k != VLLM && k != SGLang {
		return nil
	}
	out := []Variable{{"HF_HUB_OFFLINE", "1"}}
	if k == VLLM {
		out = append(out, Variable{"VLLM_NO_USAGE_STATS", "1"})
		if s.LoRA {
			out = append(out, Variable{"VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True"})
		}
	}
	return out
}

// Unsupported names the settings, as they are called in the model's spec, that an engine of the kind has no word for. To an
// unknown engine parallelism is no setting: it is how many GPUs the container has, and its Extra says what to do with them.
func Unsupported(k Kind, s Settings) []string {
	var out []string
	bad := func(is bool, what string) {
		if is {
			out = append(out, what)
		}
	}
	switch k {
	case LlamaServer:
		bad(s.TensorParallel > 1 && s.PipelineParallel > 1, "parallelism: llama-server splits each layer or the row of layers, not both")
		bad(s.DType != "", "dtype: a GGUF file has its own")
		bad(s.NoPrefixCaching, "prefixCaching: llama-server has no switch for it")
		bad(s.LoRA, "adapters: llama-server takes them only when it starts")
	case OpenAI:
		bad(s.DType != "", "dtype")
		bad(s.KVCache != "", "kvCacheType")
		bad(s.NoPrefixCaching, "prefixCaching")
		bad(s.LoRA, "adapters")
	}
	return out
}

// args grows a command line.
type args []string

func (a *args) flag(name string) { *a = append(*a, name) }

// text adds an option unless it has no value, number unless it is 0.
func (a *args) text(name, value string) {
	if value != "" {
		*a = append(*a, name, value)
	}
}

func (a *args) number(name string, n int) {
	if n > 0 {
		a.text(name, strconv.Itoa(n))
	}
}

// split adds an option that means something only above 1.
func (a *args) split(name string, n int) {
	if n > 1 {
		a.number(name, n)
	}
}

func (a *args) on(is bool, more ...string) {
	if is {
		*a = append(*a, more...)
	}
}

func (s *Settings) host() string {
	if s.Host == "" {
		return "127.0.0.1"
	}
	return s.Host
}

// fraction writes a percentage as these engines want it.
func fraction(percent int) string {
	if percent <= 0 {
		return ""
	}
	return fmt.Sprintf("%d.%02d", percent/100, percent%100)
}

func (a *args) vllm(s *Settings) {
	a.flag(s.Model)
	a.text("--served-model-name", s.Name)
	a.text("--host", s.host())
	a.number("--port", s.Port)
	a.split("--tensor-parallel-size", s.TensorParallel)
	a.split("--pipeline-parallel-size", s.PipelineParallel)
	a.number("--max-model-len", s.ContextTokens)
	a.number("--max-num-seqs", s.MaxSequences)
	a.text("--dtype", s.DType)
	a.on(s.KVCache == Q8, "--kv-cache-dtype", "fp8")
	a.on(s.NoPrefixCaching, "--no-enable-prefix-caching")
	a.on(s.LoRA, "--enable-lora")
	a.number("--max-loras", s.MaxAdapters)
	a.number("--max-lora-rank", s.MaxAdapterRank)
	a.on(s.ToolParser != "", "--enable-auto-tool-choice", "--tool-call-parser", s.ToolParser)
	a.text("--reasoning-parser", s.ReasoningParser)
	a.text("--gpu-memory-utilization", fraction(s.MemoryPercent))
	// The model's own defaults for sampling are not the requests'; cached tokens are told; priorities are heeded.
	a.on(true, "--generation-config", "vllm", "--enable-prompt-tokens-details", "--scheduling-policy", "priority")
}

func (a *args) sglang(s *Settings) {
	a.text("--model-path", s.Model)
	a.text("--served-model-name", s.Name)
	a.text("--host", s.host())
	a.number("--port", s.Port)
	a.split("--tp-size", s.TensorParallel)
	a.split("--pp-size", s.PipelineParallel)
	a.number("--context-length", s.ContextTokens)
	a.number("--max-running-requests", s.MaxSequences)
	a.text("--dtype", s.DType)
	a.on(s.KVCache == Q8, "--kv-cache-dtype", "fp8_e5m2")
	a.on(s.NoPrefixCaching, "--disable-radix-cache")
	a.on(s.LoRA, "--enable-lora", "--lora-target-modules", "all")
	a.number("--max-loras-per-batch", s.MaxAdapters)
	a.number("--max-lora-rank", s.MaxAdapterRank)
	a.text("--tool-call-parser", s.ToolParser)
	a.text("--reasoning-parser", s.ReasoningParser)
	a.text("--mem-fraction-static", fraction(s.MemoryPercent))
	a.on(true, "--enable-metrics", "--enable-cache-report", "--enable-priority-scheduling", "--sampling-defaults", "openai")
}

func (a *args) llamaServer(s *Settings) {
	a.text("--model", s.Model)
	a.text("--alias", s.Name)
	a.text("--host", s.host())
	a.number("--port", s.Port)
	switch {
	case s.TensorParallel > 1:
		a.text("--split-mode", "row")
	case s.PipelineParallel > 1:
		a.text("--split-mode", "layer")
	}
	a.number("--ctx-size", s.ContextTokens)
	a.number("--parallel", s.MaxSequences)
	a.on(s.KVCache == Q8, "--cache-type-k", "q8_0", "--cache-type-v", "q8_0")
	a.number("--threads", s.Threads)
	// One KV cache for all sequences; a request that does not fit is refused, not cut.
	a.on(true, "--kv-unified", "--no-context-shift", "--metrics", "--jinja")
}
