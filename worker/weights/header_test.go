package weights

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// gguf is a file with one tensor of 32 numbers and some further metadata.
func gguf(entries uint64, metadata ...any) []byte {
	var b bytes.Buffer
	put := func(vs ...any) {
		for _, v := range vs {
			if s, ok := v.(string); ok {
				v = append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...)
			}
			if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
				panic(err)
			}
		}
	}
	b.WriteString("GGUF")
	put(uint32(3), uint64(1), entries+2)
	put("general.architecture", uint32(8), "llama", "general.name", uint32(8), "Tiny")
	put(metadata...)
	put("a", uint32(1), uint64(32), uint32(0), uint64(0))
	b.Write(make([]byte, (32-b.Len()%32)%32+128))
	return b.Bytes()
}

func sound() []byte { return gguf(0) }

func TestEveryProblemOfAFileHasItsReason(t *testing.T) {
	whole := sound()
	for name, c := range map[string]struct {
		file   []byte
		reason string
		says   string
	}{
		"a sound file":      {whole, "", ""},
		"another format":    {[]byte("<html>not found</html>"), NotGGUF, "is not GGUF: expected it to begin with 47475546, found 3c68746d6c"},
		"a damaged head":    {gguf(1, "general.alignment", uint32(4), uint32(33)), NotGGUF, "its alignment is 33"},
		"a file cut off":    {whole[:len(whole)-1], Truncated, "is cut off: expected 288 bytes, found 287"},
		"an empty file":     {nil, Truncated, "found 0 bytes"},
		"an old version":    {append([]byte("GGUF\x01\x00\x00\x00"), whole[8:]...), Unsupported, "is GGUF version 1; expected 2 or 3"},
		"a part of a model": {gguf(1, "split.count", uint32(2), uint16(3)), Unsupported, "one of 3 parts"},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := ReadHeader(bytes.NewReader(c.file), "w.gguf", uint64(len(c.file)))
			var refused *engine.LoadError
			switch {
			case c.reason == "" && (err != nil || h.Architecture != "llama" || h.Name != "Tiny" || h.Parameters != 32):
				t.Errorf("got %+v, %v", h, err)
			case c.reason != "" && (!errors.As(err, &refused) || refused.Reason != c.reason || !strings.Contains(refused.Message, "the weights file w.gguf ") ||
				!strings.Contains(refused.Message, c.says)):
				t.Errorf("got %v, want %s with %q", err, c.reason, c.says)
			}
		})
	}
}
