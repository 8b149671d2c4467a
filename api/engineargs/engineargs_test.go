package engineargs

import (
	"slices"
	"strings"
	"testing"
)

// plain is what every engine needs.
func plain() Settings { return Settings{Model: "/weights/model", Name: "org/name", Port: 8000} }

func TestSettingsBecomeArguments(t *testing.T) {
	for name, c := range map[string]struct {
		kind   Kind
		change func(*Settings)
		want   string // a part of the command line
	}{
		"vLLM gets the model first":            {VLLM, nil, "/weights/model --served-model-name org/name --host 127.0.0.1 --port 8000 --generation-config"},
		"vLLM splits layers over GPUs":         {VLLM, func(s *Settings) { s.TensorParallel = 8 }, " --tensor-parallel-size 8 "},
		"vLLM splits the row of layers":        {VLLM, func(s *Settings) { s.PipelineParallel = 2 }, " --pipeline-parallel-size 2 "},
		"vLLM bounds a request":                {VLLM, func(s *Settings) { s.ContextTokens = 8192 }, " --max-model-len 8192 "},
		"vLLM bounds the batch":                {VLLM, func(s *Settings) { s.MaxSequences = 64 }, " --max-num-seqs 64 "},
		"vLLM takes a type":                    {VLLM, func(s *Settings) { s.DType = "bfloat16" }, " --dtype bfloat16 "},
		"vLLM's small KV cache is fp8":         {VLLM, func(s *Settings) { s.KVCache = Q8 }, " --kv-cache-dtype fp8 "},
		"vLLM caches prefixes unless told":     {VLLM, func(s *Settings) { s.NoPrefixCaching = true }, " --no-enable-prefix-caching "},
		"vLLM loads adapters":                  {VLLM, func(s *Settings) { s.LoRA, s.MaxAdapters, s.MaxAdapterRank = true, 4, 16 }, " --enable-lora --max-loras 4 --max-lora-rank 16 "},
		"vLLM parses tool calls":               {VLLM, func(s *Settings) { s.ToolParser = "hermes" }, " --enable-auto-tool-choice --tool-call-parser hermes "},
		"vLLM splits reasoning":                {VLLM, func(s *Settings) { s.ReasoningParser = "qwen3" }, " --reasoning-parser qwen3 "},
		"vLLM leaves memory to others":         {VLLM, func(s *Settings) { s.MemoryPercent = 85 }, " --gpu-memory-utilization 0.85 "},
		"vLLM may have all memory":             {VLLM, func(s *Settings) { s.MemoryPercent = 100 }, " --gpu-memory-utilization 1.00 "},
		"the user's arguments come last":       {VLLM, func(s *Settings) { s.Extra = []string{"--seed", "1"} }, " --scheduling-policy priority --seed 1"},
		"SGLang names its model":               {SGLang, nil, "--model-path /weights/model --served-model-name org/name --host 127.0.0.1 --port 8000 --enable-metrics"},
		"SGLang splits over GPUs":              {SGLang, func(s *Settings) { s.TensorParallel, s.PipelineParallel = 4, 2 }, " --tp-size 4 --pp-size 2 "},
		"SGLang's small KV cache is fp8":       {SGLang, func(s *Settings) { s.KVCache = Q8 }, " --kv-cache-dtype fp8_e5m2 "},
		"SGLang caches prefixes unless told":   {SGLang, func(s *Settings) { s.NoPrefixCaching = true }, " --disable-radix-cache "},
		"SGLang loads adapters":                {SGLang, func(s *Settings) { s.LoRA, s.MaxAdapterRank = true, 16 }, " --enable-lora --lora-target-modules all --max-lora-rank 16 "},
		"llama-server has one cache for all":   {LlamaServer, nil, "--model /weights/model --alias org/name --host 127.0.0.1 --port 8000 --kv-unified"},
		"llama-server bounds both":             {LlamaServer, func(s *Settings) { s.ContextTokens, s.MaxSequences = 8192, 16 }, " --ctx-size 8192 --parallel 16 "},
		"llama-server's small KV cache is q8":  {LlamaServer, func(s *Settings) { s.KVCache = Q8 }, " --cache-type-k q8_0 --cache-type-v q8_0 "},
		"llama-server splits rows over GPUs":   {LlamaServer, func(s *Settings) { s.TensorParallel = 2 }, " --split-mode row "},
		"llama-server splits layers over GPUs": {LlamaServer, func(s *Settings) { s.PipelineParallel = 2 }, " --split-mode layer "},
		"llama-server's threads are bounded":   {LlamaServer, func(s *Settings) { s.Threads = 3 }, " --threads 3 "},
	} {
		s := plain()
		if c.change != nil {
			c.change(&s)
		}
		got := strings.Join(Args(c.kind, s), " ")
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %q lacks %q", name, got, c.want)
		}
	}
}

