package desired_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/inferencemodel/desired"
)

// adapters gives a model an adapter for each URI; one with an empty URI lies beside the weights.
func adapters(uris ...string) func(*v1alpha1.InferenceModel) {
	return func(m *v1alpha1.InferenceModel) {
		for i, uri := range uris {
			a := v1alpha1.Adapter{Name: "team/a" + strconv.Itoa(i), URI: uri}
			if uri == "" {
				a.File = "adapters/a.gguf"
			}
			m.Spec.Adapters = append(m.Spec.Adapters, a)
		}
	}
}

// value of a flag among a container's arguments; false when it is not there.
func value(c corev1.Container, flag string) (string, bool) {
	for _, a := range c.Args {
		if v, ok := strings.CutPrefix(a, flag+"="); ok {
			return v, true
		}
	}
	return "", slices.Contains(c.Args, flag)
}

func TestAWorkerIsToldOfAdaptersInTheirOrder(t *testing.T) {
	m := model(adapters("", "hf://org/b@v1"))
	m.Spec.Adapters[1].File, m.Spec.Adapters[1].Digest = "b.gguf", "sha256:"+strings.Repeat("0", 64)
	text, _ := value(desired.Worker(m, inputs()).Spec.Containers[0], "--adapter-sources")
	want := `[{"name":"team/a0","file":"adapters/a.gguf"},{"name":"team/a1","uri":"hf://org/b@v1","file":"b.gguf","digest":"sha256:` +
		strings.Repeat("0", 64) + `"}]`
	if text != want {
		t.Errorf("it is told %s, want %s", text, want)
	}
	if _, told := value(desired.Worker(model(), inputs()).Spec.Containers[0], "--adapter-sources"); told {
		t.Error("a worker without adapters is told of some")
	}
}

func TestWhoFetchesAdapters(t *testing.T) {
	for name, c := range map[string]struct {
		change []func(*v1alpha1.InferenceModel)
		// the containers that have the flag or mount, in the pod's order
		fetch, link, cache, folder, writes string
	}{
		"nobody, where they lie beside the weights": {[]func(*v1alpha1.InferenceModel){adapters("")}, "", "", "", "", ""},
		"the worker, for itself":                    {[]func(*v1alpha1.InferenceModel){adapters("s3://b/a")}, "", "", "worker", "", "worker"},
		"a container before, for an engine beside it": {[]func(*v1alpha1.InferenceModel){vllm, onImage, adapters("s3://b/a")},
			"weights", "weights worker", "weights engine worker", "weights engine worker", "weights worker"},
		"with the weights, where these are fetched too": {[]func(*v1alpha1.InferenceModel){vllm, adapters("s3://b/a")},
			"weights", "weights worker", "weights engine worker", "weights engine worker", "weights worker"},
		"the worker, where adapters lie beside weights that it fetches": {[]func(*v1alpha1.InferenceModel){inBucket, adapters("")},
			"", "", "worker", "", "worker"},
		"nobody, for an engine with all on an image": {[]func(*v1alpha1.InferenceModel){vllm, onImage, adapters("")}, "", "", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := desired.Worker(model(c.change...), inputs())
			var fetch, link, cache, folder, writes []string
			for _, k := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				if _, is := value(k, "--fetch-only"); is {
					fetch = append(fetch, k.Name)
				}
				if v, is := value(k, "--adapters-link"); is && v == "/model/adapters" {
					link = append(link, k.Name)
				}
				for _, v := range k.VolumeMounts {
					if v.MountPath == "/cache" {
						cache = append(cache, k.Name)
						if !v.ReadOnly {
							writes = append(writes, k.Name)
						}
					}
					if v.MountPath == "/model" {
						folder = append(folder, k.Name)
					}
					if !slices.ContainsFunc(pod.Spec.Volumes, func(x corev1.Volume) bool { return x.Name == v.Name }) {
						t.Errorf("%s mounts %s, and there is no such volume", k.Name, v.Name)
					}
				}
			}
			for what, got := range map[string][2]string{
				"fetches": {strings.Join(fetch, " "), c.fetch}, "links": {strings.Join(link, " "), c.link},
				"cache": {strings.Join(cache, " "), c.cache}, "folder": {strings.Join(folder, " "), c.folder}, "writes": {strings.Join(writes, " "), c.writes},
			} {
				if got[0] != got[1] {
					t.Errorf("%s: %q, want %q", what, got[0], got[1])
				}
			}
		})
	}
}

