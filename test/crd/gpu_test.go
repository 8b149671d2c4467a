package crd

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/ringfleet/ringfleet/api/engineargs"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/test/fixtures"
)

// kinds are all engines.
var kinds = []v1alpha1.EngineKind{
	v1alpha1.EngineLlamaCpp, v1alpha1.EngineVLLM, v1alpha1.EngineSGLang, v1alpha1.EngineLlamaServer, v1alpha1.EngineOpenAI,
}

// of gives a model an engine, with what that engine needs.
func of(kind v1alpha1.EngineKind) func(*v1alpha1.InferenceModel) {
	return func(m *v1alpha1.InferenceModel) {
		m.Spec.Engine.Kind = kind
		if kind != v1alpha1.EngineLlamaCpp {
			m.Spec.Engine.Image = "engine:1"
		}
		if kind == v1alpha1.EngineLlamaServer {
			m.Spec.Weights.File = "x.gguf"
		}
	}
}

func over(tensor, pipeline int32) func(*v1alpha1.InferenceModel) {
	return func(m *v1alpha1.InferenceModel) {
		m.Spec.Parallelism = &v1alpha1.Parallelism{Tensor: &tensor, Pipeline: &pipeline}
	}
}

// adapter adds one, named lora and beside the weights, as the engine wants it, with changes.
func adapter(changes ...func(*v1alpha1.Adapter)) func(*v1alpha1.InferenceModel) {
	return func(m *v1alpha1.InferenceModel) {
		a := v1alpha1.Adapter{Name: "lora", File: "lora.gguf"}
		if m.Spec.Engine.Kind != v1alpha1.EngineLlamaCpp && m.Spec.Engine.Kind != "" {
			a.File = "loras/lora"
		}
		for _, change := range changes {
			change(&a)
		}
		m.Spec.Adapters = append(m.Spec.Adapters, a)
	}
}

func named(name string) func(*v1alpha1.Adapter) { return func(a *v1alpha1.Adapter) { a.Name = name } }
func at(uri string) func(*v1alpha1.Adapter) {
	return func(a *v1alpha1.Adapter) { a.URI, a.File = uri, "" }
}
func filed(file string) func(*v1alpha1.Adapter) { return func(a *v1alpha1.Adapter) { a.File = file } }
func digested(digest string) func(*v1alpha1.Adapter) {
	return func(a *v1alpha1.Adapter) { a.Digest = digest }
}

func weights(uri string) func(*v1alpha1.InferenceModel) {
	return func(m *v1alpha1.InferenceModel) { m.Spec.Weights.URI = uri }
}
func secret(m *v1alpha1.InferenceModel)    { m.Spec.Weights.SecretRef.Name = "s" }
func modelName(m *v1alpha1.InferenceModel) { m.Spec.ModelName = "org/model" }

