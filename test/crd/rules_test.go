package crd

import (
	"io/fs"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/ringfleet/ringfleet/api/crd"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/test/fixtures"
)

// made is the checker of all tests: it never changes.
var made = sync.OnceValues(New)

func checker(t *testing.T) *Checker {
	t.Helper()
	c, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// judge fails unless object is refused with a message that holds want, or accepted when want is "".
func judge(t *testing.T, object any, want string) {
	t.Helper()
	_, err := checker(t).Apply(object)
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("accepted, want a refusal with %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("refused with %q, want %q", err, want)
	}
}

var modelRules = map[string]struct {
	change func(*v1alpha1.InferenceModel)
	want   string
}{
	"four lines are enough":                 {func(*v1alpha1.InferenceModel) {}, ""},
	"a model name with slashes and dots":    {func(m *v1alpha1.InferenceModel) { m.Spec.ModelName = "org/Model.Name_v1:Q4" }, ""},
	"a model name with a space":             {func(m *v1alpha1.InferenceModel) { m.Spec.ModelName = "my model" }, "modelName must start and end"},
	"a model name that ends in a slash":     {func(m *v1alpha1.InferenceModel) { m.Spec.ModelName = "org/" }, "modelName must start and end"},
	"an alias with a quote":                 {func(m *v1alpha1.InferenceModel) { m.Spec.Aliases = []string{`a"b`} }, "an alias must start and end"},
	"an alias given twice":                  {func(m *v1alpha1.InferenceModel) { m.Spec.Aliases = []string{"a", "a"} }, "Duplicate value"},
	"seventeen aliases":                     {func(m *v1alpha1.InferenceModel) { m.Spec.Aliases = strings.Split("abcdefghijklmnopq", "") }, "must have at most 16 items"},
	"no weights":                            {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "" }, "spec: Required value"},
	"weights by a scheme that is not known": {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "ftp://x/y" }, "weights.uri must be oci://"},
	"weights on a claim":                    {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "pvc://models/llama/8b" }, ""},
	"weights on a claim above its root":     {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "pvc://models/../etc" }, "weights.uri must be oci://"},
	"a weights file above the root":         {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.File = "../x.gguf" }, "without . or .. parts"},
	"an absolute weights file":              {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.File = "/x.gguf" }, "must be a relative path"},
	"a weights file with dots in its name":  {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.File = "a/x.Q4_1..gguf" }, ""},
	"a digest of another kind":              {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.Digest = "md5:0" }, "must be sha256:"},
	"a digest beside a digest": {func(m *v1alpha1.InferenceModel) {
		m.Spec.Weights = v1alpha1.Weights{URI: "oci://r/m@sha256:" + strings.Repeat("0", 64), Digest: "sha256:" + strings.Repeat("0", 64)}
	}, "the uri already names a digest"},
	"weights from a hub":                     {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "hf://org/Model-1.0@refs/pr/1" }, ""},
	"weights from a hub without an owner":    {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "hf://model" }, "weights.uri must be oci://"},
	"weights from an object store":           {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "s3://bucket.name/a/b c" }, "weights.uri must be oci://"},
	"weights from a bucket":                  {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "s3://bucket.name/a/x.gguf" }, ""},
	"weights from the web":                   {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "https://example.com:8443/x.gguf" }, ""},
	"weights from the web with a query":      {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "https://example.com/x.gguf?token=1" }, "without a query"},
	"weights from the web without a path":    {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "https://example.com/" }, "weights.uri must be oci://"},
	"weights from the web by plain HTTP":     {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "http://example.com/x.gguf" }, "weights.uri must be oci://"},
	"weights from the web with a password":   {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = "https://me:pw@example.com/x.gguf" }, "weights.uri must be oci://"},
	"a secret for an image":                  {func(m *v1alpha1.InferenceModel) { m.Spec.Weights.SecretRef.Name = "s" }, "secretRef is for weights or adapters by hf:// and s3://"},
	"an engine beside the worker, unpicked":  {func(m *v1alpha1.InferenceModel) { m.Spec.Engine.Kind = "VLLM" }, "engine.image is needed"},
	"an engine beside the worker":            {func(m *v1alpha1.InferenceModel) { m.Spec.Engine.Kind, m.Spec.Engine.Image = "VLLM", "vllm:1" }, ""},
	"arguments for an engine in the worker":  {func(m *v1alpha1.InferenceModel) { m.Spec.Engine.Args = []string{"-x"} }, "runs inside the worker"},
	"a variable for an engine in the worker": {func(m *v1alpha1.InferenceModel) { m.Spec.Engine.Env = []v1alpha1.EngineVariable{{Name: "A"}} }, "runs inside the worker"},
	"a variable with a bad name": {func(m *v1alpha1.InferenceModel) {
		m.Spec.Engine.Kind, m.Spec.Engine.Image = "VLLM", "vllm:1"
		m.Spec.Engine.Env = []v1alpha1.EngineVariable{{Name: "1A"}}
	}, "begin with no digit"},
	"a server of one file, which is not named": {func(m *v1alpha1.InferenceModel) {
		m.Spec.Engine.Kind, m.Spec.Engine.Image = "LlamaServer", "llama:1"
	}, "weights.file is needed"},
	"no prefix caching in the worker": {func(m *v1alpha1.InferenceModel) { m.Spec.Engine.PrefixCaching = "Disabled" }, "can be disabled for kinds VLLM and SGLang only"},
	"an engine that does not exist":   {func(m *v1alpha1.InferenceModel) { m.Spec.Engine.Kind = "Magic" }, "Unsupported value"},
	"a context of 100 tokens":         {func(m *v1alpha1.InferenceModel) { m.Spec.Engine.ContextTokens = 100 }, "greater than or equal to 256"},
	"300 sequences":                   {func(m *v1alpha1.InferenceModel) { m.Spec.Engine.MaxSequences = 300 }, "less than or equal to 128"},
	"a minimum above the maximum":     {func(m *v1alpha1.InferenceModel) { m.Spec.Scaling.MinReplicas = ptr.To[int32](5) }, "minReplicas must be less than or equal to scaling.maxReplicas"},
	"a negative number of replicas":   {func(m *v1alpha1.InferenceModel) { m.Spec.Replicas = ptr.To[int32](-1) }, "greater than or equal to 0"},
	"a rollout that can never happen": {func(m *v1alpha1.InferenceModel) { m.Spec.Rollout.MaxSurge = ptr.To[int32](0) }, "must not both be 0"},
	"a drain of two days":             {func(m *v1alpha1.InferenceModel) { m.Spec.DrainTimeoutSeconds = ptr.To[int64](172800) }, "less than or equal to 86400"},
}

