package llamacpp

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// ErrNoGPU is what Open returns where GPU.Require is set and the library can't use a GPU. The error that wraps it says what
// was looked for.
var ErrNoGPU = errors.New("llama.cpp can't use a GPU")

// AllLayers as GPU.Layers puts the whole model on GPUs.
const AllLayers = -1

// Split is how a model lies on several GPUs.
type Split string

// The splits. SplitLayer, the default, gives each GPU some layers and their KV cells; SplitRow cuts the matrices by rows;
// SplitNone uses one GPU.
const (
	SplitLayer Split = "layer"
	SplitRow   Split = "row"
	SplitNone  Split = "none"
)

// splits are the library's numbers; the empty one is the default.
var splits = map[Split]llama.SplitMode{
	"": llama.SplitModeLayer, SplitLayer: llama.SplitModeLayer, SplitRow: llama.SplitModeRow, SplitNone: llama.SplitModeNone,
}

// Attention is whether attention is computed in one kernel without its matrix (flash attention).
type Attention string

// The settings. The default asks the library whether its devices can.
const (
	FlashAuto Attention = "auto"
	FlashOn   Attention = "on"
	FlashOff  Attention = "off"
)

var attentions = map[Attention]llama.FlashAttentionType{
	"": llama.FlashAttentionTypeAuto, FlashAuto: llama.FlashAttentionTypeAuto,
	FlashOn: llama.FlashAttentionTypeEnabled, FlashOff: llama.FlashAttentionTypeDisabled,
}

// maxDevices is the most devices that the library splits a model over (llama_max_devices).
const maxDevices = 16

// GPU says what of the model is on GPUs. The zero value keeps all of it on the CPU, also where there is a GPU.
type GPU struct {
	// Require makes Open fail with ErrNoGPU where the library can't use a GPU. Without it the CPU computes then.
	Require bool
	// Layers is how many layers, from the end of the model, are on GPUs; AllLayers: all.
	Layers int
	// Split is how they lie on several GPUs.
	Split Split
	// Main is the index of the GPU of SplitNone, and of what can't be split.
	Main int
	// TensorSplit holds each GPU's share of the model, in any unit; empty: by free memory.
	TensorSplit []float32
	// LibraryDirs are folders that are searched for libggml-cuda.so after Options.LibraryDir.
	LibraryDirs []string
}

func (g *GPU) validate() error {
	_, known := splits[g.Split]
	sum := float32(0)
	for _, share := range g.TensorSplit {
		if share < 0 || math.IsNaN(float64(share)) || math.IsInf(float64(share), 0) {
			return fmt.Errorf("the tensor split %v has a share of %v", g.TensorSplit, share)
		}
		sum += share
	}
	switch {
	case g.Layers < AllLayers:
		return fmt.Errorf("GPU layers are %d, expected %d for all or at least 0", g.Layers, AllLayers)
	case g.Require && g.Layers == 0:
		return errors.New("a GPU is required, but no layers are to be on it")
	case !known:
		return fmt.Errorf("the split mode is %q, expected %s, %s or %s", g.Split, SplitLayer, SplitRow, SplitNone)
	case g.Main < 0 || g.Main >= maxDevices:
		return fmt.Errorf("the main GPU is %d, expected 0 to %d", g.Main, maxDevices-1)
	case len(g.TensorSplit) > maxDevices || len(g.TensorSplit) > 0 && sum == 0:
		return fmt.Errorf("the tensor split is %v, expected at most %d shares, one of them above 0", g.TensorSplit, maxDevices)
	}
	return nil
}

// ParseTensorSplit reads shares such as "3,1"; the empty string is no split.
func ParseTensorSplit(s string) ([]float32, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var out []float32
	for part := range strings.SplitSeq(s, ",") {
		share, err := strconv.ParseFloat(strings.TrimSpace(part), 32)
		if err != nil {
			return nil, fmt.Errorf("tensor split %q: %q is no number", s, part)
		}
		out = append(out, float32(share))
	}
	g := GPU{TensorSplit: out}
	return out, g.validate()
}

// place sets where the model's layers go. used is false where the CPU computes alone; keep must live as long as params.
func (g *GPU) place(params *llama.ModelParams, gpus []llama.GGMLBackendDevice) (used bool, keep any) {
	if g.Layers == 0 || len(gpus) == 0 {
		none := []llama.GGMLBackendDevice{0}
		params.NGpuLayers = 0
		_ = params.SetDevices(none) // fails only without the 0 at its end
		return false, none
	}
	params.NGpuLayers = int32(min(g.Layers, math.MaxInt32))
	params.SplitMode = splits[g.Split]
	params.MainGpu = int32(g.Main)
	shares := new([maxDevices]float32)
	if len(g.TensorSplit) > 0 {
		copy(shares[:], g.TensorSplit)
		params.TensorSplit = &shares[0]
	}
	return true, shares
}

// gpus returns the library's GPUs.
func gpus() []llama.GGMLBackendDevice {
	var found []llama.GGMLBackendDevice
	for i := range llama.GGMLBackendDeviceCount() {
		d := llama.GGMLBackendDeviceGet(i)
		switch llama.GGMLBackendDevType(d) {
		case llama.GGMLBackendDeviceTypeGPU, llama.GGMLBackendDeviceTypeIGPU:
			found = append(found, d)
		}
	}
	return found
}

// device describes what computes.
func device(gpus []llama.GGMLBackendDevice, threads int) string {
	var names []string
	for _, d := range gpus {
		names = append(names, llama.GGMLBackendDeviceDescription(d))
	}
	if len(names) > 0 {
		return strings.Join(names, ", ")
	}
	set := runtime.GOARCH
	info := llama.PrintSystemInfo()
	for _, name := range []string{"AVX512", "AVX2", "AVX", "SVE", "NEON"} {
		if strings.Contains(info, " "+name+" = 1") {
			set = name
			break
		}
	}
	if threads == 1 {
		return "CPU (" + set + ", 1 thread)"
	}
	return fmt.Sprintf("CPU (%s, %d threads)", set, threads)
}
