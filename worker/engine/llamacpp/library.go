package llamacpp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/hybridgroup/yzma/pkg/llama"
	"github.com/hybridgroup/yzma/pkg/loader"
	"github.com/jupiterrider/ffi"
	"golang.org/x/sys/unix"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// library is libllama in this process. It is loaded once and never unloaded.
type library struct {
	dir string
	// tokenize is llama_tokenize. The binding's own wrapper passes a null pointer for a text that holds a NUL.
	tokenize ffi.Fun
	// setAdapters is llama_set_adapters_lora.
	setAdapters ffi.Fun
	// setAbort is llama_set_abort_callback. The binding's own makes a callback each time.
	setAbort ffi.Fun
	checked  bool // the golden conversation went as it must; guarded by opening
	// progress and abort are callbacks, made once: a process can make 2000 of them and never frees one.
	progress, abort uintptr
	sink            atomic.Pointer[func(float32)]
}

// loaded is guarded by opening.
var loaded *library

// load returns the process's library, loaded from dir. It refuses another version before any struct goes to or comes from
// the library by value.
func load(dir string, log *slog.Logger) (*library, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("load llama.cpp: %w", err)
	}
	lines.use(log)
	if loaded != nil {
		if loaded.dir != dir {
			return nil, fmt.Errorf("load llama.cpp from %s: the process has it from %s already; restart it", dir, loaded.dir)
		}
		return loaded, nil
	}
	if err := checkVersion(dir); err != nil {
		return nil, err
	}
	if err := llama.Load(dir); err != nil {
		return nil, fmt.Errorf("load llama.cpp from %s: %w", dir, err)
	}
	l := &library{dir: dir, abort: purego.NewCallback(aborted)}
	if l.tokenize, err = symbol(dir, "llama", "llama_tokenize", &ffi.TypeSint32, &ffi.TypePointer, &ffi.TypePointer, &ffi.TypeSint32,
		&ffi.TypePointer, &ffi.TypeSint32, &ffi.TypeUint8, &ffi.TypeUint8); err != nil {
		return nil, err
	}
	if l.setAdapters, err = symbol(dir, "llama", "llama_set_adapters_lora", &ffi.TypeSint32, &ffi.TypePointer, &ffi.TypePointer,
		&ffi.TypeUint64, &ffi.TypePointer); err != nil {
		return nil, err
	}
	if l.setAbort, err = symbol(dir, "llama", "llama_set_abort_callback", &ffi.TypeVoid, &ffi.TypePointer, &ffi.TypePointer,
		&ffi.TypePointer); err != nil {
		return nil, err
	}
	if err := returnMemory(); err != nil {
		return nil, err
	}
	llama.LogSet(purego.NewCallback(logged))
	llama.Init()
	if llama.GGMLBackendDeviceCount() == 0 {
		return nil, fmt.Errorf("load llama.cpp from %s: no libggml-cpu-*.so there suits this machine's CPU", dir)
	}
	if err := checkDefaults(llama.ModelDefaultParams(), llama.ContextDefaultParams()); err != nil {
		return nil, err
	}
	checkPins(dir, log)
	var params llama.ModelParams
	params.SetProgressCallback(l.progressed)
	l.progress = params.ProgressCallback
	loaded = l
	return l, nil
}

// returnMemory has the C library give large blocks back to the system when they are freed, such as those of a context.
// By itself it keeps blocks of up to 32 MiB for the next time, once it has seen one of that size.
func returnMemory() error {
	const mmapThreshold, bytes = -3, 1 << 20 // M_MMAP_THRESHOLD
	libc, err := ffi.Load("libc.so.6")
	if err != nil {
		return fmt.Errorf("set up the C library's memory: %w", err)
	}
	mallopt, err := libc.Prep("mallopt", &ffi.TypeSint32, &ffi.TypeSint32, &ffi.TypeSint32)
	if err != nil {
		return fmt.Errorf("set up the C library's memory: %w", err)
	}
	var set ffi.Arg
	option, value := int32(mmapThreshold), int32(bytes)
	mallopt.Call(unsafe.Pointer(&set), unsafe.Pointer(&option), unsafe.Pointer(&value))
	if int32(set) != 1 {
		return errors.New("set up the C library's memory: mallopt refuses")
	}
	return nil
}

