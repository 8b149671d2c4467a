package desired_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/inferencemodel/desired"
)

// onH100s is a pool of GPUs.
func onH100s(change ...func(*v1alpha1.WorkerPoolSpec)) desired.Inputs {
	in := inputs()
	in.Pool.Name = "h100"
	in.Pool.Spec.Accelerator = v1alpha1.Accelerator{Kind: v1alpha1.AcceleratorNvidiaGPU, Product: "NVIDIA-H100-80GB-HBM3", MemoryMebibytes: 81559}
	for _, c := range change {
		c(&in.Pool.Spec)
	}
	return in
}

// split is a model over tensor × pipeline GPUs.
func split(tensor, pipeline int32) func(*v1alpha1.InferenceModel) {
	return func(m *v1alpha1.InferenceModel) {
		m.Spec.Parallelism = &v1alpha1.Parallelism{Tensor: &tensor, Pipeline: &pipeline}
	}
}

// vllm is a model that vLLM serves, from a store.
func vllm(m *v1alpha1.InferenceModel) {
	m.Spec.Weights = v1alpha1.Weights{URI: "s3://bucket/llama", SecretRef: v1alpha1.LocalName{Name: "store"}}
	m.Spec.Engine = v1alpha1.Engine{
		Kind: v1alpha1.EngineVLLM, Image: "docker.io/vllm/vllm-openai:v0.32.0", ContextTokens: 8192, MaxSequences: 64,
		KVCacheType: v1alpha1.KVCacheF16, PrefixCaching: v1alpha1.PrefixCachingEnabled,
	}
}

// shapes are the pods of the golden files about GPUs and adapters.
func shapes() map[string]*corev1.Pod {
	return map[string]*corev1.Pod{
		"worker_gpu.yaml":               desired.Worker(model(split(2, 1)), onH100s()),
		"worker_vllm_gpu_adapters.yaml": desired.Worker(model(vllm, split(4, 1), adapters("hf://org/adapter@v1", "s3://bucket/adapters/b")), onH100s()),
		"worker_adapters.yaml":          desired.Worker(model(adapters("", "https://example.com/adapters/b.gguf")), inputs()),
	}
}

func TestTheWorkersOnGPUsAndWithAdapters(t *testing.T) {
	for file, pod := range shapes() {
		t.Run(file, func(t *testing.T) { golden(t, file, pod) })
	}
}

func TestEveryWorkerFitsPodSecurityRestricted(t *testing.T) {
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}
	pods := shapes()
	pods["in the worker"] = desired.Worker(model(), inputs())
	pods["fetched"] = desired.Worker(model(func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "hf://org/model" }), inputs())
	pods["beside the worker"] = desired.Worker(model(vllm), inputs())
	pods["on MIG slices"] = desired.Worker(model(), onH100s(func(p *v1alpha1.WorkerPoolSpec) { p.Accelerator.ResourceName = "nvidia.com/mig-3g.40gb" }))
	for name, pod := range pods {
		t.Run(name, func(t *testing.T) {
			if r := policy.AggregateCheckResults(checks.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec)); !r.Allowed {
				t.Errorf("refused: %s", r.ForbiddenDetail())
			}
		})
	}
	pod := desired.Worker(model(), onH100s())
	pod.Spec.Containers[0].SecurityContext.Capabilities = nil
	if policy.AggregateCheckResults(checks.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec)).Allowed {
		t.Error("the check lets capabilities pass")
	}
}

// containers of a pod, by name.
func containers(pod *corev1.Pod) map[string]corev1.Container {
	by := map[string]corev1.Container{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		by[c.Name] = c
	}
	return by
}

