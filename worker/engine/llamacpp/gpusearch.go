package llamacpp

import (
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/hybridgroup/yzma/pkg/llama"
	"github.com/jupiterrider/ffi"
)

// cudaLibrary is the library's part for NVIDIA's GPUs. It is built against the same libggml-base.so as the rest, so it only
// has to lie beside it; NVIDIA's own libraries that it needs come with the container or the driver.
const cudaLibrary = "libggml-cuda.so"

// findGPUs returns the GPUs that are to be used: none where no layers are. The library has looked in its own folder
// already; others are tried here.
func (l *library) findGPUs(g *GPU) ([]llama.GGMLBackendDevice, error) {
	if g.Layers == 0 {
		return nil, nil
	}
	for _, dir := range g.LibraryDirs {
		if len(gpus()) > 0 {
			break
		}
		if path := filepath.Join(dir, cudaLibrary); exists(path) {
			if err := l.loadBackend(path); err != nil {
				return nil, err
			}
		}
	}
	found := gpus()
	if len(found) == 0 && g.Require {
		return nil, fmt.Errorf("open llama.cpp: %w: %s", ErrNoGPU, missing(append([]string{l.dir}, g.LibraryDirs...)))
	}
	return found, nil
}

// loadBackend has the library load a part for devices; it says nothing about whether that worked.
func (l *library) loadBackend(path string) error {
	load, err := symbol(l.dir, "ggml", "ggml_backend_load", &ffi.TypePointer, &ffi.TypePointer)
	if err != nil {
		return err
	}
	var registered uintptr
	text := append([]byte(path), 0)
	from := unsafe.SliceData(text)
	load.Call(unsafe.Pointer(&registered), unsafe.Pointer(&from))
	return nil
}

// missing says what was looked for in vain.
func missing(dirs []string) string {
	var said []string
	there := false
	for _, dir := range dirs {
		path := filepath.Join(dir, cudaLibrary)
		if !exists(path) {
			said = append(said, "there is no "+path)
			continue
		}
		there = true
		said = append(said, unloadable(path))
	}
	nodes, _ := filepath.Glob("/dev/nvidia[0-9]*")
	if len(nodes) == 0 {
		said = append(said, "there is no device /dev/nvidia0")
	} else {
		said = append(said, "the devices are "+strings.Join(nodes, ", "))
	}
	if !there {
		said = append(said, "the image of this worker may be that for CPUs")
	}
	for _, key := range []string{"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"} {
		if value, set := os.LookupEnv(key); set {
			said = append(said, fmt.Sprintf("%s is %q", key, value))
		} else {
			said = append(said, key+" is not set")
		}
	}
	return strings.Join(said, "; ")
}

// unloadable says why a part of the library can't be loaded, or that it finds no device.
func unloadable(path string) string {
	err := dlopen(path)
	if err == nil {
		return fmt.Sprintf("%s can be loaded and finds no GPU: %s", path, lines.errors())
	}
	said := path + " can't be loaded: "
	missing := false
	for _, need := range needs(path) {
		if err := dlopen(need); err != nil {
			said += fmt.Sprintf("it needs %s: %v; ", need, err)
			missing = true
		}
	}
	if missing {
		return strings.TrimSuffix(said, "; ")
	}
	return said + err.Error()
}

// needs are the libraries that the one at path is linked to, but those of ggml beside it.
func needs(path string) []string {
	f, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	all, err := f.DynString(elf.DT_NEEDED)
	if err != nil {
		return nil
	}
	var out []string
	for _, name := range all {
		if !strings.HasPrefix(name, "libggml") {
			out = append(out, name)
		}
	}
	return out
}

// dlopen tries to load a library and leaves it loaded: the process ends soon.
func dlopen(name string) error {
	_, err := purego.Dlopen(name, purego.RTLD_LAZY|purego.RTLD_LOCAL)
	return err
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeType == 0
}
