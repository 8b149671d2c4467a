package desired_test

import (
	"flag"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/controllers/inferencemodel/desired"
	"github.com/ringfleet/ringfleet/controllers/names"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func model(change ...func(*v1alpha1.InferenceModel)) *v1alpha1.InferenceModel {
	m := &v1alpha1.InferenceModel{
		ObjectMeta: metav1.ObjectMeta{Name: "smollm2", Namespace: "demo", UID: "0f4b1c9e-0000-4000-8000-000000000001"},
		Spec: v1alpha1.InferenceModelSpec{
			ModelName: "HuggingFaceTB/SmolLM2-135M-Instruct",
			Weights:   v1alpha1.Weights{URI: "oci://docker.io/ringfleet/smollm2-135m-instruct:q4_1"},
			Engine:    v1alpha1.Engine{Kind: v1alpha1.EngineLlamaCpp, ContextTokens: 8192, MaxSequences: 16, KVCacheType: v1alpha1.KVCacheF16},
			PoolRef:   v1alpha1.LocalName{Name: "default"},
		},
	}
	for _, c := range change {
		c(m)
	}
	return m
}

func inputs() desired.Inputs {
	return desired.Inputs{
		Image: "ringfleet/worker:dev", CUDAImage: "ringfleet/worker-cuda:dev", PullPolicy: corev1.PullIfNotPresent, Revision: "0123456789", Ordinal: 1,
		Pool: &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.WorkerPoolSpec{
			Accelerator: v1alpha1.Accelerator{Kind: v1alpha1.AcceleratorCPU},
			WorkerResources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("512Mi")},
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("2Gi")},
			},
		}},
	}
}

func golden(t *testing.T, file string, o any) {
	t.Helper()
	got, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	path := "testdata/" + file
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs; run the test with -update and read the diff. Now:\n%s", path, got)
	}
}

func TestTheWorkerOfAModelWithAnImageOfWeights(t *testing.T) {
	golden(t, "worker_oci.yaml", desired.Worker(model(), inputs()))
}

func TestTheWorkerOfAModelWithAClaimAndAPoolWithEverything(t *testing.T) {
	in := inputs()
	p := &in.Pool.Spec
	p.NodeSelector = map[string]string{"disk": "fast"}
	p.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	p.PriorityClassName = "high"
	p.RingWeightPercent = 150
	p.ImagePullSecrets = []v1alpha1.LocalName{{Name: "pull"}}
	golden(t, "worker_pvc.yaml", desired.Worker(model(func(m *v1alpha1.InferenceModel) {
		m.Spec.Weights = v1alpha1.Weights{URI: "pvc://claim/models/smol", File: "a/x.gguf", Digest: "sha256:" + strings.Repeat("0", 64)}
		m.Spec.Engine.Image = "example.com/worker@sha256:" + strings.Repeat("1", 64)
		m.Spec.Engine.KVCacheType = v1alpha1.KVCacheQ8
		m.Spec.DrainTimeoutSeconds = new(int64(20))
	}), in))
}

func TestTheWorkerOfAModelThatItFetchesItself(t *testing.T) {
	in := inputs()
	in.Pool.Spec.WeightCache = v1alpha1.WeightCache{
		Kind: v1alpha1.WeightCacheClaim, ClaimName: "cache", SizeGibibytes: new(int32(200)), AllowNetworks: []string{"10.20.0.0/16", "fd00::/8"},
	}
	in.Pool.Spec.ServiceAccountName = "reader"
	golden(t, "worker_fetched.yaml", desired.Worker(model(func(m *v1alpha1.InferenceModel) {
		m.Spec.Weights = v1alpha1.Weights{URI: "hf://org/model@main", File: "x.gguf", SecretRef: v1alpha1.LocalName{Name: "hub"}}
	}), in))
}

func TestTheWorkerOfAnEngineBesideItWithFetchedWeights(t *testing.T) {
	in := inputs()
	in.Pool.Spec.WeightCache = v1alpha1.WeightCache{Kind: v1alpha1.WeightCacheEmptyDir, SizeGibibytes: new(int32(50))}
	golden(t, "worker_vllm.yaml", desired.Worker(model(func(m *v1alpha1.InferenceModel) {
		m.Spec.Weights = v1alpha1.Weights{URI: "s3://bucket/llama", SecretRef: v1alpha1.LocalName{Name: "store"}}
		m.Spec.Engine = v1alpha1.Engine{
			Kind: v1alpha1.EngineVLLM, Image: "docker.io/vllm/vllm-openai:v0.32.0", ContextTokens: 8192, MaxSequences: 64, DType: "bfloat16",
			KVCacheType: v1alpha1.KVCacheQ8, PrefixCaching: v1alpha1.PrefixCachingDisabled, Args: []string{"--enforce-eager"},
			Env: []v1alpha1.EngineVariable{{Name: "VLLM_LOGGING_LEVEL", Value: "WARNING"}},
		}
		m.Spec.Parallelism = &v1alpha1.Parallelism{Tensor: new(int32(4))}
	}), in))
}

