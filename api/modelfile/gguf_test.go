package modelfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
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

// data pads f and adds n bytes of tensor data.
func (f *file) data(n int) []byte {
	f.Write(make([]byte, (32-f.Len()%32)%32+n))
	return f.Bytes()
}

func start(version uint32, tensors, entries uint64) *file {
	f := &file{}
	f.WriteString("GGUF")
	return f.put(version, tensors, entries)
}

// named begins a file that says which architecture it has.
func named(tensors, entries uint64) *file {
	return start(3, tensors, entries+1).put("general.architecture", uint32(8), "llama")
}

// sound is a small valid file: two tensors of 32 and 64 numbers.
func sound() []byte {
	f := start(3, 2, 9)
	f.put("llama.context_length", uint32(4), uint32(2048))
	f.put("general.architecture", uint32(8), "llama")
	f.put("general.name", uint32(8), "Tiny")
	f.put("tokenizer.ggml.tokens", uint32(9), uint32(8), uint64(3), "a", "b", "c")
	f.put("tokenizer.chat_template", uint32(8), strings.Repeat("{{ messages }}", 1000))
	f.put("llama.attention.head_count_kv", uint32(9), uint32(5), uint64(2), int32(8), int32(0))
	f.put("llama.negative", uint32(5), int32(-1))
	f.put("llama.pattern", uint32(9), uint32(7), uint64(2), uint8(1), uint8(0))
	f.put("llama.scale", uint32(6), float32(1.5))
	f.put("a", uint32(1), uint64(32), uint32(2), uint64(0))
	f.put("b", uint32(2), uint64(32), uint64(2), uint32(0), uint64(32))
	return f.data(32 + 64*4)
}

func read(b []byte) (*GGUF, error) { return ReadGGUF(bytes.NewReader(b), int64(len(b))) }

func TestASoundHeadIsRead(t *testing.T) {
	b := sound()
	g, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	if g.Version != 3 || g.Architecture != "llama" || g.Name != "Tiny" || g.Parts != 1 || !g.HasTemplate || g.Parameters != 96 ||
		g.Bytes != uint64(len(b)) || g.ContextTokens() != 2048 {
		t.Errorf("got %+v", *g)
	}
	if len(g.Tensors) != 2 || g.Tensors[0].Name != "a" || g.Tensors[0].Type != "Q4_0" || g.Tensors[0].Bytes != 18 ||
		g.Tensors[1].Offset != 32 || g.Tensors[1].Elements() != 64 || g.Tensors[1].Bytes != 256 {
		t.Errorf("the tensors are %+v", g.Tensors)
	}
}

func TestMetadataIsReadByType(t *testing.T) {
	g, err := read(sound())
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := g.Len("tokenizer.ggml.tokens"); n != 3 || !ok {
		t.Errorf("the vocabulary has %d entries, %t", n, ok)
	}
	if s, ok := g.Text("tokenizer.chat_template"); ok {
		t.Errorf("a long text is kept: %d bytes", len(s))
	}
	if heads := g.Uints("llama.attention.head_count_kv"); len(heads) != 2 || heads[0] != 8 || heads[1] != 0 {
		t.Errorf("the heads are %v", heads)
	}
	if pattern := g.Uints("llama.pattern"); len(pattern) != 2 || pattern[0] != 1 {
		t.Errorf("the pattern is %v", pattern)
	}
	if one := g.Uints("llama.context_length"); len(one) != 1 || one[0] != 2048 {
		t.Errorf("one number as an array is %v", one)
	}
	if x, ok := g.Float("llama.scale"); x != 1.5 || !ok {
		t.Errorf("the scale is %v, %t", x, ok)
	}
	if x, ok := g.Float("llama.context_length"); ok {
		t.Errorf("a whole number passes for %v", x)
	}
	for _, key := range []string{"llama.negative", "llama.scale", "llama.pattern", "general.name", "none"} {
		if n, ok := g.Uint(key); ok {
			t.Errorf("%s passes for %d", key, n)
		}
	}
}

func TestAFileCutAnywhereIsTruncated(t *testing.T) {
	b := sound()
	for n := range len(b) {
		_, err := read(b[:n])
		var refused *Error
		if !errors.As(err, &refused) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		want := Truncated
		if n > 0 && n < 4 {
			want = Foreign // part of the first word says nothing yet
		}
		if refused.Problem != want {
			t.Fatalf("cut to %d bytes: %v, want %s", n, err, want)
		}
	}
}

