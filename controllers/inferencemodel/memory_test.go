package inferencemodel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ringfleet/ringfleet/api/memoryplan"
	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/api/worker/shape"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// llama is the shape of a model of the Llama family with that many layers and that width, in BF16.
func llama(layers, width int) *modelfile.Shape {
	s, err := modelfile.ConfigShape(fmt.Appendf(nil, `{"model_type":"llama","hidden_size":%d,"intermediate_size":%d,"num_hidden_layers":%d,
		"num_attention_heads":%d,"num_key_value_heads":8,"vocab_size":128256,"max_position_embeddings":131072,"torch_dtype":"bfloat16"}`,
		width, width*7/2, layers, width/128), 0)
	if err != nil {
		panic(err)
	}
	return s
}

// eight has 15 GiB of weights, seventy 131 GiB.
func eight() *modelfile.Shape   { return llama(32, 4096) }
func seventy() *modelfile.Shape { return llama(80, 8192) }

// telling makes p a worker that serves and tells a shape.
func telling(s *modelfile.Shape) func(*scope) {
	return func(sc *scope) {
		sc.view.Routers[0].Workers["uid-p"] = WorkerView{Instance: "a", InRing: true, Loaded: true, Shape: shape.Pack(s)}
		with(pod("p", gatedFor("a")))(sc)
	}
}

// asking gives the model an engine as the API server fills it in.
func asking(change func(*v1alpha1.InferenceModelSpec)) func(*scope) {
	return func(s *scope) {
		s.model.Spec.Engine = v1alpha1.Engine{Kind: v1alpha1.EngineLlamaCpp, ContextTokens: 8192, MaxSequences: 16, KVCacheType: v1alpha1.KVCacheF16}
		if change != nil {
			change(&s.model.Spec)
		}
	}
}

func onCPU(limit string) func(*scope) {
	return func(s *scope) {
		s.pool.Spec.Accelerator.Kind = v1alpha1.AcceleratorCPU
		s.pool.Spec.WorkerResources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
	}
}

func onGPU(a v1alpha1.Accelerator) func(*scope) {
	return func(s *scope) {
		a.Kind = v1alpha1.AcceleratorNvidiaGPU
		s.pool.Spec.Accelerator = a
	}
}

func split(kind v1alpha1.EngineKind, tensor, pipeline int32) func(*v1alpha1.InferenceModelSpec) {
	return func(s *v1alpha1.InferenceModelSpec) {
		s.Engine.Kind, s.Parallelism = kind, &v1alpha1.Parallelism{Tensor: &tensor, Pipeline: &pipeline}
	}
}

// h100 is the product of a known GPU.
var h100 = v1alpha1.Accelerator{Product: "NVIDIA-H100-80GB-HBM3"}

