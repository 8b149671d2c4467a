package recipe

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/hack/image/oci"
)

func imageCUDA(t *testing.T) oci.Image {
	t.Helper()
	var nvidia []Fetched
	for _, p := range fetch.CUDA() {
		nvidia = append(nvidia, Fetched{p, "/cache/" + p.Key})
	}
	i, err := CUDA("1.2.3", "/built/worker", "/certs", Fetched{libraries(t), "/cache/llama"}, Fetched{fetch.LlamaCUDA(), "/cache/gpu"}, nvidia, closure())
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestTheImageForGPUsIsTheWorkersWithMoreLibraries(t *testing.T) {
	worker, err := Worker("1.2.3", "/built/worker", "/certs", Fetched{libraries(t), "/cache/llama"}, closure())
	if err != nil {
		t.Fatal(err)
	}
	i := imageCUDA(t)
	if i.Name != "docker.io/ringfleet/worker-cuda:1.2.3" || i.Labels["org.opencontainers.image.title"] != "ringfleet worker-cuda" {
		t.Errorf("name %s, labels %v", i.Name, i.Labels)
	}
	if !slices.Equal(i.Entrypoint, worker.Entrypoint) || i.User != worker.User {
		t.Errorf("starts %q as %q", i.Entrypoint, i.User)
	}
	have := paths(i)
	for p, f := range paths(worker) {
		if got := have[p]; got.Source != f.Source || got.Link != f.Link {
			t.Errorf("%s is %+v, expected %+v", p, got, f)
		}
		delete(have, p)
	}
	for p, source := range map[string]string{
		"/lib/llama/libggml-cuda.so":              "/cache/gpu/libggml-cuda.so",
		"/lib/x86_64-linux-gnu/libcudart.so.13":   "/cache/nvidia-cuda-runtime-13.1.80/libcudart.so.13",
		"/lib/x86_64-linux-gnu/libcublas.so.13":   "/cache/nvidia-cublas-13.2.1.1/libcublas.so.13",
		"/lib/x86_64-linux-gnu/libcublasLt.so.13": "/cache/nvidia-cublas-13.2.1.1/libcublasLt.so.13",
		"/licenses/LICENSE.nvidia-cuda-runtime":   "/cache/nvidia-cuda-runtime-13.1.80/LICENSE.nvidia-cuda-runtime",
		"/licenses/LICENSE.nvidia-cublas":         "/cache/nvidia-cublas-13.2.1.1/LICENSE.nvidia-cublas",
	} {
		if have[p].Source != source {
			t.Errorf("%s is from %q, expected %s", p, have[p].Source, source)
		}
		delete(have, p)
	}
	for p := range have {
		t.Errorf("%s is in the image besides", p)
	}
}

func TestWhatChangesRarelyLiesBelow(t *testing.T) {
	var titles []string
	for _, l := range imageCUDA(t).Layers {
		titles = append(titles, l.Title)
	}
	want := []string{"base", "shared libraries", "NVIDIA's CUDA runtime", "NVIDIA's cuBLAS", "llama.cpp's part for CUDA", "libllama v0.5.0", "worker"}
	if !slices.Equal(titles, want) {
		t.Errorf("layers %q, expected %q", titles, want)
	}
}

func TestTheDriverComesFromTheNode(t *testing.T) {
	i := imageCUDA(t)
	for p := range paths(i) {
		if strings.HasPrefix(path.Base(p), "libcuda.so") || strings.HasPrefix(path.Base(p), "libnvidia-") {
			t.Errorf("%s is in the image", p)
		}
	}
	env := map[string]string{}
	for _, e := range i.Env {
		k, v, _ := strings.Cut(e, "=")
		env[k] = v
	}
	if v, set := env["NVIDIA_VISIBLE_DEVICES"]; set {
		t.Errorf("NVIDIA_VISIBLE_DEVICES is %q: which GPUs a container sees is for the device plugin to say", v)
	}
	for k, want := range map[string]string{
		"NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
		"LD_LIBRARY_PATH":            "/usr/local/nvidia/lib64:/usr/lib64:/usr/lib/x86_64-linux-gnu",
		"CUDA_CACHE_PATH":            "/tmp/cuda",
		"HOME":                       "/home/nonroot",
	} {
		if env[k] != want {
			t.Errorf("%s is %q, expected %q", k, env[k], want)
		}
	}
}