// symbol returns a function of lib<file>.so in dir.
func symbol(dir, file, name string, result *ffi.Type, args ...*ffi.Type) (ffi.Fun, error) {
	lib, err := loader.LoadLibrary(dir, file)
	if err != nil {
		return ffi.Fun{}, fmt.Errorf("load llama.cpp from %s: %w", dir, err)
	}
	f, err := lib.Prep(name, result, args...)
	if err != nil {
		return ffi.Fun{}, fmt.Errorf("load llama.cpp from %s: it exports no %s: %w", dir, name, err)
	}
	return f, nil
}

// checkVersion compares llama_version, which takes nothing and returns a string.
func checkVersion(dir string) error {
	f, err := symbol(dir, "llama", "llama_version", &ffi.TypePointer)
	if err != nil {
		return fmt.Errorf("%w; expected version %s", err, version)
	}
	var text *byte
	f.Call(unsafe.Pointer(&text))
	return judgeVersion(dir, unix.BytePtrToString(text))
}

func judgeVersion(dir, found string) error {
	if found == version || strings.HasPrefix(found, version+"-") {
		return nil
	}
	return fmt.Errorf("load llama.cpp from %s: found version %q, expected %s", dir, found, version)
}

// checkDefaults compares the library's default parameters with those of the version that the structs here belong to: a
// field that moved shows as a number in the wrong place.
func checkDefaults(m llama.ModelParams, c llama.ContextParams) error {
	c.NThreads, c.NThreadsBatch = 0, 0 // the binding sets them by the machine
	wantModel := llama.ModelParams{NGpuLayers: -1, SplitMode: llama.SplitModeLayer, LoadMode: llama.LoadModeAuto,
		LazyMode: llama.LazyModeAuto, UseExtraBufts: 1}
	wantContext := llama.ContextParams{NCtx: 512, NBatch: 2048, NUbatch: 512, NSeqMax: 1, NOutputsMaxPerSeq: 1,
		RopeScalingType: llama.RopeScalingTypeUnspecified, PoolingType: llama.PoolingTypeUnspecified,
		AttentionType: llama.AttentionTypeUnspecified, FlashAttentionType: llama.FlashAttentionTypeAuto, YarnExtFactor: -1,
		YarnAttnFactor: -1, YarnBetaFast: -1, YarnBetaSlow: -1, DefragThold: -1, TypeK: llama.GGMLTypeF16,
		TypeV: llama.GGMLTypeF16, Offload_kqv: 1, NoPerf: 1, OpOffload: 1, SwaFull: 1}
	if m != wantModel {
		return fmt.Errorf("load llama.cpp: the default model parameters are %+v, expected %+v: the library doesn't fit", m, wantModel)
	}
	if c != wantContext {
		return fmt.Errorf("load llama.cpp: the default context parameters are %+v, expected %+v: the library doesn't fit", c, wantContext)
	}
	return nil
}

// checkPins warns of files of the library that this version wasn't tested with.
func checkPins(dir string, log *slog.Logger) {
	files, err := mapped(dir)
	if err != nil || len(files) == 0 {
		log.Warn("The library's files can't be compared with the pinned ones", "dir", dir, "error", err)
		return
	}
	for _, path := range files {
		if found, err := digest(path); err != nil || found != pins[filepath.Base(path)] {
			log.Warn("A file of the library is not a pinned one", "file", path, "found", found,
				"expected", pins[filepath.Base(path)], "error", err)
		}
	}
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// report sends the progress of the next load to f.
func (l *library) report(f func(percent int)) {
	if f == nil {
		l.sink.Store(nil)
		return
	}
	last := -1
	sink := func(part float32) {
		if p := int(part * 100); p > last && p <= 100 {
			last = p
			f(p)
		}
	}
	l.sink.Store(&sink)
}

// progressed is called by the library while it loads, with a part of 1; it answers 1 to go on.
func (l *library) progressed(part float32, _ uintptr) (goOn uint8) {
	defer func() { _ = recover() }() // a panic can't pass through C
	goOn = 1
	if sink := l.sink.Load(); sink != nil {
		(*sink)(part)
	}
	return goOn
}

// fatal marks err as one after which the process must end.
func fatal(format string, args ...any) error {
	return fmt.Errorf("%w: %w", engine.ErrFatal, fmt.Errorf(format, args...))
}