func TestWhatTheStatusSaysOfTheMemory(t *testing.T) {
	for name, c := range map[string]struct {
		s      *scope
		want   string // status and reason, and parts of the message after colons
		gpus   int32
		memory bool
	}{
		"a container with room": {picture(asking(nil), onCPU("24Gi"), telling(eight())),
			"True MemorySuffices: a worker needs 16.", 0, true},
		"a container that is too small": {picture(asking(nil), onCPU("16Gi"), telling(eight())),
			"False MemoryShort: may be used (90 % of 16.0 GiB): one of these is enough: workerResources.limits.memory: ", 0, true},
		"a long cache in a container": {picture(asking(func(s *v1alpha1.InferenceModelSpec) { s.Engine.ContextTokens = 65536 }), onCPU("20Gi"), telling(eight())),
			"False MemoryShort: engine.contextTokens: ", 0, true},
		"a small cache": {picture(asking(func(s *v1alpha1.InferenceModelSpec) { s.Engine.KVCacheType = v1alpha1.KVCacheQ8 }), onCPU("24Gi"), telling(eight())),
			"True MemorySuffices: KV cache 544 MiB", 0, true},
		"a known GPU": {picture(asking(nil), onGPU(h100), telling(eight())), "True MemorySuffices: a worker's GPU needs", 1, true},
		"a GPU by its size": {picture(asking(nil), onGPU(v1alpha1.Accelerator{MemoryMebibytes: 15360}), telling(eight())),
			"False MemoryShort: a larger GPU, such as NVIDIA-A10: parallelism.pipeline: 2 (2 GPUs)", 1, true},
		"llama.cpp splits rows": {picture(asking(split(v1alpha1.EngineLlamaCpp, 2, 1)), onGPU(v1alpha1.Accelerator{Product: "NVIDIA-L4"}), telling(seventy())),
			"False MemoryShort: the fullest of a worker's 2 GPUs needs: parallelism.tensor: ", 2, true},
		"vLLM on four GPUs": {picture(asking(split(v1alpha1.EngineVLLM, 4, 1)), onGPU(h100), telling(seventy())),
			"True MemorySuffices: the fullest of a worker's 4 GPUs needs", 4, true},
		"vLLM on one": {picture(asking(split(v1alpha1.EngineVLLM, 1, 1)), onGPU(h100), telling(seventy())),
			"False MemoryShort: parallelism.tensor: 2 (2 GPUs)", 1, true},
		"SGLang in two groups of two": {picture(asking(split(v1alpha1.EngineSGLang, 2, 2)), onGPU(h100), telling(seventy())),
			"True MemorySuffices: the fullest of a worker's 4 GPUs needs", 4, true},
		"vLLM with a small cache": {picture(asking(func(s *v1alpha1.InferenceModelSpec) {
			s.Engine.Kind, s.Engine.KVCacheType = v1alpha1.EngineVLLM, v1alpha1.KVCacheQ8
		}), onGPU(h100), telling(eight())), "True MemorySuffices: KV cache 512 MiB", 1, true},
		"heads that the GPUs can't share": {picture(asking(split(v1alpha1.EngineVLLM, 3, 1)), onGPU(h100), telling(seventy())),
			"Unknown MemoryUnknown: 64 attention heads can't be shared out among 3 GPUs", 0, false},
		"llama-server on a CPU": {picture(asking(func(s *v1alpha1.InferenceModelSpec) { s.Engine.Kind = v1alpha1.EngineLlamaServer }), onCPU("24Gi"), telling(eight())),
			"True MemorySuffices", 0, true},
		"an engine with its own arguments": {picture(asking(func(s *v1alpha1.InferenceModelSpec) { s.Engine.Kind = v1alpha1.EngineOpenAI }), onCPU("24Gi"), telling(eight())),
			"Unknown MemoryUnknown: an engine of kind OpenAI gets its own arguments alone", 0, false},
		"vLLM on a CPU": {picture(asking(func(s *v1alpha1.InferenceModelSpec) { s.Engine.Kind = v1alpha1.EngineVLLM }), onCPU("24Gi"), telling(eight())),
			"Unknown MemoryUnknown: an engine of kind VLLM plans its memory itself on a CPU", 0, false},
		"an unknown GPU": {picture(asking(nil), onGPU(v1alpha1.Accelerator{Product: "NVIDIA-X"}), telling(eight())),
			"Unknown MemoryUnknown: the memory of a GPU of WorkerPool gpu is not known: set accelerator.memoryMebibytes", 0, false},
		"a partition of a known GPU": {picture(asking(nil), onGPU(v1alpha1.Accelerator{Product: h100.Product, ResourceName: "nvidia.com/mig-3g.40gb"}), telling(eight())),
			"Unknown MemoryUnknown: set accelerator.memoryMebibytes", 0, false},
		"a container without a limit": {picture(asking(nil), telling(eight())), "Unknown MemoryUnknown: WorkerPool gpu sets no workerResources.limits.memory", 0, false},
		"no worker has read the weights": {picture(asking(nil), onCPU("24Gi")),
			"Unknown MemoryUnknown: no worker of this revision has told the shape of its model yet", 0, false},
		"only a worker of an older revision has": {picture(asking(nil), onCPU("24Gi"), telling(eight()), func(s *scope) { s.want.revision = "next" }),
			"Unknown MemoryUnknown: no worker of this revision", 0, false},
		"a shape that no model has": {picture(asking(nil), onCPU("24Gi"), telling(eight()), func(s *scope) {
			s.workers[0].report.Shape = &workerv1.ModelShape{Embedding: 1}
		}), "Unknown MemoryUnknown: worker p: read a reported shape: ", 0, false},
		"no pool": {picture(asking(nil), telling(eight()), func(s *scope) { s.pool = nil }), "Unknown MemoryUnknown: WorkerPool gpu does not exist", 0, false},
		"a worker that measured its memory": {picture(asking(nil), onCPU("24Gi"), saying(WorkerView{Stage: v1alpha1.StageFailed, Reason: "MemoryShort",
			Message: "the worker would be killed", Shape: shape.Pack(eight())})), "False MemoryShort: pod p on node n1 is Failed: the worker would be killed", 0, true},
	} {
		st := status(c.s, nil)
		got := meta.FindStatusCondition(st.Conditions, string(v1alpha1.MemoryFits))
		parts := strings.Split(c.want, ": ")
		if fmt.Sprintf("%s %s", got.Status, got.Reason) != parts[0] {
			t.Errorf("%s: %s %s: %s, want %s", name, got.Status, got.Reason, got.Message, c.want)
		}
		for _, p := range parts[1:] {
			if !strings.Contains(got.Message, strings.TrimSpace(p)) {
				t.Errorf("%s: %q lacks %q", name, got.Message, p)
			}
		}
		if m := st.Memory; (m != nil) != c.memory || m != nil && (m.GPUs != c.gpus ||
			m.NeededMebibytes != m.WeightsMebibytes+m.KVCacheMebibytes+m.OtherMebibytes || (m.NeededMebibytes <= m.AvailableMebibytes) != (parts[0] == "True MemorySuffices") &&
			name != "a worker that measured its memory") {
			t.Errorf("%s: the memory is %+v", name, m)
		}
	}
}

