package recipe

import (
	"slices"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/hack/image/elfdeps"
	"github.com/ringfleet/ringfleet/hack/image/fetch"
	"github.com/ringfleet/ringfleet/hack/image/oci"
)

func libraries(t *testing.T) fetch.Package {
	t.Helper()
	p, err := fetch.Libraries()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func closure() elfdeps.Closure {
	return elfdeps.Closure{Interpreter: "/lib64/ld-linux-x86-64.so.2", Libraries: []elfdeps.Library{
		{Name: "ld-linux-x86-64.so.2", Path: "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"},
		{Name: "libc.so.6", Path: "/lib/x86_64-linux-gnu/libc.so.6"}, {Name: "libffi.so.8", Path: "/opt/lib/libffi.so.8"}}}
}

func paths(i oci.Image) map[string]oci.File {
	out := map[string]oci.File{}
	for _, l := range i.Layers {
		for _, f := range l.Files {
			out[f.Path] = f
		}
	}
	return out
}

func TestEveryImageHoldsWhatItNeeds(t *testing.T) {
	worker, err := Worker("1.2.3", "/built/worker", "/certs", Fetched{libraries(t), "/cache/llama"}, closure())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		image oci.Image
		name  string
		entry string
		want  map[string]string // path -> source or target
	}{
		"the manager is one static program": {Static("manager", "1.2.3", "/built/manager", "/certs"), "docker.io/ringfleet/manager:1.2.3", "/manager",
			map[string]string{"/manager": "/built/manager", "/etc/ssl/certs/ca-certificates.crt": "/certs", "/etc/passwd": ""}},
		"the router is one static program": {Static("router", "1.2.3", "/built/router", ""), "docker.io/ringfleet/router:1.2.3", "/router",
			map[string]string{"/router": "/built/router"}},
		"the worker brings llama.cpp and the libraries of both": {worker, "docker.io/ringfleet/worker:1.2.3", "/worker", map[string]string{
			"/worker": "/built/worker", "/lib/llama/libllama.v0.5.0.so": "/cache/llama/libllama.v0.5.0.so", "/lib/llama/libllama.so": "libllama.v0.5.0.so",
			"/lib/llama/libggml.so": "libggml.v0.5.0.so", "/lib/llama/libggml-base.so": "/cache/llama/libggml-base.so", "/lib/llama/libggml-cpu-zen4.so": "/cache/llama/libggml-cpu-zen4.so",
			"/lib64/ld-linux-x86-64.so.2": "/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6": "/lib/x86_64-linux-gnu/libc.so.6",
			"/lib/x86_64-linux-gnu/libffi.so.8": "/opt/lib/libffi.so.8"}},
		"the model is a file in the root of its image": {Model("/cache/m", fetch.Weights()), "docker.io/ringfleet/smollm2-135m-instruct:q4_1", "",
			map[string]string{"/SmolLM2-135M-Instruct.Q4_1.gguf": "/cache/m/SmolLM2-135M-Instruct.Q4_1.gguf", "/LICENSE": "/cache/m/LICENSE"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.image.Name != c.name {
				t.Errorf("name %s, expected %s", c.image.Name, c.name)
			}
			if c.entry != "" && (!slices.Equal(c.image.Entrypoint, []string{c.entry}) || c.image.User != "65532:65532") {
				t.Errorf("starts %q as %q", c.image.Entrypoint, c.image.User)
			}
			have := paths(c.image)
			for path, from := range c.want {
				f, ok := have[path]
				if !ok || f.Source+f.Link != from {
					t.Errorf("%s is %+v, expected from %q", path, f, from)
				}
			}
		})
	}
}

func TestTheUserIsKnownByNameAndNoFileIsWritableToIt(t *testing.T) {
	i := Static("router", "1", "/b", "")
	for path, f := range paths(i) {
		if path != "/tmp" && f.Owner != 65532 && f.Mode&0o022 != 0 {
			t.Errorf("%s has mode %o", path, f.Mode)
		}
	}
	if passwd := string(paths(i)["/etc/passwd"].Content); !strings.Contains(passwd, "nonroot:x:65532:65532:") {
		t.Errorf("passwd is %q", passwd)
	}
}

func TestAWorkerWithoutTheCLibraryIsRefused(t *testing.T) {
	if _, err := Worker("1", "/b", "", Fetched{libraries(t), "/l"}, elfdeps.Closure{}); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=1") {
		t.Errorf("error %v, expected one that names CGO_ENABLED=1", err)
	}
	if _, err := CUDA("1", "/b", "", Fetched{libraries(t), "/l"}, Fetched{}, nil, elfdeps.Closure{}); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=1") {
		t.Errorf("with CUDA: error %v, expected one that names CGO_ENABLED=1", err)
	}
}