func TestTheWorkerOfAnyServerBesideItWithAnImageOfWeights(t *testing.T) {
	golden(t, "worker_openai.yaml", desired.Worker(model(func(m *v1alpha1.InferenceModel) {
		m.Spec.Engine = v1alpha1.Engine{
			Kind: v1alpha1.EngineOpenAI, Image: "example.com/server:1", ContextTokens: 8192, MaxSequences: 16, KVCacheType: v1alpha1.KVCacheF16,
			Command: []string{"/server"}, Args: []string{"--model", "/weights/x.gguf", "--port", "8000"},
		}
	}), inputs()))
}

func TestAnEngineInTheWorkerHasNoArgumentsOfItsOwn(t *testing.T) {
	if got := desired.EngineArgs(model()); got != nil {
		t.Errorf("got %q", got)
	}
}

func TestAPoolThatSpeaksOfLostNodesIsHeard(t *testing.T) {
	seconds := func(taint string, ts []corev1.Toleration) string {
		for _, x := range ts {
			switch {
			case x.Key != taint || x.Effect != corev1.TaintEffectNoExecute:
			case x.TolerationSeconds == nil:
				return "ever"
			default:
				return strconv.FormatInt(*x.TolerationSeconds, 10)
			}
		}
		return "nothing"
	}
	for name, c := range map[string]struct {
		pool                  []corev1.Toleration
		notReady, unreachable string
	}{
		"nothing is said": {nil, "30", "30"},
		"another taint":   {[]corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}, "30", "30"},
		"another time for one of them": {[]corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(5))}}, "5", "30"},
		"for ever": {[]corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute}}, "30", "ever"},
		"another effect": {[]corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoSchedule}}, "30", "30"},
		"every taint is tolerated": {[]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, "nothing", "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputs()
			in.Pool.Spec.Tolerations = c.pool
			got := desired.Worker(model(), in).Spec.Tolerations
			if a, b := seconds(corev1.TaintNodeNotReady, got), seconds(corev1.TaintNodeUnreachable, got); a != c.notReady || b != c.unreachable {
				t.Errorf("tolerates a node that is not ready for %s s and an unreachable one for %s s: %+v", a, b, got)
			}
			if len(in.Pool.Spec.Tolerations) != len(c.pool) {
				t.Error("the pool was changed")
			}
		})
	}
}

func TestTheService(t *testing.T) {
	golden(t, "service.yaml", desired.Service(model()))
}

func TestTheDisruptionBudget(t *testing.T) {
	golden(t, "disruption.yaml", desired.DisruptionBudget(model(), 1))
}

func TestTheDisruptionBudgetHoldsANumberWhereTheScaleIsOutOfBounds(t *testing.T) {
	for name, c := range map[string]struct{ asked, replicas, unavailable, available int }{
		"as many as asked for":        {2, 2, 1, -1},
		"fewer than asked for":        {9, 4, -1, 3},
		"more than asked for":         {0, 1, -1, 0},
		"none, and none is asked for": {0, 0, 1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			m := model(func(m *v1alpha1.InferenceModel) { m.Spec.Replicas = new(int32(c.asked)) })
			spec := desired.DisruptionBudget(m, c.replicas).Spec
			is := func(n *intstr.IntOrString, want int) bool {
				return n == nil && want < 0 || n != nil && n.IntValue() == want
			}
			if !is(spec.MaxUnavailable, c.unavailable) || !is(spec.MinAvailable, c.available) {
				t.Errorf("maxUnavailable %v, minAvailable %v, want %d, %d", spec.MaxUnavailable, spec.MinAvailable, c.unavailable, c.available)
			}
		})
	}
}

func TestTheReferenceOfAnImageOfWeights(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for uri, want := range map[string][2]string{
		"oci://example.com:5000/a/b:tag":     {"example.com:5000/a/b:tag", "example.com:5000/a/b@" + digest},
		"oci://example.com:5000/a/b":         {"example.com:5000/a/b", "example.com:5000/a/b@" + digest},
		"oci://a/b@sha256:" + "0123456789ab": {"a/b@sha256:0123456789ab", ""},
		"pvc://claim":                        {"", ""},
	} {
		if got := desired.WeightsImage(v1alpha1.Weights{URI: uri}); got != want[0] {
			t.Errorf("%s: got %q, want %q", uri, got, want[0])
		}
		if got := desired.WeightsImage(v1alpha1.Weights{URI: uri, Digest: digest}); want[1] != "" && got != want[1] {
			t.Errorf("%s with a digest: got %q, want %q", uri, got, want[1])
		}
	}
}