func TestInferenceModelRules(t *testing.T) {
	for name, r := range modelRules {
		t.Run(name, func(t *testing.T) { judge(t, fixtures.Model(r.change), r.want) })
	}
}

func TestWorkerPoolRules(t *testing.T) {
	for name, r := range map[string]struct {
		change func(*v1alpha1.WorkerPool)
		want   string
	}{
		"an empty pool":                      {func(*v1alpha1.WorkerPool) {}, ""},
		"an accelerator that does not exist": {func(p *v1alpha1.WorkerPool) { p.Spec.Accelerator.Kind = "Abacus" }, "Unsupported value"},
		"limits without memory": {func(p *v1alpha1.WorkerPool) {
			p.Spec.WorkerResources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		}, "limits must name cpu and memory"},
		"a cache on a claim without a name": {func(p *v1alpha1.WorkerPool) { p.Spec.WeightCache.Kind = "PersistentVolumeClaim" }, "weightCache.claimName is needed"},
		"a cache on a claim": {func(p *v1alpha1.WorkerPool) {
			p.Spec.WeightCache = v1alpha1.WeightCache{Kind: "PersistentVolumeClaim", ClaimName: "c"}
		}, ""},
		"a claim for a cache in the pod":  {func(p *v1alpha1.WorkerPool) { p.Spec.WeightCache.ClaimName = "c" }, "and for no other"},
		"a network that is none":          {func(p *v1alpha1.WorkerPool) { p.Spec.WeightCache.AllowNetworks = []string{"10.0.0.1"} }, "must be networks"},
		"a private network":               {func(p *v1alpha1.WorkerPool) { p.Spec.WeightCache.AllowNetworks = []string{"10.0.0.0/8"} }, ""},
		"the least weight on rings":       {func(p *v1alpha1.WorkerPool) { p.Spec.RingWeightPercent = 1 }, ""},
		"the greatest weight on rings":    {func(p *v1alpha1.WorkerPool) { p.Spec.RingWeightPercent = 1000 }, ""},
		"a weight on rings beyond reason": {func(p *v1alpha1.WorkerPool) { p.Spec.RingWeightPercent = 1001 }, "less than or equal to 1000"},
		"a weight on rings below nothing": {func(p *v1alpha1.WorkerPool) { p.Spec.RingWeightPercent = -1 }, "greater than or equal to 1"},
		"resource claims": {func(p *v1alpha1.WorkerPool) {
			p.Spec.WorkerResources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
			p.Spec.WorkerResources.Claims = []corev1.ResourceClaim{{Name: "x"}}
		}, "claims are not supported"},
	} {
		t.Run(name, func(t *testing.T) { judge(t, fixtures.Pool(r.change), r.want) })
	}
}

