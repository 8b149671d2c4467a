package modelfile

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// The figures are those of the models' public config.json files.
const (
	llama70 = `{"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
		"num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": false}`
	mixtral = `{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
		"num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768, "torch_dtype": "bfloat16", "num_local_experts": 8,
		"num_experts_per_tok": 2, "sliding_window": null}`
	qwen3moe = `{"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48,
		"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
		"torch_dtype": "bfloat16", "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
		"use_sliding_window": false, "sliding_window": null, "tie_word_embeddings": false}`
	deepseek = `{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
		"num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280, "max_position_embeddings": 163840,
		"torch_dtype": "bfloat16", "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
		"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
		"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}`
	gemma3 = `{"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": {"model_type": "gemma3_text", "hidden_size": 5376,
		"intermediate_size": 21504, "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
		"sliding_window": 1024, "vocab_size": 262208}}`
)

func TestAConfigDescribesTheModel(t *testing.T) {
	for name, c := range map[string]struct {
		config           string
		parameters       float64
		bytesOfParameter float64
		token            int // cached numbers of a token
		window           int // layers with one
	}{
		"Llama-3.1-70B": {llama70, 70_553_706_496, 2, 80 * 2 * 8 * 128, 0},
		"Mixtral-8x7B":  {mixtral, 46_702_792_704, 2, 32 * 2 * 8 * 128, 0},
		"Qwen3-30B-A3B": {qwen3moe, 30_532_122_624, 2, 48 * 2 * 4 * 128, 0},
		"DeepSeek-V3":   {deepseek, 671.0e9, 1, 61 * 576, 0},
		"Gemma-3-27B":   {strings.Replace(gemma3, `"vocab`, `"tie_word_embeddings": true, "vocab`, 1), 27.0e9, 2, 62 * 2 * 16 * 128, 52},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ConfigShape([]byte(c.config), 0)
			if err != nil {
				t.Fatal(err)
			}
			if off := float64(s.Parameters)/c.parameters - 1; math.Abs(off) > 0.003 {
				t.Errorf("%d parameters, %.3f %% off", s.Parameters, 100*off)
			}
			if each := float64(s.WeightBytes) / float64(s.Parameters); math.Abs(each/c.bytesOfParameter-1) > 0.01 || !s.Counted {
				t.Errorf("%.3f bytes for each, counted %t", each, s.Counted)
			}
			token, window := 0, 0
			for _, l := range s.Layers {
				token += l.KVHeads * (l.KeyLength + l.ValueLength)
				if l.Window > 0 {
					window++
				}
			}
			if token != c.token || window != c.window {
				t.Errorf("a token takes %d numbers and %d layers have a window, want %d and %d", token, window, c.token, c.window)
			}
		})
	}
}

func TestTheTrueSizeOfTheWeightsScalesTheCount(t *testing.T) {
	const total = 70_560_000_000
	s, err := ConfigShape([]byte(strings.Replace(llama70, `"torch`, `"quantization_config": {"quant_method": "compressed-tensors"}, "torch`, 1)), total)
	if err != nil || s.WeightBytes != total || s.Counted {
		t.Fatalf("got %+v, %v", s, err)
	}
	sum := s.InputBytes + s.OutputBytes
	for _, l := range s.Layers {
		sum += l.Bytes
	}
	if math.Abs(float64(sum)/total-1) > 0.001 {
		t.Errorf("the parts add up to %d", sum)
	}
}

func TestConfigsThatDontTellAreRefused(t *testing.T) {
	change := func(old, with string) string { return strings.Replace(llama70, old, with, 1) }
	for name, c := range map[string]struct {
		config  string
		problem Problem
		says    string
	}{
		"no JSON":                     {"{", Damaged, "no config.json"},
		"a number as a text":          {change("8192", `"8192"`), Damaged, "hidden_size"},
		"no language model":           {`{"model_type": "vit", "hidden_size": 768}`, Unsupported, "num_hidden_layers 0"},
		"too many layers":             {change(`"num_hidden_layers": 80`, `"num_hidden_layers": 100000`), Unsupported, "num_hidden_layers 100000"},
		"a huge width":                {change("28672", "99999999999"), Damaged, "99999999999"},
		"a negative width":            {change("28672", "-1"), Damaged, "-1"},
		"more experts used than are":  {change(`"model_type"`, `"num_local_experts": 2, "num_experts_per_tok": 3, "model_type"`), Damaged, "experts used 3"},
		"a recurrent state":           {change(`"model_type"`, `"layer_types": ["linear_attention"], "model_type"`), Unsupported, "linear_attention"},
		"layers of another kind":      {change(`"llama"`, `"gpt2"`), Unsupported, `"gpt2"`},
		"an unknown type":             {change("bfloat16", "int3"), Unsupported, `"int3"`},
		"an unknown quantization":     {change(`"model_type"`, `"quantization_config": {"quant_method": "magic"}, "model_type"`), Unsupported, `"magic"`},
		"a quantization without bits": {change(`"model_type"`, `"quantization_config": {"quant_method": "gptq"}, "model_type"`), Unsupported, `"gptq"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ConfigShape([]byte(c.config), 0)
			var refused *Error
			if !errors.As(err, &refused) || refused.Problem != c.problem || !strings.Contains(refused.Says, c.says) {
				t.Errorf("got %v, want %s with %q", err, c.problem, c.says)
			}
		})
	}
}

func TestFourBitsAreCountedWithTheirScales(t *testing.T) {
	s, err := ConfigShape([]byte(strings.Replace(llama70, `"torch`, `"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}, "torch`, 1)), 0)
	if err != nil || s.WeightBytes < 39_000_000_000 || s.WeightBytes > 41_000_000_000 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestAnIndexStatesTheSizeAndTheFiles(t *testing.T) {
	total, files, err := IndexBytes([]byte(`{"metadata": {"total_size": 141107412992}, "weight_map": {"a": "2.safetensors", "b": "1.safetensors", "c": "2.safetensors"}}`))
	if err != nil || total != 141_107_412_992 || strings.Join(files, " ") != "1.safetensors 2.safetensors" {
		t.Errorf("got %d, %v, %v", total, files, err)
	}
	for _, bad := range []string{"", "[]", `{"metadata": {}}`, `{"metadata": {"total_size": -5}}`, `{"metadata": {"total_size": 1e30}}`} {
		var refused *Error
		if _, _, err := IndexBytes([]byte(bad)); !errors.As(err, &refused) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzConfig(f *testing.F) {
	for _, c := range []string{llama70, mixtral, qwen3moe, deepseek, gemma3} {
		f.Add([]byte(c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ConfigShape(b, 0)
		var refused *Error
		switch {
		case err != nil && !errors.As(err, &refused):
			t.Errorf("the error is %T: %v", err, err)
		case err == nil && (len(s.Layers) == 0 || s.WeightBytes == 0 || s.WeightBytes > 1<<63):
			t.Errorf("accepted %+v", *s)
		}
	})
}
