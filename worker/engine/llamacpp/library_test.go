package llamacpp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/weights"
)

func TestOnlyThePinnedVersionIsLoaded(t *testing.T) {
	for found, fine := range map[string]bool{"0.5.0": true, "0.5.0-dev": true, "0.5.1": false, "0.9.0-dev": false, "": false, "0.5.01": false} {
		err := judgeVersion("/lib/llama", found)
		if (err == nil) != fine {
			t.Errorf("%q: %v", found, err)
		}
		if err != nil && !(strings.Contains(err.Error(), `"`+found+`"`) && strings.Contains(err.Error(), "expected 0.5.0")) {
			t.Errorf("%q doesn't name both versions: %v", found, err)
		}
	}
}

func TestDefaultsThatMovedAreRefused(t *testing.T) {
	open(t) // the library
	m, c := llama.ModelDefaultParams(), llama.ContextDefaultParams()
	if err := checkDefaults(m, c); err != nil {
		t.Fatal(err)
	}
	moved := c
	moved.NBatch, moved.NUbatch = 512, 2048
	if err := checkDefaults(m, moved); err == nil || !strings.Contains(err.Error(), "context parameters") {
		t.Errorf("got %v", err)
	}
	inserted := m
	inserted.UseExtraBufts, inserted.NoHost = 0, 1
	if err := checkDefaults(inserted, c); err == nil || !strings.Contains(err.Error(), "model parameters") {
		t.Errorf("got %v", err)
	}
}

func TestTheLibraryIsThePinnedOne(t *testing.T) {
	open(t)
	libs, _ := paths(t)
	files, err := mapped(libs)
	if err != nil || len(files) < 4 {
		t.Fatalf("mapped from %s: %v, %v", libs, files, err)
	}
	var log bytes.Buffer
	checkPins(libs, slog.New(slog.NewTextHandler(&log, nil)))
	if log.Len() > 0 {
		t.Error(log.String())
	}
	known := pins["libllama.v0.5.0.so"]
	pins["libllama.v0.5.0.so"] = strings.Repeat("0", 64)
	defer func() { pins["libllama.v0.5.0.so"] = known }()
	checkPins(libs, slog.New(slog.NewTextHandler(&log, nil)))
	if !strings.Contains(log.String(), "not a pinned one") || !strings.Contains(log.String(), known) {
		t.Errorf("another file is reported as %q", log.String())
	}
}

func TestTheTensorTypesAreTheLibrarys(t *testing.T) {
	open(t)
	for n := llama.GGMLType(0); n < llama.GGMLTypeCOUNT+8; n++ {
		block, size, known := weights.TensorType(uint32(n))
		if n >= llama.GGMLTypeCOUNT {
			if known {
				t.Errorf("type %d is unknown to the library", n)
			}
			continue
		}
		if uint64(llama.GGMLBlockSize(n)) != block || llama.GGMLTypeSize(n) != size {
			t.Errorf("type %d: %d numbers in %d bytes, the library says %d in %d", n, block, size, llama.GGMLBlockSize(n), llama.GGMLTypeSize(n))
		}
	}
}

func TestAProcessLoadsOneLibrary(t *testing.T) {
	open(t)
	o := options(t)
	o.LibraryDir = t.TempDir()
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "the process has it from") {
		t.Errorf("got %v", err)
	}
}