func TestRulesOfParallelismAndAdapters(t *testing.T) {
	type changes = []func(*v1alpha1.InferenceModel)
	digest := "sha256:" + strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		changes changes
		want    string
	}{
		"llama.cpp over two GPUs by rows":          {changes{over(2, 1)}, ""},
		"llama.cpp over two GPUs by layers":        {changes{over(1, 2)}, ""},
		"llama.cpp both ways":                      {changes{over(2, 2)}, "not both: set one of them to 1"},
		"llama-server over two GPUs":               {changes{of("LlamaServer"), over(2, 1)}, ""},
		"llama-server both ways":                   {changes{of("LlamaServer"), over(2, 2)}, "not both: set one of them to 1"},
		"vLLM both ways":                           {changes{of("VLLM"), over(8, 2)}, ""},
		"any server on four GPUs":                  {changes{of("OpenAI"), over(2, 2)}, ""},
		"no GPU":                                   {changes{of("VLLM"), over(0, 1)}, "greater than or equal to 1"},
		"65 GPUs":                                  {changes{of("VLLM"), over(65, 1)}, "less than or equal to 64"},
		"an adapter beside the weights":            {changes{adapter()}, ""},
		"an adapter of a server that takes none":   {changes{of("LlamaServer"), adapter()}, "adapters are for engine kinds"},
		"an adapter of any server":                 {changes{of("OpenAI"), adapter()}, "adapters are for engine kinds"},
		"an adapter of vLLM beside an image":       {changes{of("VLLM"), adapter(filed("loras/x"))}, ""},
		"an adapter of SGLang beside a claim":      {changes{of("SGLang"), weights("pvc://claim/m"), adapter(filed("loras/x"))}, ""},
		"an adapter of vLLM in its repository":     {changes{of("VLLM"), weights("hf://org/m"), adapter(filed("loras/x"))}, "VLLM and SGLang is a folder"},
		"an adapter of SGLang in its bucket":       {changes{of("SGLang"), weights("s3://b/m"), adapter(filed("loras/x"))}, "VLLM and SGLang is a folder"},
		"an adapter of vLLM by its uri":            {changes{of("VLLM"), weights("hf://org/m"), adapter(at("hf://org/lora"))}, ""},
		"an adapter of SGLang in a bucket":         {changes{of("SGLang"), adapter(at("s3://bucket/loras/x"))}, ""},
		"an adapter of vLLM that is one file":      {changes{of("VLLM"), adapter(at("hf://org/lora"), filed("x.gguf"))}, "VLLM and SGLang is a folder"},
		"an adapter of SGLang from the web":        {changes{of("SGLang"), adapter(at("https://example.com/x"))}, "VLLM and SGLang is a folder"},
		"one of two adapters that vLLM can't load": {changes{of("VLLM"), adapter(), adapter(named("b"), at("https://example.com/x"))}, "VLLM and SGLang is a folder"},
		"a file of a repository for llama.cpp":     {changes{weights("hf://org/m"), adapter(at("hf://org/lora"), filed("x.gguf"))}, ""},
		"beside weights of a hub for llama.cpp":    {changes{weights("hf://org/m"), adapter()}, ""},
		"an adapter that is nowhere":               {changes{adapter(at(""))}, "needs a uri, or a file"},
		"an adapter by its uri":                    {changes{adapter(at("hf://org/lora@v1"))}, ""},
		"an adapter in a bucket":                   {changes{adapter(at("s3://bucket/loras/x"))}, ""},
		"an adapter from the web":                  {changes{adapter(at("https://example.com/x.gguf"))}, ""},
		"an adapter from the web with a query":     {changes{adapter(at("https://example.com/x.gguf?a=b"))}, "without a query or a comma"},
		"an adapter with a comma in its path":      {changes{adapter(at("https://example.com/x,y.gguf"))}, "without a query or a comma"},
		"an adapter as an image":                   {changes{adapter(at("oci://r/m:1"))}, "an adapter's uri must be hf://"},
		"an adapter above the root":                {changes{adapter(func(a *v1alpha1.Adapter) { a.File = "../x.gguf" })}, "without . or .. parts"},
		"an adapter's digest":                      {changes{adapter(digested(digest))}, ""},
		"an adapter's digest of another kind":      {changes{adapter(digested("md5:0"))}, "digest must be sha256:"},
		"the digest of a folder":                   {changes{of("VLLM"), adapter(digested(digest))}, "a folder has none"},
		"beside weights that are one file":         {changes{weights("https://example.com/x.gguf"), adapter()}, "nothing lies beside it"},
		"fetched, to weights that are one file":    {changes{weights("https://example.com/x.gguf"), adapter(at("s3://b/x.gguf"))}, ""},
		"two adapters":                             {changes{adapter(), adapter(named("other"))}, ""},
		"two adapters of one name":                 {changes{adapter(), adapter()}, "Duplicate value"},
		"an adapter without a name":                {changes{adapter(named(""))}, "Required value"},
		"an adapter with a space in its name":      {changes{adapter(named("a b"))}, "an adapter's name must start and end"},
		"an adapter named like the model":          {changes{modelName, adapter(named("org/model"))}, "neither modelName nor an alias"},
		"an adapter named like an alias":           {changes{func(m *v1alpha1.InferenceModel) { m.Spec.Aliases = []string{"x", "lora"} }, adapter()}, "neither modelName nor an alias"},
		"an adapter named like neither":            {changes{modelName, func(m *v1alpha1.InferenceModel) { m.Spec.Aliases = []string{"x"} }, adapter()}, ""},
		"an adapter named like the object":         {changes{adapter(named("tiny"))}, "must not be the object's"},
		"like the object, whose model is another":  {changes{modelName, adapter(named("tiny"))}, ""},
		"a secret for an image with adapters":      {changes{secret, adapter(at("hf://org/lora"))}, ""},
		"a secret for an image with public ones":   {changes{secret, adapter(at("https://example.com/x.gguf"))}, "secretRef is for weights or adapters"},
		"a secret for an image with its own":       {changes{secret, adapter()}, "secretRef is for weights or adapters"},
		"a secret for weights from a hub":          {changes{weights("hf://org/m"), secret}, ""},
		"as many adapters as there may be":         {changes{crowd(32)}, ""},
		"one adapter more than there may be":       {changes{crowd(33)}, "must have at most 32 items"},
		"the longest names, of all that there are": {changes{longNames}, ""},
	} {
		t.Run(name, func(t *testing.T) { judge(t, fixtures.Model(c.changes...), c.want) })
	}
}

