package llamacpp

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"github.com/hybridgroup/yzma/pkg/llama"
	"github.com/jupiterrider/ffi"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/weights"
)

// maxAdapters is the most adapters that are loaded at once: each takes memory, and the graph has room for all of them.
const maxAdapters = 64

// adapters are the LoRA adapters of a model, and which of them its context applies. The library applies one set to a whole
// context, so each step has one; to change it costs a new graph.
type adapters struct {
	lib     *library
	model   *model
	context llama.Context
	named   map[string]llama.AdapterLora
	applied string
}

func newAdapters(lib *library, m *model, c llama.Context) adapters {
	return adapters{lib: lib, model: m, context: c, named: map[string]llama.AdapterLora{}}
}

// known says that there is no adapter of that name.
func (a *adapters) known(name string) error {
	if _, there := a.named[name]; name != "" && !there {
		return fmt.Errorf("there is no adapter %q", name)
	}
	return nil
}

// apply makes the steps that follow run with the adapter of that name, "" for none.
func (a *adapters) apply(name string) error {
	if name == a.applied {
		return nil
	}
	var handles []llama.AdapterLora
	if name != "" {
		handles = append(handles, a.named[name])
	}
	if code := a.lib.applyAdapters(a.context, handles); code != 0 {
		return fatal("apply the adapter %q: llama.cpp returned %d", name, code)
	}
	a.applied = name
	return nil
}

// load adds an adapter or replaces the one of its name.
func (a *adapters) load(from engine.Adapter) error {
	_, replaces := a.named[from.Name]
	switch {
	case from.Name == "":
		return errors.New("load an adapter: it has no name")
	case !replaces && len(a.named) >= maxAdapters:
		return fmt.Errorf("load adapter %s: %d are loaded already, at most %d can be", from.Name, len(a.named), maxAdapters)
	}
	if err := a.inspect(from.Path); err != nil {
		return err
	}
	lines.reset()
	handle, err := llama.AdapterLoraInit(a.model.handle, from.Path)
	if err != nil || handle == 0 {
		return adapterRefused(from.Path, weights.Unsupported, "is sound, but llama.cpp can't load it: "+lines.errors())
	}
	if replaces {
		if err := a.unload(from.Name); err != nil {
			return err
		}
	}
	a.named[from.Name] = handle
	return nil
}

// unload frees an adapter. The context must not have it then: it would go on reading its memory.
func (a *adapters) unload(name string) error {
	handle, there := a.named[name]
	if !there {
		return fmt.Errorf("unload adapter %q: %w", name, a.known(name))
	}
	if a.applied == name {
		if err := a.apply(""); err != nil {
			return err
		}
	}
	delete(a.named, name)
	return llama.AdapterLoraFree(handle)
}

// inspect checks an adapter's file against the model. What the library would assert is refused here.
func (a *adapters) inspect(path string) error {
	head, err := readHead(path)
	if err != nil {
		return err
	}
	refuse := func(format string, args ...any) error {
		return adapterRefused(path, weights.Unsupported, fmt.Sprintf(format, args...))
	}
	kind, _ := head.Text("general.type")
	method, _ := head.Text("adapter.type")
	switch {
	case kind != "adapter" || method != "lora":
		return refuse("is no LoRA adapter: its general.type is %q and its adapter.type %q, expected adapter and lora", kind, method)
	case head.Architecture != a.model.architecture:
		return refuse("is for the architecture %s, the model is of %s", head.Architecture, a.model.architecture)
	}
	if _, activated := head.Len("adapter.alora.invocation_tokens"); activated {
		return refuse("is activated by tokens in the prompt (aLoRA), which this version can't do")
	}
	if _, found := head.Float("adapter.lora.alpha"); !found {
		return refuse("has no scale: adapter.lora.alpha must be a 32-bit float")
	}
	return a.fits(head, refuse)
}

// fits compares the matrices of an adapter with those that they change.
func (a *adapters) fits(head *modelfile.GGUF, refuse func(string, ...any) error) error {
	halves := map[string]map[string][]uint64{}
	for _, t := range head.Tensors {
		if strings.HasSuffix(t.Name, "_norm.weight") {
			continue // the library ignores it
		}
		name, half, ok := cutHalf(t.Name)
		if !ok {
			return refuse("has a tensor %s, which is neither .lora_a nor .lora_b", t.Name)
		}
		if !slices.Contains(numberTypes, t.Type) {
			return refuse("has a tensor %s of type %s, expected one of %s", t.Name, t.Type, strings.Join(numberTypes, ", "))
		}
		if halves[name] == nil {
			halves[name] = map[string][]uint64{}
		}
		halves[name][half] = padded(t.Dims)
	}
	if len(halves) == 0 {
		return refuse("changes nothing: it holds no pair of .lora_a and .lora_b")
	}
	for name, pair := range halves {
		if why := a.misfit(name, pair["a"], pair["b"]); why != "" {
			return refuse("%s", why)
		}
	}
	return nil
}

