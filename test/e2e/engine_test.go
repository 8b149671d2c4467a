//go:build e2e && engines

package e2e

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/hack/image/elfdeps"
	"github.com/ringfleet/ringfleet/hack/image/oci"
	"github.com/ringfleet/ringfleet/test/cluster"
)

// serverImage is where llama-server's image is loaded.
const serverImage = "docker.io/ringfleet/e2e-llama-server:1"

// llamaServer makes an image of the llama-server that is installed on this machine.
func llamaServer(t *testing.T) oci.Image {
	t.Helper()
	home := os.Getenv("RINGFLEET_TEST_LLAMA_SERVER")
	if home == "" {
		t.Fatal("RINGFLEET_TEST_LLAMA_SERVER is not set: run make conformance, or export it as $(go run ./hack/engines llama-server)")
	}
	files, err := filepath.Glob(filepath.Join(home, "bin", "*"))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(home, "bin", "llama-server")
	parts := []string{program}
	own := oci.Layer{Title: "llama-server"}
	for _, f := range files {
		name := filepath.Base(f)
		if f != program && !strings.Contains(name, ".so") {
			continue
		}
		real, err := filepath.EvalSymlinks(f)
		if err != nil {
			t.Fatal(err)
		}
		own.Files = append(own.Files, oci.File{Path: path.Join("/server", name), Source: real, Mode: 0o755})
		if f != program {
			parts = append(parts, f)
		}
	}
	cache, err := elfdeps.Ldconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	needs, err := elfdeps.Resolver{Cache: cache, Read: elfdeps.ReadFile}.Closure(parts, nil)
	if err != nil {
		t.Fatal(err)
	}
	system := oci.Layer{Title: "shared libraries", Files: []oci.File{{Path: needs.Interpreter, Source: needs.Interpreter, Mode: 0o755}}}
	for _, lib := range needs.Libraries {
		if lib.Name != path.Base(needs.Interpreter) {
			system.Files = append(system.Files, oci.File{Path: path.Join("/lib/x86_64-linux-gnu", lib.Name), Source: lib.Path})
		}
	}
	return oci.Image{Name: serverImage, Entrypoint: []string{"/server/llama-server"}, Env: []string{"LD_LIBRARY_PATH=/server"}, Layers: []oci.Layer{system, own}}
}

// TestAnEngineInAContainerOfItsOwn serves the demo model by llama-server, once as any server of OpenAI's protocol and once as
// the kind that it is.
func TestAnEngineInAContainerOfItsOwn(t *testing.T) {
	load(t, llamaServer(t))
	ns := namespace(t, "e2e-engine")
	file := filepath.Base(weightsFile(t))
	for _, c := range []struct {
		name   string
		engine v1alpha1.Engine
	}{
		{"any", v1alpha1.Engine{Kind: v1alpha1.EngineOpenAI, Image: serverImage, ContextTokens: 4096, MaxSequences: 4, Args: []string{
			"--model", "/weights/" + file, "--host", "127.0.0.1", "--port", "8000", "--ctx-size", "4096", "--parallel", "4", "--threads", "1", "--metrics", "--jinja"}}},
		{"own", v1alpha1.Engine{Kind: v1alpha1.EngineLlamaServer, Image: serverImage, ContextTokens: 4096, MaxSequences: 4, Args: []string{"--threads", "1"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := model(t, ns, c.name, func(m *v1alpha1.InferenceModel) { m.Spec.Engine, m.Spec.Weights.File = c.engine, file })
			untilReady(t, m)
			url := base(t, ns)
			if o := post(t.Context(), url, question{model: c.name, prompt: "Tell me the name of the capital of France.", maxTokens: 30}, nil); !o.good() || !strings.Contains(o.text, "Paris") {
				t.Fatalf("the answer: %s", o)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(m.Status.EngineArgs, "--threads") {
				t.Errorf("status.engineArgs are %q", m.Status.EngineArgs)
			}
			before := instance(t, m)
			killEngine(t, m)
			eventually(t, "the restarted engine answers as another instance", func(ctx context.Context) (bool, string, error) {
				o := post(ctx, url, question{model: c.name, prompt: "Hi", maxTokens: 4}, nil)
				now := instance(t, m)
				return o.good() && now != "" && now != before, o.String() + ", instance " + now, nil
			})
			for _, p := range workers(t, m) {
				for _, s := range p.Status.ContainerStatuses {
					if s.RestartCount > 0 {
						t.Errorf("container %s of %s has restarted %d times; only its engine should have", s.Name, p.Name, s.RestartCount)
					}
				}
			}
			if err := api.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			eventually(t, "its worker is gone", func(context.Context) (bool, string, error) {
				left := workers(t, m)
				return len(left) == 0, "workers are left", nil
			})
		})
	}
}

// instance is the instance that the one worker of m is in the ring as.
func instance(t *testing.T, m *v1alpha1.InferenceModel) string {
	t.Helper()
	for _, p := range workers(t, m) {
		return p.Annotations[v1alpha1.AnnotationInRingInstance]
	}
	return ""
}

// killEngine ends the process of m's engine.
func killEngine(t *testing.T, m *v1alpha1.InferenceModel) {
	t.Helper()
	for _, p := range workers(t, m) {
		pid, err := cluster.Process(string(p.UID), "llama-server", nil)
		if err != nil || pid == 0 {
			t.Fatalf("find the engine of %s on this machine: %v", p.Name, err)
		}
		process, err := os.FindProcess(pid)
		if err == nil {
			err = process.Kill()
		}
		if err != nil {
			t.Fatalf("kill the engine of %s: %v", p.Name, err)
		}
		return
	}
	t.Fatal("there is no engine to kill")
}
