package pack

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ebitengine/purego"

	"github.com/ringfleet/ringfleet/hack/image/fetch"
)

// Fits compares the capability that dir was made for with that of the first GPU: kernels for others are not in it. Without
// nvidia-smi it takes what comes.
func Fits(ctx context.Context, dir string) error {
	want, err := os.ReadFile(filepath.Join(dir, capabilityFile))
	if err != nil {
		return fmt.Errorf("this is no folder of gpu-check: make one with go run ./hack/gpu-check pack: %w", err)
	}
	text, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader").Output()
	if err != nil {
		return nil //nolint:nilerr // whether there is a GPU the driver finds out
	}
	return fits(string(want), string(text))
}

// fits compares lines such as 9.0.
func fits(want, found string) error {
	first, _, _ := strings.Cut(found, "\n")
	if want, first = strings.TrimSpace(want), strings.TrimSpace(first); first != want {
		return fmt.Errorf("the folder holds kernels for GPUs of capability %s, this one has %s: make another with go run ./hack/gpu-check pack -gpu %s",
			want, first, strings.ReplaceAll(first, ".", ""))
	}
	return nil
}

// Unpack makes a folder with the libraries of dir. remove deletes it.
func Unpack(dir string) (to string, remove func(), err error) {
	packed, err := filepath.Glob(filepath.Join(dir, "lib", "*.so.gz"))
	if err != nil || len(packed) == 0 {
		return "", nil, fmt.Errorf("there are no lib/*.so.gz in %s: make them with go run ./hack/gpu-check pack", dir)
	}
	if to, err = os.MkdirTemp("", "gpu-check-"); err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(to) }
	for _, from := range packed {
		if err := expand(from, filepath.Join(to, strings.TrimSuffix(filepath.Base(from), ".gz"))); err != nil {
			remove()
			return "", nil, fmt.Errorf("unpack %s: %w", from, err)
		}
	}
	libraries, err := fetch.Libraries()
	for _, l := range libraries.Links {
		err = errors.Join(err, os.Symlink(l.Target, filepath.Join(to, l.Name)))
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return to, remove, nil
}

func expand(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	z, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	const most = 1 << 30 // the greatest has 159 MB
	n, err := io.Copy(out, io.LimitReader(z, most))
	if err == nil && n == most {
		err = fmt.Errorf("it is longer than %d bytes", most)
	}
	return errors.Join(err, out.Close())
}

// wanted are NVIDIA's libraries that the part for CUDA is linked to, in an order in which each finds those before it.
var wanted = []string{"libcuda.so.1", "libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13"}

// places are the folders where they lie on machines that don't list them for the loader: CUDA's own, and Python's packages.
var places = []string{
	"/usr/local/nvidia/lib64", "/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu",
	"/opt/*/lib", "/opt/*/lib64",
	"/usr/lib/python3*/*-packages/nvidia/*/lib", "/usr/local/lib/python3*/*-packages/nvidia/*/lib",
	"/opt/*/lib/python3*/site-packages/nvidia/*/lib", "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib",
}

// LoadCUDA loads NVIDIA's libraries, from dir or the usual places, so that the library's part for CUDA finds them, and says
// which it found. What is missing is told again, with the reason, when a GPU is asked for.
func LoadCUDA(dir string) string {
	var said strings.Builder
	for _, name := range wanted {
		where := "not found"
		for _, path := range candidates(dir, name) {
			if _, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL); err == nil {
				where = path
				break
			}
		}
		fmt.Fprintf(&said, "%-18s %s\n", name, where)
	}
	return said.String()
}

// candidates are the paths to try for a library. Its bare name is the loader's own search.
func candidates(dir, name string) []string {
	if dir != "" {
		return []string{filepath.Join(dir, name), name}
	}
	all := []string{name}
	for _, place := range places {
		found, _ := filepath.Glob(filepath.Join(place, name)) // the patterns are sound
		all = append(all, found...)
	}
	return all
}