func crowd(n int) func(*v1alpha1.InferenceModel) {
	return func(m *v1alpha1.InferenceModel) {
		for i := range n {
			adapter(named(fmt.Sprintf("a%d", i)))(m)
		}
	}
}

// longNames makes the rules about names as costly as they may be.
func longNames(m *v1alpha1.InferenceModel) {
	long := func(kind string, i int) string { return strings.Repeat("x", 240) + kind + fmt.Sprint(i) }
	m.Spec.ModelName = long("m", 0)
	for i := range 16 {
		m.Spec.Aliases = append(m.Spec.Aliases, long("l", i))
	}
	for i := range 32 {
		adapter(named(long("a", i)))(m)
	}
}

func TestRulesOfAccelerators(t *testing.T) {
	gpu := func(a v1alpha1.Accelerator) func(*v1alpha1.WorkerPool) {
		return func(p *v1alpha1.WorkerPool) { a.Kind = v1alpha1.AcceleratorNvidiaGPU; p.Spec.Accelerator = a }
	}
	cpu := func(a v1alpha1.Accelerator) func(*v1alpha1.WorkerPool) {
		return func(p *v1alpha1.WorkerPool) { p.Spec.Accelerator = a }
	}
	limits := func(name corev1.ResourceName) func(*v1alpha1.WorkerPool) {
		return func(p *v1alpha1.WorkerPool) {
			p.Spec.WorkerResources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi"), name: resource.MustParse("2")}
		}
	}
	selects := func(product string) func(*v1alpha1.WorkerPool) {
		return func(p *v1alpha1.WorkerPool) {
			p.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.product": product}
		}
	}
	type changes = []func(*v1alpha1.WorkerPool)
	for name, c := range map[string]struct {
		changes changes
		want    string
	}{
		"any GPU":                              {changes{gpu(v1alpha1.Accelerator{})}, ""},
		"GPUs of a product and size":           {changes{gpu(v1alpha1.Accelerator{Product: "NVIDIA-H100-80GB-HBM3", MemoryMebibytes: 81559})}, ""},
		"slices":                               {changes{gpu(v1alpha1.Accelerator{ResourceName: "nvidia.com/mig-3g.40gb"})}, ""},
		"a product that is no label":           {changes{gpu(v1alpha1.Accelerator{Product: "H100 80GB"})}, "must be a label's value"},
		"a product of 64 characters":           {changes{gpu(v1alpha1.Accelerator{Product: strings.Repeat("x", 64)})}, "may not be more than 63"},
		"a resource without a domain":          {changes{gpu(v1alpha1.Accelerator{ResourceName: "gpu"})}, "must be a name such as nvidia.com/gpu"},
		"a resource with a long domain":        {changes{gpu(v1alpha1.Accelerator{ResourceName: strings.Repeat("a.", 121) + "ab/c"})}, ""},
		"a resource with a longer domain":      {changes{gpu(v1alpha1.Accelerator{ResourceName: strings.Repeat("a.", 122) + "a/c"})}, "a domain of at most 244 characters"},
		"a resource with a long name":          {changes{gpu(v1alpha1.Accelerator{ResourceName: "a.b/" + strings.Repeat("c", 63)})}, ""},
		"a resource with a longer name":        {changes{gpu(v1alpha1.Accelerator{ResourceName: "a.b/" + strings.Repeat("c", 64)})}, "at most 63 letters"},
		"a resource of a quota":                {changes{gpu(v1alpha1.Accelerator{ResourceName: "requests.nvidia.com/gpu"})}, "must be an extended resource's"},
		"a resource of Kubernetes":             {changes{gpu(v1alpha1.Accelerator{ResourceName: "kubernetes.io/gpu"})}, "must be an extended resource's"},
		"a resource of a part of Kubernetes":   {changes{gpu(v1alpha1.Accelerator{ResourceName: "node.kubernetes.io/gpu"})}, "must be an extended resource's"},
		"a resource of Kubernetes' namesake":   {changes{gpu(v1alpha1.Accelerator{ResourceName: "kubernetes.io.example.com/gpu"})}, ""},
		"a resource with an empty label":       {changes{gpu(v1alpha1.Accelerator{ResourceName: "a..b/c"})}, "must be a name such as nvidia.com/gpu"},
		"a GPU of 100 MiB":                     {changes{gpu(v1alpha1.Accelerator{MemoryMebibytes: 100})}, "greater than or equal to 1024"},
		"a product of a CPU":                   {changes{cpu(v1alpha1.Accelerator{Product: "x"})}, "are for kind NvidiaGPU"},
		"GPU memory of a CPU":                  {changes{cpu(v1alpha1.Accelerator{Kind: "CPU", MemoryMebibytes: 2048})}, "are for kind NvidiaGPU"},
		"a resource of a CPU":                  {changes{cpu(v1alpha1.Accelerator{ResourceName: "a.b/c"})}, "are for kind NvidiaGPU"},
		"GPUs named twice":                     {changes{gpu(v1alpha1.Accelerator{}), limits("nvidia.com/gpu")}, "must not name the accelerator's resource"},
		"slices named twice":                   {changes{gpu(v1alpha1.Accelerator{ResourceName: "a.b/c"}), limits("a.b/c")}, "must not name the accelerator's resource"},
		"another resource beside GPUs":         {changes{gpu(v1alpha1.Accelerator{}), limits("rdma/hca")}, ""},
		"GPUs of a pool that is not of them":   {changes{limits("nvidia.com/gpu")}, ""},
		"a selector for the product as well":   {changes{gpu(v1alpha1.Accelerator{Product: "Tesla-T4"}), selects("Tesla-T4")}, ""},
		"a selector for another product":       {changes{gpu(v1alpha1.Accelerator{Product: "Tesla-T4"}), selects("NVIDIA-L4")}, "wants another nvidia.com/gpu.product"},
		"a selector in place of the product":   {changes{gpu(v1alpha1.Accelerator{}), selects("NVIDIA-L4")}, ""},
		"a selector of a pool without product": {changes{selects("NVIDIA-L4")}, ""},
	} {
		t.Run(name, func(t *testing.T) { judge(t, fixtures.Pool(c.changes...), c.want) })
	}
}