func TestTheMemoryIsWrittenInMebibytes(t *testing.T) {
	m := status(picture(asking(nil), onCPU("24Gi"), telling(eight())), nil).Memory
	s := eight()
	if m.WeightsMebibytes != int64((s.WeightBytes+1<<20-1)>>20) || m.KVCacheMebibytes != 8192*128/1024 || m.AvailableMebibytes != 24*1024*9/10 {
		t.Errorf("got %+v", m)
	}
	four := status(picture(asking(split(v1alpha1.EngineVLLM, 4, 1)), onGPU(h100), telling(seventy())), nil).Memory
	if four.WeightsMebibytes != int64(seventy().WeightBytes/4>>20)+1 || four.KVCacheMebibytes != 8192*80/1024 || four.AvailableMebibytes != 81559*9/10 {
		t.Errorf("got %+v", four)
	}
}

func TestAWorkerWithoutRoomIsStuckForThatReason(t *testing.T) {
	st := status(picture(asking(nil), onCPU("24Gi"), saying(WorkerView{Stage: v1alpha1.StageFailed, Reason: "MemoryShort", Message: "too large"})), nil)
	for _, name := range []v1alpha1.ConditionType{v1alpha1.Ready, v1alpha1.Progressing} {
		if c := meta.FindStatusCondition(st.Conditions, string(name)); c.Status != metav1.ConditionFalse || c.Reason != "MemoryShort" || !strings.Contains(c.Message, "too large") {
			t.Errorf("%s is %+v", name, c)
		}
	}
}

// next is s after its status was written, with changes.
func next(s *scope, change ...func(*scope)) *scope {
	again := *s
	again.model, again.pool = s.model.DeepCopy(), s.pool.DeepCopy()
	again.model.Status = status(s, nil)
	again.now = s.now.Add(time.Hour)
	for _, c := range change {
		c(&again)
	}
	return &again
}

func silent(s *scope) {
	s.view.Routers = []RouterView{{Pod: "r1", Answered: true, Workers: map[types.UID]WorkerView{}}}
	with(pod("p"))(s)
}

func TestWhatIsKnownOfTheMemoryStaysWhileWorkersStart(t *testing.T) {
	first := picture(asking(nil), onCPU("24Gi"), telling(eight()))
	want := first
	for name, change := range map[string]func(*scope){
		"the worker starts anew": silent,
		"there is none":          with(),
		"the pool is gone":       func(s *scope) { s.pool, s.want.revision = nil, "" },
	} {
		said, st := status(want, nil), status(next(first, change), nil)
		a, b := meta.FindStatusCondition(said.Conditions, string(v1alpha1.MemoryFits)), meta.FindStatusCondition(st.Conditions, string(v1alpha1.MemoryFits))
		if *a != *b || st.Memory == nil || *st.Memory != *said.Memory {
			t.Errorf("%s: %+v and %+v, was %+v and %+v", name, b, st.Memory, a, said.Memory)
		}
	}
	st := status(next(first, silent, func(s *scope) { s.want.revision = "next" }), nil)
	if c := meta.FindStatusCondition(st.Conditions, string(v1alpha1.MemoryFits)); c.Status != metav1.ConditionUnknown || st.Memory != nil {
		t.Errorf("of another revision is said %+v and %+v", c, st.Memory)
	}
}

