package modelfile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// greatest is a config in which every number is the most that a shape may have; more goes before the rest.
func greatest(more string) string {
	return fmt.Sprintf(`{"model_type": "mixtral", "torch_dtype": "float32", %s "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d,
		"num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": %d, "vocab_size": %d, "num_local_experts": %d,
		"num_experts_per_tok": 1}`, more, maxWidth/4, maxWidth, maxLayers, maxHeads, maxHeads, maxLength, maxWidth*4, maxHeads)
}

func TestConfigsOfModelsThatNoDiskHoldsAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ config, says string }{
		"the most of everything":               {greatest(""), "bytes of weights"},
		"shared experts whose width overflows": {greatest(`"n_shared_experts": 17592186044416,`), "shared experts 17592186044416"},
		"fewer shared experts than none":       {greatest(`"n_shared_experts": -1,`), "shared experts -1"},
		"a group of weights below none":        {greatest(`"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -3},`), "bytes of weights"},
	} {
		var refused *Error
		s, err := ConfigShape([]byte(c.config), 0)
		if !errors.As(err, &refused) || refused.Problem != Damaged || !strings.Contains(refused.Says, c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
		if s != nil {
			t.Errorf("%s: accepted with %d bytes of weights", name, s.WeightBytes)
		}
	}
}

func TestSillyNumbersOfAConfigAreRefusedOrMeanNothing(t *testing.T) {
	for _, key := range []string{"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
		"head_dim", "vocab_size", "max_position_embeddings", "sliding_window", "sliding_window_pattern", "num_kv_shared_layers", "num_experts",
		"num_local_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts",
		"shared_expert_intermediate_size", "first_k_dense_replace", "decoder_sparse_step", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim",
		"qk_nope_head_dim", "v_head_dim"} {
		for _, base := range []string{llama70, mixtral, qwen3moe, deepseek} {
			for _, n := range []string{"-1", "-9223372036854775808", "9223372036854775807", "4611686018427387904", "2147483648", "0"} {
				config := strings.Replace(base, "{", fmt.Sprintf("{%q: %s,", key, n), 1)
				config = withoutSecond(config, key)
				s, err := ConfigShape([]byte(config), 0)
				var refused *Error
				switch {
				case err != nil && !errors.As(err, &refused):
					t.Errorf("%s %s: the error is %T: %v", key, n, err, err)
				case err == nil && s.check() != nil:
					t.Errorf("%s %s: accepted, and can't be: %v", key, n, s.check())
				case err == nil && (s.WeightBytes == 0 || s.WeightBytes > maxWeights):
					t.Errorf("%s %s: accepted with %d bytes of weights", key, n, s.WeightBytes)
				}
			}
		}
	}
}

// withoutSecond renames the second place of a key, which would count.
func withoutSecond(config, key string) string {
	first := strings.Index(config, `"`+key+`"`) + len(key) + 2
	return config[:first] + strings.Replace(config[first:], `"`+key+`"`, `"not_`+key+`"`, 1)
}
