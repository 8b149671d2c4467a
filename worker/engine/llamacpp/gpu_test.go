package llamacpp

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/hybridgroup/yzma/pkg/llama"
)

func TestGPUSettingsOutOfRangeAreRefused(t *testing.T) {
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"fewer layers than none":       {func(o *Options) { o.GPU.Layers = -2 }, "GPU layers are -2"},
		"a GPU for no layers":          {func(o *Options) { o.GPU.Require = true }, "no layers"},
		"an unknown split":             {func(o *Options) { o.GPU.Split = "rows" }, `"rows"`},
		"a negative GPU":               {func(o *Options) { o.GPU.Main = -1 }, "the main GPU is -1"},
		"a GPU beyond all":             {func(o *Options) { o.GPU.Main = 16 }, "0 to 15"},
		"a negative share":             {func(o *Options) { o.GPU.TensorSplit = []float32{1, -1} }, "share of -1"},
		"a share that is no number":    {func(o *Options) { o.GPU.TensorSplit = []float32{nan} }, "share of NaN"},
		"shares of nothing":            {func(o *Options) { o.GPU.TensorSplit = []float32{0, 0} }, "one of them above 0"},
		"shares for too many":          {func(o *Options) { o.GPU.TensorSplit = make([]float32, 17) }, "at most 16 shares"},
		"an unknown kind of attention": {func(o *Options) { o.FlashAttention = "yes" }, `"yes"`},
		"a Q8 cache without it":        {func(o *Options) { o.FlashAttention, o.KVType = FlashOff, Q8 }, "needs flash attention"},
	} {
		o := options(t)
		c.change(&o)
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func TestATensorSplitIsAListOfShares(t *testing.T) {
	for in, want := range map[string][]float32{"": nil, " ": nil, "1": {1}, "3,1": {3, 1}, " 0.5 , 0,2": {0.5, 0, 2}} {
		if got, err := ParseTensorSplit(in); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{",", "1,", "x", "1;2", "-1", "0,0", "NaN", "1e60", strings.Repeat("1,", 16) + "1"} {
		if got, err := ParseTensorSplit(in); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
}

func TestLayersGoWhereTheOptionsSay(t *testing.T) {
	two := []llama.GGMLBackendDevice{1, 2} // stand for devices; nothing is done with them
	place := func(g GPU, gpus []llama.GGMLBackendDevice) (llama.ModelParams, bool, any) {
		var p llama.ModelParams
		used, keep := g.place(&p, gpus)
		return p, used, keep
	}
	p, used, keep := place(GPU{Layers: AllLayers, Split: SplitRow, Main: 1, TensorSplit: []float32{3, 1}}, two)
	if !used || p.NGpuLayers != -1 || p.SplitMode != llama.SplitModeRow || p.MainGpu != 1 || p.Devices != 0 ||
		!slices.Equal(keep.(*[maxDevices]float32)[:3], []float32{3, 1, 0}) || p.TensorSplit != &keep.(*[maxDevices]float32)[0] {
		t.Errorf("all layers, split: %+v, %t", p, used)
	}
	if p, used, _ := place(GPU{Layers: 7}, two); !used || p.NGpuLayers != 7 || p.SplitMode != llama.SplitModeLayer || p.TensorSplit != nil {
		t.Errorf("seven layers: %+v, %t", p, used)
	}
	for name, g := range map[string]struct {
		gpu  GPU
		gpus []llama.GGMLBackendDevice
	}{"no layers": {GPU{}, two}, "no GPU": {GPU{Layers: AllLayers}, nil}} {
		p, used, keep := place(g.gpu, g.gpus)
		none := keep.([]llama.GGMLBackendDevice)
		if used || p.NGpuLayers != 0 || len(none) != 1 || none[0] != 0 || p.Devices != uintptr(unsafe.Pointer(&none[0])) {
			t.Errorf("%s: %+v, %t", name, p, used)
		}
	}
}

func TestARequiredGPUThatIsNotThereIsALoudFailure(t *testing.T) {
	open(t) // the library
	libs, _ := paths(t)
	more := t.TempDir()
	// A library that needs another one which nobody has: as the CUDA part does where there is no CUDA.
	b, err := os.ReadFile(filepath.Join(libs, "libggml-cpu-x64.so"))
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.ReplaceAll(b, []byte("libm.so.6\x00"), []byte("libq.so.6\x00"))
	if err := os.WriteFile(filepath.Join(more, cudaLibrary), b, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "7")
	o := options(t)
	o.GPU = GPU{Require: true, Layers: AllLayers, LibraryDirs: []string{more}}
	_, err = Open(o)
	if !errors.Is(err, ErrNoGPU) {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{"there is no " + filepath.Join(libs, cudaLibrary), filepath.Join(more, cudaLibrary) + " can't be loaded",
		"it needs libq.so.6: libq.so.6: cannot open shared object file", "/dev/nvidia0", `CUDA_VISIBLE_DEVICES is "7"`, "NVIDIA_VISIBLE_DEVICES"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\ndoesn't say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "that for CPUs") {
		t.Error("the image is blamed though the part for CUDA is there")
	}
	o.GPU.LibraryDirs = nil
	if _, err = Open(o); !errors.Is(err, ErrNoGPU) || !strings.Contains(err.Error(), "that for CPUs") {
		t.Errorf("without that folder: %v", err)
	}
}

func TestALibraryWithoutADeviceIsToldFromOneThatCantBeLoaded(t *testing.T) {
	open(t)
	libs, _ := paths(t)
	if got := unloadable(filepath.Join(libs, "libggml-base.so")); !strings.Contains(got, "can be loaded and finds no GPU") {
		t.Errorf("got %q", got)
	}
	bad := filepath.Join(t.TempDir(), cudaLibrary)
	if err := os.WriteFile(bad, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := unloadable(bad); got != bad+" can't be loaded: "+strings.TrimPrefix(got, bad+" can't be loaded: ") || !strings.Contains(got, "file too short") {
		t.Errorf("got %q", got)
	}
}

func TestWithoutAGPUTheCPUComputesWhereNoneIsRequired(t *testing.T) {
	l := open(t, func(o *Options) { o.GPU = GPU{Layers: AllLayers}; o.FlashAttention = FlashOn })
	if c := l.Info.Caps; !strings.HasPrefix(c.Device, "CPU") || !c.AbortMidStep {
		t.Errorf("the device is %q; a step can be aborted: %t", c.Device, c.AbortMidStep)
	}
	if text, _ := generate(t, l, 0, tokens(t, l.Vocabulary, "The capital of France is the city of"), 1); text != " Paris" {
		t.Errorf("it says %q", text)
	}
}