func TestInferenceRouterRules(t *testing.T) {
	for name, r := range map[string]struct {
		change func(*v1alpha1.InferenceRouter)
		want   string
	}{
		"an empty router": {func(*v1alpha1.InferenceRouter) {}, ""},
		"a timeout longer than the interval": {func(r *v1alpha1.InferenceRouter) { r.Spec.Heartbeat.TimeoutMilliseconds = 2000 },
			"timeoutMilliseconds must be less than or equal to heartbeat.intervalMilliseconds"},
		"a Service of another type":       {func(r *v1alpha1.InferenceRouter) { r.Spec.Service.Type = "ExternalName" }, "Unsupported value"},
		"port 70000":                      {func(r *v1alpha1.InferenceRouter) { r.Spec.Service.Port = 70000 }, "less than or equal to 65535"},
		"an interval of ten milliseconds": {func(r *v1alpha1.InferenceRouter) { r.Spec.Heartbeat.IntervalMilliseconds = 10 }, "greater than or equal to 100"},
		"tiers, and the default one of them": {func(r *v1alpha1.InferenceRouter) {
			r.Spec.Tiers, r.Spec.DefaultTier = []v1alpha1.Tier{{Name: "gold"}, {Name: "free"}}, "free"
		}, ""},
		"a default tier that is none of them": {func(r *v1alpha1.InferenceRouter) {
			r.Spec.Tiers, r.Spec.DefaultTier = []v1alpha1.Tier{{Name: "gold"}}, "free"
		}, "defaultTier must be the name of one of tiers"},
		"a default tier without tiers": {func(r *v1alpha1.InferenceRouter) { r.Spec.DefaultTier = "free" }, "defaultTier must be the name of one of tiers"},
		"one tier twice": {func(r *v1alpha1.InferenceRouter) {
			r.Spec.Tiers = []v1alpha1.Tier{{Name: "gold"}, {Name: "gold"}}
		}, "Duplicate value"},
		"admission above refusal": {func(r *v1alpha1.InferenceRouter) {
			r.Spec.Admission = v1alpha1.Admission{AdmitPercent: 96, RefusePercent: 95}
		}, "admission.admitPercent must be less than or equal to admission.refusePercent"},
		"all bands in their order": {func(r *v1alpha1.InferenceRouter) {
			r.Spec.Admission = v1alpha1.Admission{WatchPercent: 60, ScaleOutPercent: 61, AdmitPercent: 62, RefusePercent: 63}
		}, ""},
		"admission below where people would look by default": {func(r *v1alpha1.InferenceRouter) {
			r.Spec.Admission = v1alpha1.Admission{AdmitPercent: 50, RefusePercent: 50}
		}, ""},
		"looking only where more workers would help": {func(r *v1alpha1.InferenceRouter) {
			r.Spec.Admission.WatchPercent, r.Spec.Admission.ScaleOutPercent = 80, 80
		}, "admission.watchPercent must be less than admission.scaleOutPercent"},
		"looking only where requests wait": {func(r *v1alpha1.InferenceRouter) { r.Spec.Admission.WatchPercent = 90 },
			"admission.watchPercent must be less than admission.admitPercent"},
		"more workers only where requests wait": {func(r *v1alpha1.InferenceRouter) { r.Spec.Admission.ScaleOutPercent = 90 },
			"admission.scaleOutPercent must be less than admission.admitPercent"},
		"a band above all":           {func(r *v1alpha1.InferenceRouter) { r.Spec.Admission.WatchPercent = 101 }, "less than or equal to 100"},
		"a policy that is not there": {func(r *v1alpha1.InferenceRouter) { r.Spec.Placement.Policy = "Best" }, "Unsupported value"},
		"a load below the mean":      {func(r *v1alpha1.InferenceRouter) { r.Spec.Ring.MaxLoadPercent = 90 }, "greater than or equal to 100"},
		"a collector without a scheme": {func(r *v1alpha1.InferenceRouter) {
			r.Spec.Tracing = &v1alpha1.Tracing{Endpoint: "collector:4317"}
		}, "should match"},
		"more virtual nodes than are useful": {func(r *v1alpha1.InferenceRouter) { r.Spec.Ring.VirtualNodes = 5000 }, "less than or equal to 1000"},
	} {
		t.Run(name, func(t *testing.T) { judge(t, fixtures.Router(r.change), r.want) })
	}
}