func TestTheContainerThatComputesHasTheGPUs(t *testing.T) {
	mig := func(p *v1alpha1.WorkerPoolSpec) { p.Accelerator.ResourceName = "nvidia.com/mig-3g.40gb" }
	onlyLimits := func(p *v1alpha1.WorkerPoolSpec) { p.WorkerResources.Requests = nil }
	for name, c := range map[string]struct {
		model    *v1alpha1.InferenceModel
		in       desired.Inputs
		resource corev1.ResourceName
		has      string // the container
		gpus     int64
	}{
		"one, of a model that is not split":     {model(), onH100s(), "nvidia.com/gpu", "worker", 1},
		"tensor times pipeline, of an engine":   {model(vllm, split(4, 2)), onH100s(), "nvidia.com/gpu", "engine", 8},
		"slices, where the pool asks for these": {model(), onH100s(mig), "nvidia.com/mig-3g.40gb", "worker", 1},
		"where the pool requests nothing":       {model(), onH100s(onlyLimits), "nvidia.com/gpu", "worker", 1},
		"none on CPUs, however it is split":     {model(vllm, split(4, 1)), inputs(), "nvidia.com/gpu", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.in.Pool.DeepCopy()
			for container, got := range containers(desired.Worker(c.model, c.in)) {
				want := int64(0)
				if container == c.has {
					want = c.gpus
				}
				limit, request := got.Resources.Limits[c.resource], got.Resources.Requests[c.resource]
				if limit.Value() != want || request.Value() != want {
					t.Errorf("%s asks for %s and is limited to %s of %s, want %d", container, &request, &limit, c.resource, want)
				}
				capable := slices.ContainsFunc(got.Env, func(e corev1.EnvVar) bool { return e.Name == "NVIDIA_DRIVER_CAPABILITIES" })
				if capable != (want > 0) {
					t.Errorf("%s is told of the driver: %v", container, capable)
				}
			}
			if !before.Spec.WorkerResources.Limits.Cpu().Equal(*c.in.Pool.Spec.WorkerResources.Limits.Cpu()) ||
				len(before.Spec.WorkerResources.Limits) != len(c.in.Pool.Spec.WorkerResources.Limits) {
				t.Error("the pool was changed")
			}
		})
	}
}

func TestAWorkerRunsAModelOnItsGPUsOrFails(t *testing.T) {
	for name, c := range map[string]struct {
		model *v1alpha1.InferenceModel
		in    desired.Inputs
		image string
		args  string
	}{
		"one GPU":              {model(), onH100s(), "ringfleet/worker-cuda:dev", "--gpu-layers=-1 --require-gpu"},
		"each layer is split":  {model(split(2, 1)), onH100s(), "ringfleet/worker-cuda:dev", "--gpu-layers=-1 --require-gpu --gpu-split=row"},
		"the row of layers is": {model(split(1, 2)), onH100s(), "ringfleet/worker-cuda:dev", "--gpu-layers=-1 --require-gpu"},
		"an image of its own": {model(func(m *v1alpha1.InferenceModel) { m.Spec.Engine.Image = "own:1" }), onH100s(), "own:1",
			"--gpu-layers=-1 --require-gpu"},
		"on CPUs":         {model(split(2, 1)), inputs(), "ringfleet/worker:dev", ""},
		"an engine of it": {model(vllm, split(2, 1)), onH100s(), "ringfleet/worker:dev", ""},
	} {
		t.Run(name, func(t *testing.T) {
			worker := desired.Worker(c.model, c.in).Spec.Containers[0]
			told := slices.DeleteFunc(slices.Clone(worker.Args), func(a string) bool { return !strings.Contains(a, "gpu") })
			if got := strings.Join(told, " "); worker.Image != c.image || got != c.args {
				t.Errorf("image %s with %q, want %s with %q", worker.Image, got, c.image, c.args)
			}
		})
	}
}

func TestTheNodesOfAGPUPool(t *testing.T) {
	taint := corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	in := onH100s(func(p *v1alpha1.WorkerPoolSpec) {
		p.NodeSelector = map[string]string{"zone": "a"}
		p.Tolerations = []corev1.Toleration{taint}
	})
	spec := desired.Worker(model(), in).Spec
	if s := spec.NodeSelector; len(s) != 2 || s["zone"] != "a" || s["nvidia.com/gpu.product"] != "NVIDIA-H100-80GB-HBM3" {
		t.Errorf("the node selector is %v", s)
	}
	if n := len(slices.DeleteFunc(spec.Tolerations, func(x corev1.Toleration) bool { return x != taint })); n != 1 {
		t.Errorf("the taint of GPU nodes is tolerated %d times", n)
	}
	if len(in.Pool.Spec.NodeSelector) != 1 || len(in.Pool.Spec.Tolerations) != 1 {
		t.Error("the pool was changed")
	}
	anyGPU := onH100s(func(p *v1alpha1.WorkerPoolSpec) { p.Accelerator.Product = "" })
	if s := desired.Worker(model(), anyGPU).Spec.NodeSelector; len(s) != 0 {
		t.Errorf("without a product the node selector is %v", s)
	}
	if ts := desired.Worker(model(), inputs()).Spec.Tolerations; slices.Contains(ts, taint) {
		t.Error("a worker on CPUs tolerates the taint of GPU nodes")
	}
}