func inBucket(m *v1alpha1.InferenceModel) { m.Spec.Weights = v1alpha1.Weights{URI: "s3://bucket/m"} }

func onImage(m *v1alpha1.InferenceModel) { m.Spec.Weights = v1alpha1.Weights{URI: "oci://r/m:1"} }

func TestCredentialsGoToWhatFetches(t *testing.T) {
	secret := func(m *v1alpha1.InferenceModel) { m.Spec.Weights.SecretRef.Name = "hub" }
	for name, c := range map[string]struct {
		model *v1alpha1.InferenceModel
		want  string
	}{
		"adapters beside an image":           {model(secret, adapters("hf://org/a")), "worker"},
		"adapters of an engine on an image":  {model(vllm, onImage, secret, adapters("hf://org/a")), "weights"},
		"nothing is fetched":                 {model(secret, adapters("")), ""},
		"weights and adapters of the engine": {model(vllm, adapters("hf://org/a")), "weights"},
	} {
		var got []string
		for container, k := range containers(desired.Worker(c.model, inputs())) {
			if len(k.EnvFrom) > 0 {
				got = append(got, container)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q have the Secret, want %q", name, got, c.want)
		}
	}
}

func TestAnEngineIsStartedForItsAdapters(t *testing.T) {
	for name, c := range map[string]struct {
		kind     v1alpha1.EngineKind
		adapters int
		want     string
	}{
		"vLLM":                 {v1alpha1.EngineVLLM, 2, "--enable-lora --max-loras 2 --max-lora-rank 64"},
		"SGLang":               {v1alpha1.EngineSGLang, 2, "--enable-lora --lora-target-modules all --max-loras-per-batch 2 --max-lora-rank 64"},
		"more than it can use": {v1alpha1.EngineVLLM, 9, "--enable-lora --max-loras 8 --max-lora-rank 64"},
		"vLLM without any":     {v1alpha1.EngineVLLM, 0, ""},
	} {
		m := model(vllm, adapters(slices.Repeat([]string{"s3://b/a"}, c.adapters)...))
		m.Spec.Engine.Kind = c.kind
		line := strings.Join(desired.EngineArgs(m), " ")
		if c.want == "" && strings.Contains(line, "lora") || !strings.Contains(line, c.want) {
			t.Errorf("%s: %q, want %q in it", name, line, c.want)
		}
		pod := containers(desired.Worker(m, inputs()))
		allowed := slices.Contains(pod["engine"].Env, corev1.EnvVar{Name: "VLLM_ALLOW_RUNTIME_LORA_UPDATING", Value: "True"})
		if want := c.kind == v1alpha1.EngineVLLM && c.adapters > 0; allowed != want {
			t.Errorf("%s: may load them while it runs: %v, want %v", name, allowed, want)
		}
		if _, loads := value(pod["worker"], "--engine-adapters"); loads != (c.adapters > 0) {
			t.Errorf("%s: the worker loads them: %v", name, loads)
		}
	}
}

func TestAURIReachesTheWorkerAsItIs(t *testing.T) {
	m := model(adapters("https://example.com/$(HF_TOKEN)/a.gguf"))
	m.Spec.Weights.URI = "s3://bucket/$(AWS_SECRET_ACCESS_KEY)"
	worker := desired.Worker(m, inputs()).Spec.Containers[0]
	// The kubelet turns $$ into $, and $(NAME) into the variable's value.
	uri, _ := value(worker, "--weights-uri")
	if uri != "s3://bucket/$$(AWS_SECRET_ACCESS_KEY)" {
		t.Errorf("the weights' URI is %s", uri)
	}
	text, _ := value(worker, "--adapter-sources")
	var sources []struct{ URI string }
	if err := json.Unmarshal([]byte(strings.ReplaceAll(text, "$$", "$")), &sources); err != nil || sources[0].URI != m.Spec.Adapters[0].URI {
		t.Errorf("the adapters are %s (%v)", text, err)
	}
	if strings.Contains(strings.ReplaceAll(text, "$$", ""), "$") {
		t.Errorf("%s has a variable in it", text)
	}
}
