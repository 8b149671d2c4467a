package modelfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"
)

// safe makes a safetensors file of a head and n bytes of data.
func safe(head string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	return append(append(b, head...), make([]byte, n)...)
}

const twoTensors = `{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},"e":{"dtype":"F16","shape":[0,3],"data_offsets":[24,24]}}  `

func readSafe(b []byte) (*Safetensors, error) {
	return ReadSafetensors(bytes.NewReader(b), int64(len(b)))
}

func TestASoundSafetensorsHeadIsRead(t *testing.T) {
	b := safe(twoTensors, 24)
	s, err := readSafe(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Tensors) != 3 || s.Parameters != 8 || s.Bytes != uint64(len(b)) || s.Tensors[0].Name != "a" || s.Tensors[1].Bytes != 16 {
		t.Errorf("got %+v", *s)
	}
}

func TestDamagedSafetensorsAreRefused(t *testing.T) {
	one := func(tensor string, n int) []byte { return safe(`{"t":`+tensor+`}`, n) }
	for name, c := range map[string]struct {
		file    []byte
		problem Problem
		says    string
	}{
		"an empty file":          {nil, Truncated, "found 0"},
		"seven bytes":            {make([]byte, 7), Truncated, "found 7"},
		"another format":         {[]byte("GGUF\x03\x00\x00\x00 and so on"), Foreign, "expected 2 to 100000000"},
		"a head beyond the file": {safe(twoTensors, 0)[:50], Truncated, "found 50"},
		"data cut off":           {safe(twoTensors, 23), Truncated, "expected 233 bytes, found 232"},
		"data behind the end":    {safe(twoTensors, 25), Damaged, "expected 233 bytes, found 234"},
		"no JSON":                {safe("{]", 0), Damaged, "no JSON at byte"},
		"a list":                 {safe("[]", 0), Damaged, "expected a JSON object"},
		"something behind":       {safe("{} {}", 0), Damaged, "something follows"},
		"an object that is open": {safe(`{"t":`, 0), Damaged, "EOF"},
		"an unknown type":        {one(`{"dtype":"F7","shape":[1],"data_offsets":[0,1]}`, 1), Unsupported, `"F7"`},
		"no offsets":             {one(`{"dtype":"U8","shape":[1]}`, 1), Damaged, "of none"},
		"offsets backwards":      {one(`{"dtype":"U8","shape":[1],"data_offsets":[2,1]}`, 2), Damaged, "[2 1]"},
		"a size that lies":       {one(`{"dtype":"F32","shape":[2],"data_offsets":[0,4]}`, 4), Damaged, "doesn't fill its 4 bytes"},
		"half a byte":            {one(`{"dtype":"F4","shape":[3],"data_offsets":[0,1]}`, 1), Damaged, "doesn't fill"},
		"dimensions that overflow": {one(`{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}`, 0), Damaged,
			"dimensions of tensor"},
		"bits that overflow": {one(`{"dtype":"U8","shape":[4611686018427387904],"data_offsets":[0,0]}`, 0), Damaged, "doesn't fill"},
		"many dimensions":    {one(`{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}`, 1), Damaged, "9 dimensions"},
		"endless dimensions": {one(`{"dtype":"U8","shape":[`+strings.Repeat("1,", 500)+`1],"data_offsets":[0,1]}`, 1), Damaged, "256 bytes"},
		"a gap":              {one(`{"dtype":"U8","shape":[1],"data_offsets":[1,2]}`, 2), Damaged, "begins at byte 1 of the tensor data, expected 0"},
		"tensors that overlap": {safe(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3),
			Damaged, "begins at byte 1 of the tensor data, expected 2"},
		"a name twice": {safe(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2),
			Damaged, `"a" is there twice`},
		"a text for a number": {one(`{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}`, 1), Damaged, "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readSafe(c.file)
			var refused *Error
			if !errors.As(err, &refused) || refused.Problem != c.problem || !strings.Contains(refused.Says, c.says) {
				t.Errorf("got %v, want %s with %q", err, c.problem, c.says)
			}
		})
	}
}

func TestABrokenReaderOfSafetensorsIsNoTruncation(t *testing.T) {
	broken := errors.New("input/output error")
	for _, n := range []int64{3, 60} {
		_, err := ReadSafetensors(&failing{bytes.NewReader(safe(twoTensors, 24)[:n]), broken}, 234)
		var refused *Error
		if !errors.As(err, &refused) || refused.Problem != Unreadable || !strings.Contains(refused.Says, "input/output error") {
			t.Errorf("broken at %d: %v", n, err)
		}
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(safe(twoTensors, 24))
	f.Add(safe(`{"t":{"dtype":"U8","shape":[4611686018427387904],"data_offsets":[0,0]}}`, 0))
	f.Add(safe(strings.Repeat("[", 1000), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := readSafe(b)
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20+128*uint64(len(b)) {
			t.Errorf("%d bytes were allocated for a file of %d", grown, len(b))
		}
		var refused *Error
		switch {
		case err != nil && !errors.As(err, &refused):
			t.Errorf("the error is %T: %v", err, err)
		case err == nil && s.Bytes != uint64(len(b)):
			t.Errorf("accepted %+v in %d bytes", *s, len(b))
		}
	})
}
