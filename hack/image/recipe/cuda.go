package recipe

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/ringfleet/ringfleet/hack/image/elfdeps"
	"github.com/ringfleet/ringfleet/hack/image/oci"
)

// WorkerProgram is the program that both images of workers start, and WorkerCUDA the name of that for NVIDIA's GPUs.
const (
	WorkerProgram = "worker"
	WorkerCUDA    = "worker-cuda"
)

// Driver is the library that no image holds: it belongs to the kernel module of the node, and NVIDIA's container runtime
// mounts the node's own.
const Driver = "libcuda.so.1"

// LicensesDir holds the licenses of what is neither ours nor the system's.
const LicensesDir = "/licenses"

// driverDirs are where container runtimes mount the driver's libraries: into a folder of their own, into the one that
// distributions other than Debian's have (they take an image without /etc/debian_version for such), or into the one that
// the node has them in. Without this list the loader finds them only where the runtime has also written its cache.
var driverDirs = []string{"/usr/local/nvidia/lib64", "/usr/lib64", "/usr/lib/x86_64-linux-gnu"}

// KernelsDir is where the driver keeps the kernels that it compiles for its GPU when they are first used. The pod mounts
// something writable there or above; what lasts longer than the container saves the next one the time.
const KernelsDir = "/tmp/cuda"

// CUDA returns the image of the worker for NVIDIA's GPUs: that of the worker, with gpu, llama.cpp's part for them, beside its
// other libraries, and with NVIDIA's libraries where the loader looks without a cache. Which GPUs a container sees is for the
// device plugin to say, so the image doesn't.
func CUDA(version, binary, certificates string, llama, gpu Fetched, nvidia []Fetched, c elfdeps.Closure) (oci.Image, error) {
	system, dir, err := shared(c)
	if err != nil {
		return oci.Image{}, err
	}
	i := Static(WorkerProgram, version, binary, certificates)
	i.Name, i.Labels = Name(WorkerCUDA, version), labels(WorkerCUDA, version)
	i.Labels["org.opencontainers.image.licenses"] += " AND LicenseRef-NVIDIA-Proprietary"
	i.Env = append(i.Env, "LD_LIBRARY_PATH="+strings.Join(driverDirs, ":"), "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
		"CUDA_CACHE_PATH="+KernelsDir)
	layers := []oci.Layer{i.Layers[0], system}
	for _, p := range nvidia {
		l := oci.Layer{Title: p.Package.Title}
		for _, f := range p.Package.Files {
			to := LicensesDir
			if f.Shared() {
				to = dir
			}
			l.Files = append(l.Files, oci.File{Path: path.Join(to, f.Name), Source: filepath.Join(p.Dir, f.Name)})
		}
		layers = append(layers, l)
	}
	i.Layers = append(layers, native(gpu), native(llama), i.Layers[1])
	return i, nil
}
