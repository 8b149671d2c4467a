package weights

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// file builds GGUF files.
type file struct{ bytes.Buffer }

func (f *file) put(vs ...any) *file {
	for _, v := range vs {
		if s, ok := v.(string); ok {
			f.put(uint64(len(s)))
			f.WriteString(s)
			continue
		}
		if err := binary.Write(f, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return f
}

func start(version uint32, tensors, entries uint64) *file {
	f := &file{}
	f.WriteString("GGUF")
	return f.put(version, tensors, entries)
}

// sound is a small valid file: two tensors of 32 and 64 numbers.
func sound() []byte {
	f := start(3, 2, 5)
	f.put("llama.context_length", uint32(4), uint32(2048))
	f.put("general.architecture", uint32(8), "llama")
	f.put("general.name", uint32(8), "Tiny")
	f.put("tokenizer.ggml.tokens", uint32(9), uint32(8), uint64(3), "a", "b", "c")
	f.put("tokenizer.chat_template", uint32(8), "{{ messages }}")
	f.put("a", uint32(1), uint64(32), uint32(2), uint64(0))
	f.put("b", uint32(2), uint64(32), uint64(2), uint32(0), uint64(32))
	for f.Len()%32 != 0 {
		f.WriteByte(0)
	}
	f.Write(make([]byte, 32+64*4))
	return f.Bytes()
}

func read(b []byte) (*Header, error) { return ReadHeader(bytes.NewReader(b), "w.gguf", uint64(len(b))) }

func TestASoundHeadIsRead(t *testing.T) {
	b := sound()
	h, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	want := Header{Version: 3, Architecture: "llama", Name: "Tiny", ContextTokens: 2048, Tensors: 2, Parameters: 96,
		Bytes: uint64(len(b)), HasTemplate: true}
	if *h != want {
		t.Errorf("got %+v, want %+v", *h, want)
	}
}

func TestAFileCutAnywhereIsTruncated(t *testing.T) {
	b := sound()
	for n := range len(b) {
		_, err := read(b[:n])
		var refused *engine.LoadError
		if !errors.As(err, &refused) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		want := Truncated
		if n > 0 && n < 4 {
			want = NotGGUF // part of the first word says nothing yet
		}
		if refused.Reason != want {
			t.Fatalf("cut to %d bytes: %v, want %s", n, err, want)
		}
	}
}

func TestDamagedHeadsAreRefused(t *testing.T) {
	arch := func(f *file) *file { return f.put("general.architecture", uint32(8), "llama") }
	cases := map[string]struct {
		file   *file
		reason string
		says   string
	}{
		"another format":               {(&file{}).put(uint64(0x04034b50), uint64(1)), NotGGUF, "504b0304"},
		"version 1":                    {start(1, 1, 1), Unsupported, "version 1"},
		"the other byte order":         {start(0x03000000, 1, 1), Unsupported, "big-endian"},
		"too many tensors":             {start(3, 1<<40, 1), NotGGUF, "1099511627776 tensors"},
		"too many entries":             {start(3, 1, 1<<50), NotGGUF, "metadata entries"},
		"a huge key":                   {start(3, 1, 1).put(uint64(1 << 62)), NotGGUF, "bytes, expected at most"},
		"a huge string":                {start(3, 1, 1).put("k", uint32(8), uint64(1<<62)), Truncated, "cut off within its head"},
		"a huge array":                 {start(3, 1, 1).put("k", uint32(9), uint32(10), uint64(1<<62)), NotGGUF, "elements of an array"},
		"an array of a claimed length": {start(3, 1, 1).put("k", uint32(9), uint32(8), uint64(1<<25)), Truncated, "cut off"},
		"arrays in arrays": {start(3, 1, 1).put("k", uint32(9), uint32(9), uint64(1), uint32(9), uint64(1), uint32(9), uint64(1),
			uint32(9), uint64(1), uint32(9), uint64(1)), NotGGUF, "nest deeper"},
		"an unknown value type": {start(3, 1, 1).put("k", uint32(13)), NotGGUF, "type 13"},
		"a key of bad UTF-8":    {start(3, 1, 1).put("\xff\xfe"), NotGGUF, "UTF-8"},
		"no architecture":       {start(3, 1, 1).put("k", uint32(0), uint8(1)), Unsupported, "general.architecture"},
		"a part of a model":     {start(3, 1, 1).put("split.count", uint32(2), uint16(3)), Unsupported, "one of 3 parts"},
		"an odd alignment":      {start(3, 1, 1).put("general.alignment", uint32(4), uint32(33)), NotGGUF, "alignment is 33"},
		"alignment 0":           {start(3, 1, 1).put("general.alignment", uint32(4), uint32(0)), NotGGUF, "alignment is 0"},
		"no tensors":            {arch(start(3, 0, 1)), Unsupported, "no tensors"},
		"five dimensions":       {arch(start(3, 1, 1)).put("t", uint32(5)), NotGGUF, "5 dimensions"},
		"a dimension of 0":      {arch(start(3, 1, 1)).put("t", uint32(1), uint64(0)), NotGGUF, "dimension 0"},
		"dimensions that overflow": {arch(start(3, 1, 1)).put("t", uint32(2), uint64(1<<40), uint64(1<<40)), NotGGUF,
			"dimension 1"},
		"an unknown tensor type": {arch(start(3, 1, 1)).put("t", uint32(1), uint64(32), uint32(99), uint64(0)), Unsupported,
			"type 99"},
		"a row that is no whole block": {arch(start(3, 1, 1)).put("t", uint32(1), uint64(31), uint32(2), uint64(0)), NotGGUF,
			"multiple of 32"},
		"an offset that overflows": {arch(start(3, 1, 1)).put("t", uint32(1), uint64(32), uint32(0), ^uint64(0)), NotGGUF,
			"beyond any file"},
		"an offset beyond the file": {arch(start(3, 1, 1)).put("t", uint32(1), uint64(32), uint32(0), uint64(1<<40)), Truncated,
			"expected 1099511628032 bytes, found 102"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := read(c.file.Bytes())
			var refused *engine.LoadError
			if !errors.As(err, &refused) || refused.Reason != c.reason || !strings.Contains(refused.Message, c.says) ||
				!strings.Contains(refused.Message, "w.gguf") {
				t.Errorf("got %v, want %s with %q", err, c.reason, c.says)
			}
		})
	}
}

func TestABrokenReaderIsNoTruncation(t *testing.T) {
	broken := errors.New("input/output error")
	_, err := ReadHeader(&failing{bytes.NewReader(sound()[:60]), broken}, "w.gguf", 600)
	var refused *engine.LoadError
	if !errors.As(err, &refused) || refused.Reason != NotFound || !strings.Contains(refused.Message, "input/output error") {
		t.Errorf("got %v", err)
	}
}

type failing struct {
	r   *bytes.Reader
	err error
}

func (f *failing) Read(b []byte) (int, error) {
	if f.r.Len() == 0 {
		return 0, f.err
	}
	return f.r.Read(b)
}

func FuzzGGUFHeader(f *testing.F) {
	f.Add(sound())
	f.Add(sound()[:100])
	f.Add(start(3, 1, 1).put("k", uint32(9), uint32(8), uint64(1<<25)).Bytes())
	f.Add(start(2, 1<<19, 1<<15).put(uint64(1 << 15)).Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		h, err := read(b)
		runtime.ReadMemStats(&after)
		// What the parser takes is its buffer and what it keeps, never what the file claims.
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20+64*uint64(len(b)) {
			t.Errorf("%d bytes were allocated for a file of %d", grown, len(b))
		}
		var refused *engine.LoadError
		switch {
		case err != nil && !errors.As(err, &refused):
			t.Errorf("the error is %T: %v", err, err)
		case err == nil && (h.Bytes > uint64(len(b)) || h.Tensors == 0 || h.Architecture == ""):
			t.Errorf("accepted %+v in %d bytes", *h, len(b))
		}
	})
}
