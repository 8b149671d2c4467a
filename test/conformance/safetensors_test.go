//go:build conformance

package conformance

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
)

// loraFolder writes the adapter as vLLM reads it and returns its folder.
func loraFolder(t *testing.T) string {
	a, b := pair()
	const name = "base_model.model.model.layers.29.mlp.down_proj.lora_%s.weight"
	header, err := json.Marshal(map[string]any{
		fmt.Sprintf(name, "A"): map[string]any{"dtype": "F32", "shape": []int{rank, columns}, "data_offsets": []int{0, 4 * len(a)}},
		fmt.Sprintf(name, "B"): map[string]any{"dtype": "F32", "shape": []int{rows, rank}, "data_offsets": []int{4 * len(a), 4 * (len(a) + len(b))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	save(t, filepath.Join(dir, "adapter_model.safetensors"), floats(floats(out, a), b))
	save(t, filepath.Join(dir, "adapter_config.json"), fmt.Appendf(nil, `{"peft_type":"LORA","task_type":"CAUSAL_LM","r":%d,`+
		`"lora_alpha":%d,"lora_dropout":0,"bias":"none","target_modules":["down_proj"],"base_model_name_or_path":"smol"}`, rank, alpha))
	return dir
}