func TestARevisionChangesWithWhatNeedsAnotherPodOnly(t *testing.T) {
	base, err := desired.Revision(model(), inputs())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.InferenceModel, *desired.Inputs)
		same   bool
	}{
		"replicas":         {func(m *v1alpha1.InferenceModel, _ *desired.Inputs) { m.Spec.Replicas = new(int32(3)) }, true},
		"aliases":          {func(m *v1alpha1.InferenceModel, _ *desired.Inputs) { m.Spec.Aliases = []string{"x"} }, true},
		"drain time":       {func(m *v1alpha1.InferenceModel, _ *desired.Inputs) { m.Spec.DrainTimeoutSeconds = new(int64(1)) }, true},
		"bounds":           {func(m *v1alpha1.InferenceModel, _ *desired.Inputs) { m.Spec.Scaling.MaxReplicas = new(int32(9)) }, true},
		"rollout":          {func(m *v1alpha1.InferenceModel, _ *desired.Inputs) { m.Spec.Rollout.MaxSurge = new(int32(9)) }, true},
		"labels":           {func(m *v1alpha1.InferenceModel, _ *desired.Inputs) { m.Labels = map[string]string{"a": "b"} }, true},
		"another ordinal":  {func(_ *v1alpha1.InferenceModel, in *desired.Inputs) { in.Ordinal = 7 }, true},
		"the model's name": {func(m *v1alpha1.InferenceModel, _ *desired.Inputs) { m.Spec.ModelName = "other" }, false},
		"weights":          {func(m *v1alpha1.InferenceModel, _ *desired.Inputs) { m.Spec.Weights.File = "y.gguf" }, false},
		"engine":           {func(m *v1alpha1.InferenceModel, _ *desired.Inputs) { m.Spec.Engine.MaxSequences = 4 }, false},
		"parallelism": {func(m *v1alpha1.InferenceModel, _ *desired.Inputs) {
			m.Spec.Parallelism = &v1alpha1.Parallelism{Tensor: new(int32(2))}
		}, false},
		"the worker's image": {func(_ *v1alpha1.InferenceModel, in *desired.Inputs) { in.Image = "other" }, false},
		"the usual weight on rings": {func(_ *v1alpha1.InferenceModel, in *desired.Inputs) {
			in.Pool.Spec.RingWeightPercent = 100
		}, true},
		"another weight on rings": {func(_ *v1alpha1.InferenceModel, in *desired.Inputs) {
			in.Pool.Spec.RingWeightPercent = 200
		}, false},
		"the pool's spec": {func(_ *v1alpha1.InferenceModel, in *desired.Inputs) {
			in.Pool.Spec.NodeSelector = map[string]string{"a": "b"}
		}, false},
	} {
		m, in := model(), inputs()
		c.change(m, &in)
		got, err := desired.Revision(m, in)
		if err != nil {
			t.Fatal(err)
		}
		if (got == base) != c.same {
			t.Errorf("%s: revision %s, before %s; same should be %v", name, got, base, c.same)
		}
	}
}

var label = regexp.MustCompile(`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`)

func FuzzModelNameToK8s(f *testing.F) {
	for _, n := range []string{"m", "a--b", "1", "0-9.x", strings.Repeat("a", 253), strings.Repeat("a.", 126) + "b", strings.Repeat("a-", 40) + "b", "ibm.granite-3b", ""} {
		f.Add(n, "uid-1", 7)
	}
	f.Fuzz(func(t *testing.T, name, uid string, ordinal int) {
		ordinal &= 0xffff
		m := model(func(m *v1alpha1.InferenceModel) { m.Name, m.UID = name, types.UID(uid) })
		service, worker := desired.ServiceName(m), desired.WorkerName(m, "0123456789", ordinal)
		for _, n := range []string{service, worker} {
			if errs := validation.IsDNS1035Label(n); len(errs) > 0 {
				t.Errorf("%q from %q: %v", n, name, errs)
			}
		}
		if got, ok := desired.Ordinal(worker); !ok || got != ordinal {
			t.Errorf("ordinal of %q: got %d %v, want %d", worker, got, ok, ordinal)
		}
		if again := desired.ServiceName(m); again != service {
			t.Errorf("%q first, then %q", service, again)
		}
		other := model(func(m *v1alpha1.InferenceModel) { m.Name, m.UID = name, types.UID(uid+"x") })
		if desired.ServiceName(other) == service {
			t.Errorf("two models share the name %q", service)
		}
		if len(validation.IsDNS1123Subdomain(name)) == 0 {
			if v := names.Label(name); len(v) > 63 || !label.MatchString(v) {
				t.Errorf("label value %q from %q", v, name)
			}
		}
	})
}