func TestDamagedHeadsAreRefused(t *testing.T) {
	cases := map[string]struct {
		file    *file
		problem Problem
		says    string
	}{
		"another format":       {(&file{}).put(uint64(0x04034b50), uint64(1)), Foreign, "504b0304"},
		"version 1":            {start(1, 1, 1), Unsupported, "version 1"},
		"the other byte order": {start(0x03000000, 1, 1), Unsupported, "big-endian"},
		"too many tensors":     {start(3, 1<<40, 1), Damaged, "1099511627776 tensors"},
		"too many entries":     {start(3, 1, 1<<50), Damaged, "metadata entries"},
		"a huge key":           {start(3, 1, 1).put(uint64(1 << 62)), Damaged, "bytes, expected at most"},
		"a huge string":        {start(3, 1, 1).put("k", uint32(8), uint64(1<<62)), Truncated, "cut off within its head"},
		"a huge array":         {start(3, 1, 1).put("k", uint32(9), uint32(10), uint64(1<<62)), Damaged, "elements of an array"},
		"an array of a claimed length": {start(3, 1, 1).put("k", uint32(9), uint32(8), uint64(1<<25)), Truncated,
			"cut off"},
		"arrays in arrays": {start(3, 1, 1).put("k", uint32(9), uint32(9), uint64(1), uint32(9), uint64(1), uint32(9), uint64(1),
			uint32(9), uint64(1), uint32(9), uint64(1)), Damaged, "nest deeper"},
		"an unknown value type": {start(3, 1, 1).put("k", uint32(13)), Damaged, "type 13"},
		"an unknown type in an array": {start(3, 1, 1).put("k", uint32(9), uint32(99), uint64(1)), Damaged,
			"type 99"},
		"a key of bad UTF-8": {start(3, 1, 1).put("\xff\xfe"), Damaged, "UTF-8"},
		"a key twice":        {start(3, 1, 2).put("k", uint32(0), uint8(1), "k", uint32(0), uint8(1)), Damaged, `"k" twice`},
		"no architecture":    {start(3, 1, 1).put("k", uint32(0), uint8(1)), Unsupported, "general.architecture"},
		"a number for an architecture": {start(3, 1, 1).put("general.architecture", uint32(0), uint8(1)), Unsupported,
			"general.architecture"},
		"too many parts":   {named(1, 1).put("split.count", uint32(4), uint32(1<<20)), Damaged, "1048576 parts"},
		"an odd alignment": {named(1, 1).put("general.alignment", uint32(4), uint32(33)), Damaged, "alignment is 33"},
		"alignment 0":      {named(1, 1).put("general.alignment", uint32(4), uint32(0)), Damaged, "alignment is 0"},
		"no tensors":       {named(0, 0), Unsupported, "no tensors"},
		"five dimensions":  {named(1, 0).put("t", uint32(5)), Damaged, "5 dimensions"},
		"a dimension of 0": {named(1, 0).put("t", uint32(1), uint64(0)), Damaged, "dimension 0"},
		"dimensions that overflow": {named(1, 0).put("t", uint32(2), uint64(1<<40), uint64(1<<40)), Damaged,
			"dimension 1"},
		"an unknown tensor type": {named(1, 0).put("t", uint32(1), uint64(32), uint32(99), uint64(0)), Unsupported,
			"type 99"},
		"a row that is no whole block": {named(1, 0).put("t", uint32(1), uint64(31), uint32(2), uint64(0)), Damaged,
			"multiple of 32"},
		"a size that overflows": {named(1, 0).put("t", uint32(1), uint64(1<<62), uint32(0), uint64(0)), Damaged,
			"beyond any file"},
		"an offset that lies": {named(2, 0).put("t", uint32(1), uint64(32), uint32(0), uint64(0)).
			put("u", uint32(1), uint64(32), uint32(0), uint64(96)), Damaged, "begins at byte 96 of the tensor data, expected 128"},
		"a tensor beyond the file": {named(1, 0).put("t", uint32(1), uint64(1<<38), uint32(0), uint64(0)), Truncated,
			"expected 1099511627904 bytes, found 102"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := read(c.file.Bytes())
			var refused *Error
			if !errors.As(err, &refused) || refused.Problem != c.problem || !strings.Contains(refused.Says, c.says) {
				t.Errorf("got %v, want %s with %q", err, c.problem, c.says)
			}
		})
	}
}

func TestAPartOfAModelIsReadAsOne(t *testing.T) {
	g, err := read(named(1, 1).put("split.count", uint32(2), uint16(3)).put("t", uint32(1), uint64(32), uint32(0), uint64(0)).data(128))
	if err != nil || g.Parts != 3 {
		t.Errorf("got %+v, %v", g, err)
	}
}

func TestABrokenReaderIsNoTruncation(t *testing.T) {
	broken := errors.New("input/output error")
	_, err := ReadGGUF(&failing{bytes.NewReader(sound()[:60]), broken}, 600)
	var refused *Error
	if !errors.As(err, &refused) || refused.Problem != Unreadable || !strings.Contains(refused.Says, "input/output error") {
		t.Errorf("got %v", err)
	}
}

type failing struct {
	r   *bytes.Reader
	err error
}

func (f *failing) ReadAt(b []byte, at int64) (int, error) {
	n, err := f.r.ReadAt(b, at)
	if err == io.EOF {
		err = f.err
	}
	return n, err
}

func FuzzGGUF(f *testing.F) {
	f.Add(sound())
	f.Add(sound()[:100])
	f.Add(start(3, 1, 1).put("k", uint32(9), uint32(8), uint64(1<<25)).Bytes())
	f.Add(start(2, 1<<17, 1<<15).put(uint64(1 << 15)).Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		g, err := read(b)
		runtime.ReadMemStats(&after)
		// What the parser takes is its buffer and what it keeps, never what the file claims.
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20+128*uint64(len(b)) {
			t.Errorf("%d bytes were allocated for a file of %d", grown, len(b))
		}
		var refused *Error
		switch {
		case err != nil && !errors.As(err, &refused):
			t.Errorf("the error is %T: %v", err, err)
		case err == nil && (g.Bytes > uint64(len(b)) || len(g.Tensors) == 0 || g.Architecture == ""):
			t.Errorf("accepted %+v in %d bytes", *g, len(b))
		case err == nil:
			if _, err := GGUFShape(g); err != nil && !errors.As(err, &refused) {
				t.Errorf("the error is %T: %v", err, err)
			}
		}
	})
}