// output is the matrix that makes logits of states. Models without one use that of the token embeddings twice.
const embeddings, output = "token_embd.weight", "output.weight"

// misfit says why the matrices first and second, of four dimensions each, can't change the model's tensor of that name.
func (a *adapters) misfit(name string, first, second []uint64) string {
	base, there := a.model.tensors[name]
	_, untied := a.model.tensors[output]
	switch {
	case !there:
		return fmt.Sprintf("changes %s, which the model hasn't", name)
	case first == nil || second == nil:
		return fmt.Sprintf("has one of %s.lora_a and %s.lora_b, expected both", name, name)
	case name == embeddings && !untied:
		return fmt.Sprintf("changes %s, which is this model's output too; the library can't change both", name)
	case base.Type == "NVFP4":
		return fmt.Sprintf("changes %s, whose type is %s; the library can't change that", name, base.Type)
	}
	// The input's width comes out of first at the adapter's rank, and of second at the output's width. The rows of the
	// embeddings are looked up instead of multiplied: first has a row of the rank for each token.
	want := padded(base.Dims)
	got, rank := []uint64{first[0], second[1], first[2], first[3]}, first[1]
	if name == embeddings {
		got, rank = []uint64{second[1], first[1], first[2], first[3]}, first[0]
	}
	if rank != second[0] || !slices.Equal(got, want) || !slices.Equal(first[2:], second[2:]) {
		return fmt.Sprintf("changes %s by %v and %v, which doesn't fit the model's %v", name, first, second, want)
	}
	return ""
}

// numberTypes are what the halves of an adapter may be of; the library multiplies by them.
var numberTypes = []string{"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"}

// cutHalf splits the name of an adapter's tensor into that of the model's tensor and a or b.
func cutHalf(name string) (base, half string, ok bool) {
	for _, half := range []string{"a", "b"} {
		if base, ok := strings.CutSuffix(name, ".lora_"+half); ok {
			return base, half, true
		}
	}
	return "", "", false
}

// padded returns dims as the library keeps them: four, the missing ones 1.
func padded(dims []uint64) []uint64 {
	out := []uint64{1, 1, 1, 1}
	copy(out, dims)
	return out
}

// readHead reads the head of an adapter's file. The error is an *engine.LoadError.
func readHead(path string) (*modelfile.GGUF, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, adapterRefused(path, weights.NotFound, "can't be opened: "+plain(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, adapterRefused(path, weights.NotFound, "is no regular file")
	}
	head, err := modelfile.ReadGGUF(f, info.Size())
	var bad *modelfile.Error
	if errors.As(err, &bad) {
		return nil, adapterRefused(path, reasons[bad.Problem], bad.Says)
	}
	return head, err
}

// reasons are what conditions call the problems of a file.
var reasons = map[modelfile.Problem]string{
	modelfile.Unreadable: weights.NotFound, modelfile.Foreign: weights.NotGGUF, modelfile.Damaged: weights.NotGGUF,
	modelfile.Truncated: weights.Truncated, modelfile.Unsupported: weights.Unsupported,
}

func adapterRefused(path, reason, why string) error {
	return &engine.LoadError{Reason: reason, Message: fmt.Sprintf("the adapter file %s %s", path, why)}
}

// plain is err without the path in it.
func plain(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// applyAdapters is llama_set_adapters_lora, which the binding can't call with no adapters.
func (l *library) applyAdapters(c llama.Context, handles []llama.AdapterLora) int32 {
	var result ffi.Arg
	scales := make([]float32, len(handles))
	for i := range scales {
		scales[i] = 1
	}
	from, by, n := unsafe.SliceData(handles), unsafe.SliceData(scales), uint64(len(handles))
	l.setAdapters.Call(unsafe.Pointer(&result), unsafe.Pointer(&c), unsafe.Pointer(&from), unsafe.Pointer(&n), unsafe.Pointer(&by))
	return int32(result)
}