func TestWhatTheAPIAcceptsOfParallelismAndAdaptersEnginesAreToldOf(t *testing.T) {
	c := checker(t)
	for _, kind := range kinds {
		if kind == v1alpha1.EngineLlamaCpp { // has no arguments
			continue
		}
		for name, setting := range map[string]struct {
			change func(*v1alpha1.InferenceModel)
			same   func(*engineargs.Settings)
		}{
			"tensor":        {over(2, 1), func(s *engineargs.Settings) { s.TensorParallel, s.PipelineParallel = 2, 1 }},
			"pipeline":      {over(1, 2), func(s *engineargs.Settings) { s.TensorParallel, s.PipelineParallel = 1, 2 }},
			"both":          {over(2, 2), func(s *engineargs.Settings) { s.TensorParallel, s.PipelineParallel = 2, 2 }},
			"adapters":      {adapter(), func(s *engineargs.Settings) { s.LoRA = true }},
			"prefixCaching": {func(m *v1alpha1.InferenceModel) { m.Spec.Engine.PrefixCaching = "Disabled" }, func(s *engineargs.Settings) { s.NoPrefixCaching = true }},
		} {
			var s engineargs.Settings
			setting.same(&s)
			_, err := c.Apply(fixtures.Model(of(kind), setting.change))
			if told := len(engineargs.Unsupported(engineargs.Kind(kind), s)) == 0; told != (err == nil) {
				t.Errorf("%s with %s: the API says %v; the engine can be told of it: %v", kind, name, err, told)
			}
		}
	}
}