func TestThePoolsRuntimeClassIsThePods(t *testing.T) {
	in := onH100s(func(p *v1alpha1.WorkerPoolSpec) { p.RuntimeClassName = "nvidia" })
	if got := desired.Worker(model(), in).Spec.RuntimeClassName; got == nil || *got != "nvidia" {
		t.Errorf("got %v, expected nvidia", got)
	}
	if got := desired.Worker(model(), onH100s()).Spec.RuntimeClassName; got != nil {
		t.Errorf("a pool without one has %s", *got)
	}
}

func TestAnEngineOnSeveralGPUsHasSharedMemory(t *testing.T) {
	has := func(m *v1alpha1.InferenceModel, in desired.Inputs) bool {
		pod := desired.Worker(m, in)
		mounted := slices.ContainsFunc(containers(pod)["engine"].VolumeMounts, func(v corev1.VolumeMount) bool { return v.MountPath == "/dev/shm" })
		there := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory
		})
		if mounted != there {
			t.Errorf("mounted %v, there %v", mounted, there)
		}
		return there
	}
	if !has(model(vllm, split(2, 1)), onH100s()) {
		t.Error("an engine on two GPUs has none")
	}
	for name, there := range map[string]bool{
		"an engine on one GPU": has(model(vllm), onH100s()), "a worker on two": has(model(split(2, 1)), onH100s()), "an engine on CPUs": has(model(vllm, split(2, 1)), inputs()),
	} {
		if there {
			t.Errorf("%s has some", name)
		}
	}
}

func TestARevisionOutlivesTheManagerThatMadeIt(t *testing.T) {
	for name, c := range map[string]struct {
		model *v1alpha1.InferenceModel
		in    desired.Inputs
		want  string
	}{
		"a plain model": {model(), inputs(), "49ef0bee0a"},
		"an engine beside": {model(func(m *v1alpha1.InferenceModel) {
			vllm(m)
			m.Spec.Engine.KVCacheType, m.Spec.Engine.PrefixCaching = "", ""
		}, split(4, 1)), inputs(), "352825d24e"},
		"a worker on a GPU": {model(), onH100s(), "b3f240e840"},
		"adapters":          {model(adapters("", "s3://b/a")), inputs(), "668e90127b"},
	} {
		if got, err := desired.Revision(c.model, c.in); err != nil || got != c.want {
			t.Errorf("%s: revision %s (%v), want %s: its workers would all be replaced", name, got, err, c.want)
		}
	}
}

func TestARevisionChangesWithGPUsAndAdapters(t *testing.T) {
	revision := func(m *v1alpha1.InferenceModel, in desired.Inputs) string {
		r, err := desired.Revision(m, in)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	base := revision(model(adapters("", "s3://b/a")), onH100s())
	digest := func(m *v1alpha1.InferenceModel) { m.Spec.Adapters[1].Digest = "sha256:" + strings.Repeat("a", 64) }
	image := onH100s()
	image.CUDAImage = "other"
	cpuImage := onH100s()
	cpuImage.Image = "other"
	for name, c := range map[string]struct {
		got  string
		same bool
	}{
		"another adapter":               {revision(model(adapters("", "s3://b/c")), onH100s()), false},
		"an adapter's digest":           {revision(model(adapters("", "s3://b/a"), digest), onH100s()), false},
		"an adapter less":               {revision(model(adapters("")), onH100s()), false},
		"another product":               {revision(model(adapters("", "s3://b/a")), onH100s(func(p *v1alpha1.WorkerPoolSpec) { p.Accelerator.Product = "Tesla-T4" })), false},
		"another resource":              {revision(model(adapters("", "s3://b/a")), onH100s(func(p *v1alpha1.WorkerPoolSpec) { p.Accelerator.ResourceName = "a.b/c" })), false},
		"no GPU":                        {revision(model(adapters("", "s3://b/a")), inputs()), false},
		"another image with CUDA":       {revision(model(adapters("", "s3://b/a")), image), false},
		"another image without it":      {revision(model(adapters("", "s3://b/a")), cpuImage), true},
		"what memory the pool says":     {revision(model(adapters("", "s3://b/a")), onH100s(func(p *v1alpha1.WorkerPoolSpec) { p.Accelerator.MemoryMebibytes = 1024 })), true},
		"another limit of the worker's": {revision(model(adapters("", "s3://b/a")), onH100s(func(p *v1alpha1.WorkerPoolSpec) { p.WorkerResources.Limits["memory"] = resource.MustParse("9Gi") })), false},
	} {
		if (c.got == base) != c.same {
			t.Errorf("%s: revision %s, before %s; same should be %v", name, c.got, base, c.same)
		}
	}
}
