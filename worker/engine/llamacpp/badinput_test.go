package llamacpp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/weights"
)

// setting changes the 32 bits of a key of a file's metadata.
func setting(key string, value uint32) func([]byte) []byte {
	return func(b []byte) []byte {
		at := bytes.Index(b, append(binary.LittleEndian.AppendUint64(nil, uint64(len(key))), key...))
		binary.LittleEndian.PutUint32(b[at+8+len(key)+4:], value)
		return b
	}
}

// misplacing changes the offset of the last tensor.
func misplacing(by uint64) func([]byte) []byte {
	return func(b []byte) []byte {
		head, err := modelfile.ReadGGUF(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			panic(err)
		}
		last := head.Tensors[len(head.Tensors)-1]
		at := bytes.LastIndex(b[:head.Bytes-last.Offset-last.Bytes], []byte(last.Name)) + len(last.Name) + 4 + 8*len(last.Dims) + 4
		binary.LittleEndian.PutUint64(b[at:], last.Offset+by)
		return b
	}
}

func TestFilesThatLieAreRefused(t *testing.T) {
	experts := small()
	experts.Architecture, experts.Experts, experts.ExpertsUsed, experts.ExpertFeedForward = "qwen3moe", 4, 2, 32
	for name, c := range map[string]struct {
		path   string
		reason string
		says   string
	}{
		"an offset beyond the file":        {written(t, small(), misplacing(1<<40)), weights.NotGGUF, "begins at byte"},
		"an offset into another tensor":    {written(t, small(), misplacing(^uint64(31))), weights.NotGGUF, "begins at byte"},
		"no layers":                        {written(t, small(), setting("llama.block_count", 0)), weights.Unsupported, "llama.block_count is 0, expected 1 to 512"},
		"more layers than there can be":    {written(t, small(), setting("llama.block_count", math.MaxUint32)), weights.Unsupported, "4294967295"},
		"more layers than there are":       {written(t, small(), setting("llama.block_count", 3)), weights.Unsupported, "blk.2"},
		"fewer layers than there are":      {written(t, small(), setting("llama.block_count", 1)), weights.Unsupported, "wrong number of tensors"},
		"no heads":                         {written(t, small(), setting("llama.attention.head_count", 0)), weights.Unsupported, "can't load it"},
		"heads that don't divide":          {written(t, small(), setting("llama.attention.head_count", 7)), weights.Unsupported, "can't load it"},
		"another width":                    {written(t, small(), setting("llama.embedding_length", 96)), weights.Unsupported, "can't load it"},
		"a negative epsilon":               {written(t, small(), setting("llama.attention.layer_norm_rms_epsilon", math.Float32bits(-1))), weights.Unsupported, "expected at least 0"},
		"an epsilon that is no number":     {written(t, small(), setting("llama.attention.layer_norm_rms_epsilon", math.MaxUint32)), weights.Unsupported, "is NaN"},
		"more experts used than there are": {written(t, experts, setting("qwen3moe.expert_used_count", 5)), weights.Unsupported, "expert_used_count 5"},
		"no experts used":                  {written(t, experts, setting("qwen3moe.expert_used_count", 0)), weights.Unsupported, "expert_used_count 0"},
		"attention to what follows":        {written(t, small(), with("llama.attention.causal", false)), weights.Unsupported, "looks at what follows"},
		"no vocabulary":                    {written(t, small(), withoutVocabulary), weights.Unsupported, "without a vocabulary"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			o.WeightsPath = c.path
			l, err := Open(o)
			if err == nil {
				err = errors.Join(errors.New("it was loaded"), l.Executor.Close())
			}
			var refused *engine.LoadError
			if !errors.As(err, &refused) || refused.Reason != c.reason || !strings.Contains(refused.Message, c.says) ||
				!strings.Contains(refused.Message, c.path) {
				t.Errorf("got %v, want %s with %q", err, c.reason, c.says)
			}
		})
	}
}

// withoutVocabulary makes a file say that it has none. The length of the text stays.
func withoutVocabulary(b []byte) []byte {
	const key, old = "tokenizer.ggml.model", "llama"
	at := bytes.Index(b, []byte(key)) + len(key) + 4 + 8
	return slices.Concat(b[:at-8], binary.LittleEndian.AppendUint64(nil, 4), []byte("none"), b[at+len(old):], []byte{0})
}

func TestTenMegabytesOfOneCharacterTakeLittleMemory(t *testing.T) {
	v := open(t).Vocabulary
	for name, text := range map[string]string{"letters": "a", "spaces": " ", "newlines": "\n", "two bytes": "é", "four bytes": "👍",
		"digits": "0", "bytes that are no text": "\xff\xfe"} {
		long := strings.Repeat(text, 10<<20/len(text))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out, err := v.Tokenize(long, true)
		runtime.ReadMemStats(&after)
		var bad *engine.InvalidError
		if !errors.As(err, &bad) && len(out) > 1024 {
			t.Errorf("%s: %d tokens, %v", name, len(out), err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
			t.Errorf("%s: %d bytes were allocated for %d", name, took, len(long))
		}
	}
}
