package agent

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/ringfleet/ringfleet/api/memoryplan"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/llamacpp"
	"github.com/ringfleet/ringfleet/worker/engine/openai"
)

// StepOptions say how the scheduler forms steps of a model in this process.
type StepOptions struct {
	// Tokens is the most tokens of a step. A stream waits as long as a step takes, so small steps keep streams smooth and
	// large ones compute prompts faster. 0: 128, or 512 where layers are on a GPU.
	Tokens int
	// Gather is how long an idle worker waits for requests that come together, at most.
	Gather time.Duration
	// IdleSequences is the most sequences that are kept for the reuse of their prefix; 0: none. They share the library's
	// limit of 256 with those that run, and each costs it one row of logits: 4 bytes for each token of the vocabulary.
	IdleSequences int
	// Adapters are LoRA adapters that are loaded at the start: NAME=PATH, separated by commas.
	Adapters string
}

func (s *StepOptions) bind(b *binder) {
	b.integer(&s.Tokens, "step-tokens", 0, "tokens of a step (0: 128, or 512 with layers on a GPU)")
	b.duration(&s.Gather, "gather", 20*time.Millisecond, "time that an idle worker waits for requests that come together")
	b.integer(&s.IdleSequences, "idle-sequences", memoryplan.IdleSequences, "sequences kept for the reuse of their prefix (0: none)")
	b.text(&s.Adapters, "adapters", "", "LoRA adapters: NAME=PATH, separated by commas")
}

func (s *StepOptions) validate(bad func(flag string, value any, want string)) {
	if s.Tokens < 0 || s.Tokens > 512 {
		bad("step-tokens", s.Tokens, "0 to 512")
	}
	if s.Gather < 0 || s.Gather > time.Second {
		bad("gather", s.Gather, "0s to 1s")
	}
	if s.IdleSequences < 0 || s.IdleSequences > maxSequenceIDs {
		bad("idle-sequences", s.IdleSequences, fmt.Sprintf("0 to %d", maxSequenceIDs))
	}
	if _, err := adapters(s.Adapters); err != nil {
		bad("adapters", s.Adapters, "NAME=PATH, separated by commas")
	}
}

// maxSequenceIDs is how many sequences the library can tell apart.
const maxSequenceIDs = 256

// adapters reads NAME=PATH,….
func adapters(list string) ([]engine.Adapter, error) {
	var out []engine.Adapter
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, path, ok := strings.Cut(part, "=")
		if !ok || name == "" || path == "" {
			return nil, fmt.Errorf("%q is not NAME=PATH", part)
		}
		out = append(out, engine.Adapter{Name: name, Path: path})
	}
	return out, nil
}

// GPUOptions say what of a model in this process is on GPUs.
type GPUOptions struct {
	// Layers is how many layers are on GPUs; -1: all.
	Layers int
	// Require makes the worker fail where the library can't use a GPU, instead of computing on the CPU.
	Require bool
	// Split is layer, row or none; TensorSplit each GPU's share, such as 3,1; Main the GPU of what can't be split.
	Split, TensorSplit string
	Main               int
	// FlashAttention is auto, on or off.
	FlashAttention string
}

func (g *GPUOptions) bind(b *binder) {
	b.integer(&g.Layers, "gpu-layers", 0, "layers on GPUs (-1: all)")
	b.truth(&g.Require, "require-gpu", "fail where the library can't use a GPU")
	b.text(&g.Split, "gpu-split", string(llamacpp.SplitLayer), "how the model lies on several GPUs: layer, row or none")
	b.text(&g.TensorSplit, "gpu-tensor-split", "", "each GPU's share of the model, such as 3,1 (default: by free memory)")
	b.integer(&g.Main, "gpu-main", 0, "the GPU of --gpu-split none, and of what can't be split")
	b.text(&g.FlashAttention, "flash-attention", string(llamacpp.FlashAuto), "auto, on or off")
}

func (g *GPUOptions) validate() error {
	_, err := llamacpp.ParseTensorSplit(g.TensorSplit)
	if err != nil {
		err = fmt.Errorf("--gpu-tensor-split: %w", err)
	}
	switch llamacpp.Split(g.Split) {
	case llamacpp.SplitLayer, llamacpp.SplitRow, llamacpp.SplitNone:
	default:
		err = errors.Join(err, fmt.Errorf("--gpu-split %s: want layer, row or none", g.Split))
	}
	switch llamacpp.Attention(g.FlashAttention) {
	case llamacpp.FlashAuto, llamacpp.FlashOn, llamacpp.FlashOff:
	default:
		err = errors.Join(err, fmt.Errorf("--flash-attention %s: want auto, on or off", g.FlashAttention))
	}
	if g.Main < 0 {
		err = errors.Join(err, fmt.Errorf("--gpu-main %d: want 0 or more", g.Main))
	}
	if g.Layers < llamacpp.AllLayers {
		err = errors.Join(err, fmt.Errorf("--gpu-layers %d: want -1 or more", g.Layers))
	}
	if g.Require && g.Layers == 0 {
		err = errors.Join(err, errors.New("--require-gpu: want --gpu-layers other than 0"))
	}
	return err
}

// driver is the library's view of the options.
func (g *GPUOptions) driver() llamacpp.GPU {
	split, _ := llamacpp.ParseTensorSplit(g.TensorSplit) // validated
	return llamacpp.GPU{Require: g.Require, Layers: g.Layers, Split: llamacpp.Split(g.Split), Main: g.Main, TensorSplit: split}
}

// ServerOptions say which server beside this process runs the model.
type ServerOptions struct {
	// URL is the server's, without /v1.
	URL string
	// Kind is VLLM, SGLang, LlamaServer or OpenAI, which finds out.
	Kind string
	// Model is the model's name at the server; empty: the first that it lists.
	Model string
	// Stall is how long requests may run without progress before the engine counts as stalled: without a token of a server
	// beside this process, within one step of a model in it. It must be longer than a server's longest prompt and the model's
	// longest step.
	Stall time.Duration
	// Adapters: the server loads adapters while it runs. Priorities: it heeds priorities.
	Adapters, Priorities bool
}

func (s *ServerOptions) bind(b *binder) {
	b.text(&s.URL, "engine-url", "http://127.0.0.1:8000", "the server beside this process, for --driver openai; RINGFLEET_ENGINE_API_KEY is its key")
	b.text(&s.Kind, "engine-kind", string(openai.OpenAI), "what it is: VLLM, SGLang, LlamaServer or OpenAI")
	b.text(&s.Model, "engine-model", "", "the model's name at the server (default: the first that it lists)")
	b.duration(&s.Stall, "engine-stall", 2*time.Minute, "time without progress, while requests run, after which the engine counts as stalled")
	b.truth(&s.Adapters, "engine-adapters", "the server loads adapters while it runs")
	b.truth(&s.Priorities, "engine-priorities", "the server heeds priorities")
}

func (s *ServerOptions) validate(bad func(flag string, value any, want string)) {
	if u, err := url.Parse(s.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		bad("engine-url", s.URL, "a URL such as http://127.0.0.1:8000")
	}
	switch openai.Kind(s.Kind) {
	case openai.VLLM, openai.SGLang, openai.LlamaServer, openai.OpenAI:
	default:
		bad("engine-kind", s.Kind, "VLLM, SGLang, LlamaServer or OpenAI")
	}
}