func TestAnUnknownFieldIsNamed(t *testing.T) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(fixtures.Model())
	if err != nil {
		t.Fatal(err)
	}
	object["spec"].(map[string]any)["replcas"] = int64(2)
	if _, err := checker(t).ApplyMap(object); err == nil || !strings.Contains(err.Error(), "replcas") {
		t.Errorf("got %v, want an error that names replcas", err)
	}
}

func TestDefaultsMakeTheFirstLinesEnough(t *testing.T) {
	stored, err := checker(t).Apply(fixtures.Model())
	if err != nil {
		t.Fatal(err)
	}
	var m v1alpha1.InferenceModel
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored, &m); err != nil {
		t.Fatal(err)
	}
	s := m.Spec
	if *s.Replicas != 1 || *s.Scaling.MinReplicas != 1 || *s.Scaling.MaxReplicas != 4 || s.PoolRef.Name != "default" ||
		s.Engine.Kind != v1alpha1.EngineLlamaCpp || s.Engine.ContextTokens != 8192 || s.Engine.MaxSequences != 16 ||
		s.Engine.KVCacheType != v1alpha1.KVCacheF16 || *s.Rollout.MaxSurge != 1 || *s.Rollout.MaxUnavailable != 0 || *s.DrainTimeoutSeconds != 600 {
		t.Errorf("unexpected defaults: %+v", s)
	}
}

func TestFilesFitIntoTheAnnotationOfClientSideApply(t *testing.T) {
	names, err := fs.Glob(crd.FS, "*.yaml")
	if err != nil || len(names) != 3 {
		t.Fatalf("want three CRDs, got %v (%v)", names, err)
	}
	for _, name := range names {
		if text, _ := fs.ReadFile(crd.FS, name); len(text) > 200<<10 {
			t.Errorf("%s has %d bytes, more than 200 KiB", name, len(text))
		}
	}
}