func TestAnUnknownEngineGetsOnlyTheUsersArguments(t *testing.T) {
	s := plain()
	s.TensorParallel, s.PipelineParallel, s.Extra = 2, 2, []string{"--own", "argument"}
	if got := Args(OpenAI, s); !slices.Equal(got, s.Extra) {
		t.Errorf("the arguments are %q", got)
	}
	if got := Unsupported(OpenAI, s); len(got) != 0 {
		t.Errorf("not supported are %q", got)
	}
	s.DType, s.KVCache, s.NoPrefixCaching, s.LoRA = "bfloat16", Q8, true, true
	if got := Unsupported(OpenAI, s); !slices.Equal(got, []string{"dtype", "kvCacheType", "prefixCaching", "adapters"}) {
		t.Errorf("not supported are %q", got)
	}
}

func TestOneGPUIsNoParallelism(t *testing.T) {
	s := plain()
	s.TensorParallel, s.PipelineParallel = 1, 1
	for _, k := range []Kind{VLLM, SGLang, LlamaServer, OpenAI} {
		if line := strings.Join(Args(k, s), " "); strings.Contains(line, "parallel-size") || strings.Contains(line, "p-size") ||
			strings.Contains(line, "split-mode") || len(Unsupported(k, s)) > 0 {
			t.Errorf("%s: %q, not supported are %q", k, line, Unsupported(k, s))
		}
	}
}

func TestLlamaServerSaysWhatItCannotDo(t *testing.T) {
	s := plain()
	s.TensorParallel, s.PipelineParallel, s.DType, s.NoPrefixCaching, s.LoRA = 2, 2, "bfloat16", true, true
	if got := Unsupported(LlamaServer, s); len(got) != 4 {
		t.Errorf("not supported are %q", got)
	}
	if got := Unsupported(VLLM, s); len(got) != 0 {
		t.Errorf("vLLM can't do %q", got)
	}
}

func TestAdaptersNeedAVariableAtVLLM(t *testing.T) {
	s := plain()
	s.LoRA = true
	want := Variable{"VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True"}
	if !slices.Contains(Env(VLLM, s), want) || slices.Contains(Env(VLLM, plain()), want) || slices.Contains(Env(SGLang, s), want) {
		t.Errorf("vLLM's variables are %v, SGLang's %v", Env(VLLM, s), Env(SGLang, s))
	}
	if len(Env(LlamaServer, s)) != 0 {
		t.Errorf("llama-server's are %v", Env(LlamaServer, s))
	}
}

func TestArgumentsOfOneCallDoNotReachAnother(t *testing.T) {
	s := plain()
	s.Extra = make([]string, 1, 8)
	s.Extra[0] = "--mine"
	a := Args(OpenAI, s)
	_ = append(a, "--theirs")
	if b := append(Args(OpenAI, s), "--others"); a[0] != "--mine" || b[1] != "--others" {
		t.Errorf("%q and %q", a, b)
	}
}