func TestARefusalStandsWhileTheWorkerTriesAgain(t *testing.T) {
	report := func(stage v1alpha1.WorkerStage, reason string) func(*scope) {
		return saying(WorkerView{Stage: stage, Reason: reason, Message: "the worker would be killed", Shape: shape.Pack(eight())})
	}
	both := func(s *scope) {
		telling(eight())(s)
		s.view.Routers[0].Workers["uid-q"] = WorkerView{Instance: "b", Stage: v1alpha1.StageLoading, Shape: shape.Pack(eight())}
		with(pod("p", gatedFor("a")), pod("q"))(s)
	}
	refused := picture(asking(nil), onCPU("24Gi"), report(v1alpha1.StageFailed, "MemoryShort"))
	said := meta.FindStatusCondition(status(refused, nil).Conditions, string(v1alpha1.MemoryFits))
	for name, c := range map[string]struct {
		change []func(*scope)
		stands bool
		want   metav1.ConditionStatus
	}{
		"it tries again":                 {[]func(*scope){report(v1alpha1.StageLoading, "")}, true, metav1.ConditionFalse},
		"it is refused again":            {nil, true, metav1.ConditionFalse},
		"another one has loaded it":      {[]func(*scope){both}, true, metav1.ConditionFalse},
		"it has loaded it":               {[]func(*scope){telling(eight())}, false, metav1.ConditionTrue},
		"the pool has been given memory": {[]func(*scope){onCPU("32Gi"), report(v1alpha1.StageLoading, "")}, false, metav1.ConditionTrue},
		"another revision tries": {[]func(*scope){report(v1alpha1.StageLoading, ""), func(s *scope) {
			s.want.revision, s.workers[0].revision = "next", "next"
		}}, false, metav1.ConditionTrue},
	} {
		st := status(next(refused, c.change...), nil)
		got := meta.FindStatusCondition(st.Conditions, string(v1alpha1.MemoryFits))
		if got.Status != c.want || (*got == *said) != c.stands {
			t.Errorf("%s: %+v, was %+v", name, got, said)
		}
	}
}

func TestParallelismThatDoesNothingIsSaid(t *testing.T) {
	const says = "spec.parallelism does nothing, because WorkerPool gpu has no GPUs"
	for name, c := range map[string]struct {
		s    *scope
		want bool
	}{
		"on CPUs":            {picture(asking(split(v1alpha1.EngineLlamaCpp, 2, 1)), onCPU("24Gi")), true},
		"of one":             {picture(asking(split(v1alpha1.EngineLlamaCpp, 1, 1)), onCPU("24Gi")), false},
		"on GPUs":            {picture(asking(split(v1alpha1.EngineLlamaCpp, 1, 2)), onGPU(h100)), false},
		"an engine is told":  {picture(asking(split(v1alpha1.EngineVLLM, 2, 1)), onCPU("24Gi")), false},
		"there is no pool":   {picture(asking(split(v1alpha1.EngineLlamaCpp, 2, 1)), func(s *scope) { s.pool = nil }), false},
		"nothing is split":   {picture(asking(nil), onCPU("24Gi")), false},
		"layers, not matrix": {picture(asking(split(v1alpha1.EngineLlamaCpp, 1, 4)), onCPU("24Gi")), true},
	} {
		got := meta.FindStatusCondition(status(c.s, nil).Conditions, string(v1alpha1.Ready)).Message
		if strings.Contains(got, says) != c.want {
			t.Errorf("%s: Ready says %q", name, got)
		}
	}
}

func TestAnEventTellsOnceThatTheMemoryIsShort(t *testing.T) {
	good := picture(asking(nil), onCPU("24Gi"), telling(eight()))
	bad := next(good, onCPU("16Gi"))
	none, fits, short := v1alpha1.InferenceModelStatus{}, status(good, nil), status(bad, nil)
	for name, c := range map[string]struct {
		before, now v1alpha1.InferenceModelStatus
		want        bool
	}{
		"at first": {none, short, true}, "after it fitted": {fits, short, true}, "again": {short, short, false}, "it fits": {short, fits, false},
	} {
		if why, told := ranShort(c.before, c.now); told != c.want || told && !strings.Contains(why, "limits.memory") {
			t.Errorf("%s: told %t: %q", name, told, why)
		}
	}
}

func TestTheHeaviestGroupOfLayersHasItsShareOfTheModel(t *testing.T) {
	s := seventy()
	for groups := 1; groups <= 8; groups++ {
		g := stage(s, groups)
		fair := s.WeightBytes / uint64(groups)
		if len(g.Layers) < 80/groups || len(g.Layers) > 80/groups+1 || g.WeightBytes < fair || g.WeightBytes > fair+s.InputBytes+g.Layers[0].Bytes {
			t.Errorf("one of %d groups has %d layers and %d bytes", groups, len(g.Layers), g.WeightBytes)
		}
	}
	if g := stage(s, 1000); len(g.Layers) != 1 {
		t.Errorf("more groups than layers leave %d", len(g.Layers))
	}
	if _, err := memoryplan.New(stage(s, 64), memoryplan.Options{Engine: memoryplan.VLLM, GPUs: 1, MemoryBytes: 1 << 40, Sequences: 1}); err != nil {
		t.Error(err)
	}
}