func TestAFolderWithoutTheLibraryIsNamed(t *testing.T) {
	dir := t.TempDir()
	if err := checkVersion(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no library":         func(o *Options) { o.LibraryDir = "" },
		"no context":         func(o *Options) { o.ContextTokens = 0 },
		"a huge context":     func(o *Options) { o.ContextTokens = 1 << 40 },
		"no sequences":       func(o *Options) { o.MaxSequences = 0 },
		"too many sequences": func(o *Options) { o.MaxSequences = 257 },
		"no cache type":      func(o *Options) { o.KVType = "" },
		"no threads":         func(o *Options) { o.Threads = 0 },
	} {
		o := options(t)
		change(&o)
		var refused *engine.LoadError
		if _, err := Open(o); err == nil || errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The demo model's length, and that of all before its tensors.
const whole, head = 98362432, 1785664

// broken writes the first bytes of the demo model, changed, and makes a file of size bytes of them: the rest is zero.
func broken(t *testing.T, size int64, change func([]byte) []byte) string {
	t.Helper()
	_, model := paths(t)
	f, err := os.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, min(size, head))
	if _, err := io.ReadFull(f, b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "broken.gguf")
	if err := os.WriteFile(path, change(b), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWeightsThatCantBeUsedSayWhy(t *testing.T) {
	same := func(b []byte) []byte { return b }
	replace := func(old, with string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(with), 1) }
	}
	cases := map[string]struct {
		path   string
		reason string
		says   string
	}{
		"missing":                 {filepath.Join(t.TempDir(), "gone.gguf"), weights.NotFound, "gone.gguf"},
		"empty":                   {broken(t, 0, same), weights.Truncated, "0 bytes"},
		"cut in the first number": {broken(t, 6, same), weights.Truncated, "found 6"},
		"cut in the vocabulary":   {broken(t, 500_000, same), weights.Truncated, "found 500000"},
		"cut behind the head":     {broken(t, head, same), weights.Truncated, "expected 98362432 bytes, found 1785664"},
		"cut by one byte":         {broken(t, whole-1, same), weights.Truncated, "expected 98362432 bytes, found 98362431"},
		"no GGUF":                 {broken(t, 4096, func([]byte) []byte { return []byte("<html>not found</html>") }), weights.NotGGUF, "3c68746d6c"},
		"an unknown architecture": {broken(t, whole, replace("\x05\x00\x00\x00\x00\x00\x00\x00llama",
			"\x05\x00\x00\x00\x00\x00\x00\x00llamb")), weights.Unsupported, "unknown model architecture: 'llamb'"},
		"a tensor by another name": {broken(t, whole, replace("blk.3.attn_q.weight", "blk.3.attn_p.weight")), weights.Unsupported,
			"blk.3.attn_q.weight"},
		"a missing number": {broken(t, whole, replace("llama.block_count", "llama.block_cound")), weights.Unsupported, "block_count"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			o.WeightsPath = c.path
			_, err := Open(o)
			var refused *engine.LoadError
			if !errors.As(err, &refused) || refused.Reason != c.reason || !strings.Contains(refused.Message, c.says) ||
				!strings.Contains(refused.Message, c.path) {
				t.Errorf("got %v, want %s with %q", err, c.reason, c.says)
			}
		})
	}
}

func TestLinesOfTheLibraryAreLogged(t *testing.T) {
	var out bytes.Buffer
	var j journal
	j.use(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
	j.write(llama.LogLevelInfo, "loading ")
	j.write(llama.LogLevelContinue, "model")
	j.write(llama.LogLevelContinue, "\n")
	j.write(llama.LogLevelInfo, "....")
	j.write(llama.LogLevelContinue, "..\n")
	j.write(llama.LogLevelWarn, "one\ntwo\n")
	j.write(llama.LogLevelDebug, "not ended")
	j.write(llama.LogLevelError, "broken: \xff\n")
	j.write(llama.LogLevelError, strings.Repeat("x", 3*longest)+"\n")
	want := `level=DEBUG msg="llama.cpp reports" line="loading model"
level=WARN msg="llama.cpp reports" line=one
level=WARN msg="llama.cpp reports" line=two
level=DEBUG msg="llama.cpp reports" line="not ended"
level=ERROR msg="llama.cpp reports" line="broken: ?"
level=ERROR msg="llama.cpp reports" line=` + strings.Repeat("x", longest) + "\n"
	if out.String() != want {
		t.Errorf("got %s, want %s", out.String(), want)
	}
	if got := j.errors(); !strings.HasPrefix(got, "broken: ?; xxx") {
		t.Errorf("the errors are %.40q", got)
	}
	j.reset()
	if got := j.errors(); got != "it gives no reason" {
		t.Errorf("the errors are %q", got)
	}
}

// panicking is a handler that does what must never reach C.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (panicking) Handle(context.Context, slog.Record) error { panic("handler") }

func TestAPanicWithinACallbackDoesNotReachTheLibrary(t *testing.T) {
	l := open(t, func(o *Options) {
		o.Logger = slog.New(panicking{slog.DiscardHandler})
		o.Progress = func(int) { panic("progress") }
	})
	lines.use(nil)
	step(t, l.Executor, engine.Batch{Items: []engine.Item{{Tokens: []engine.Token{1}, Logits: true}}})
}
