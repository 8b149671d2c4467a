package inferencemodel

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringfleet/ringfleet/api/memoryplan"
	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/api/v1alpha1"
	"github.com/ringfleet/ringfleet/api/worker/shape"
	"github.com/ringfleet/ringfleet/controllers/conditions"
	"github.com/ringfleet/ringfleet/controllers/names"
)

// asked is what a model asks of a worker's memory.
type asked struct {
	options memoryplan.Options
	terms   memoryplan.Terms
	// groups is over how many groups of GPUs the row of layers is split; the options are those of one group.
	groups int
}

// memory plans a worker's memory and judges MemoryFits. before is what the status said: while no worker of the same revision
// tells its model's shape, that stands. What a worker refused stands until all of that revision hold the model.
func (c summary) memory(before v1alpha1.InferenceModelStatus) (*v1alpha1.ModelMemory, conditions.Finding) {
	unknown := func(why string) (*v1alpha1.ModelMemory, conditions.Finding) {
		return nil, conditions.Unknown(v1alpha1.MemoryFits, v1alpha1.ReasonMemoryUnknown, why)
	}
	if c.pool == nil {
		if kept, f, ok := keep(before); ok {
			return kept, f
		}
		return unknown(c.noPool())
	}
	q, why := ask(c.model, c.pool)
	if why != "" {
		return unknown(why)
	}
	s, err := c.shape()
	if err != nil {
		return unknown(err.Error())
	}
	if s == nil {
		if kept, f, ok := keep(before); ok && before.Revision == c.want.revision {
			return kept, f
		}
		return unknown("no worker of this revision has told the shape of its model yet, which it reads from the weights")
	}
	p, err := memoryplan.New(stage(s, q.groups), q.options)
	if err != nil {
		return unknown(err.Error())
	}
	if y, short := c.refused(); short {
		return inMebibytes(p, q), conditions.False(v1alpha1.MemoryFits, v1alpha1.ReasonMemoryShort, y.tell())
	}
	if kept, f, ok := keep(before); ok && f.Status == metav1.ConditionFalse && before.Revision == c.want.revision &&
		*kept == *inMebibytes(p, q) && !c.allLoaded() {
		return kept, f // a worker that was refused tries again
	}
	if !p.Fits {
		return inMebibytes(p, q), conditions.False(v1alpha1.MemoryFits, v1alpha1.ReasonMemoryShort, p.Say(q.terms))
	}
	return inMebibytes(p, q), conditions.True(v1alpha1.MemoryFits, v1alpha1.ReasonMemorySuffices, p.Say(q.terms))
}

// keep is what was said of the memory, where it was a plan.
func keep(before v1alpha1.InferenceModelStatus) (*v1alpha1.ModelMemory, conditions.Finding, bool) {
	said := meta.FindStatusCondition(before.Conditions, string(v1alpha1.MemoryFits))
	if before.Memory == nil || said == nil || said.Status == metav1.ConditionUnknown {
		return nil, conditions.Finding{}, false
	}
	return before.Memory, conditions.Finding{Type: v1alpha1.MemoryFits, Status: said.Status, Reason: v1alpha1.Reason(said.Reason), Message: said.Message}, true
}

// ask says what m asks of the memory of pool's workers, or why that can't be known.
func ask(m *v1alpha1.InferenceModel, pool *v1alpha1.WorkerPool) (asked, string) {
	e := m.Spec.Engine
	tensor, pipeline := 1, 1
	if p := m.Spec.Parallelism; p != nil {
		tensor, pipeline = orOne(p.Tensor), orOne(p.Pipeline)
	}
	q := asked{groups: 1, options: memoryplan.Options{
		Engine: memoryplan.LlamaCpp, ContextTokens: int(e.ContextTokens), Shared: true, Sequences: int(e.MaxSequences), KV: memoryplan.F16,
	}}
	if e.KVCacheType == v1alpha1.KVCacheQ8 {
		q.options.KV = memoryplan.Q8
	}
	gpu := pool.Spec.Accelerator.Kind == v1alpha1.AcceleratorNvidiaGPU
	switch e.Kind {
	case v1alpha1.EngineOpenAI:
		return q, "an engine of kind OpenAI gets its own arguments alone, so what it takes is not known"
	case v1alpha1.EngineVLLM, v1alpha1.EngineSGLang:
		if !gpu {
			return q, fmt.Sprintf("an engine of kind %s plans its memory itself on a CPU", e.Kind)
		}
		q.options.Engine, q.groups = memoryplan.VLLM, pipeline
		if q.options.KV == memoryplan.Q8 {
			q.options.KV = memoryplan.FP8
		}
		q.terms = memoryplan.Terms{Parallelism: "parallelism.tensor", Groups: pipeline}
		q.options.GPUs = tensor
	case v1alpha1.EngineLlamaServer:
		q.options.StepTokens = 512 // its default, on a CPU too
		q.llamaCpp(tensor, pipeline)
	default:
		q.terms.Idle = min(memoryplan.IdleSequences, llamaCppSequences-q.options.Sequences)
		q.options.Sequences += q.terms.Idle
		q.llamaCpp(tensor, pipeline)
	}
	if !gpu {
		q.options.GPUs = 0
		limit := pool.Spec.WorkerResources.Limits.Memory().Value()
		if limit <= 0 {
			return q, fmt.Sprintf("WorkerPool %s sets no workerResources.limits.memory", names.Pool(m))
		}
		q.options.MemoryBytes = uint64(limit)
		return q, ""
	}
	mebibytes := gpuMebibytes(pool.Spec.Accelerator)
	if mebibytes == 0 {
		return q, fmt.Sprintf("the memory of a GPU of WorkerPool %s is not known: set accelerator.memoryMebibytes", names.Pool(m))
	}
	q.options.MemoryBytes = mebibytes << 20
	return q, ""
}

// llamaCppSequences is how many sequences llama.cpp can tell apart.
const llamaCppSequences = 256

// llamaCpp shares the layers, or the rows of their matrices, out among all GPUs.
func (q *asked) llamaCpp(tensor, pipeline int) {
	q.options.GPUs, q.terms.Parallelism = tensor*pipeline, "parallelism.pipeline"
	if tensor > 1 {
		q.terms.Parallelism = "parallelism.tensor"
	}
}

func orOne(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// gpuMebibytes is the memory of a GPU of a pool; 0: unknown. A partition has a size of its own.
func gpuMebibytes(a v1alpha1.Accelerator) uint64 {
	if a.MemoryMebibytes > 0 {
		return uint64(a.MemoryMebibytes)
	}
	if a.ResourceName != "" && a.ResourceName != v1alpha1.DefaultGPUResource {
		return 0
	}
	known, _ := memoryplan.Known(a.Product)
	return known.MiB
}

// shape is that of the model, as the first worker of the wanted revision that has read it says; nil: none has.
func (c summary) shape() (*modelfile.Shape, error) {
	for _, w := range c.scope.workers {
		if w.live() && w.revision == c.want.revision && w.report.Shape != nil {
			s, err := shape.Unpack(w.report.Shape)
			if err != nil {
				return nil, fmt.Errorf("worker %s: %w", w.name, err)
			}
			return s, nil
		}
	}
	return nil, nil
}

// refused is a worker that measured its memory and does not load the model, if there is one.
func (c summary) refused() (way, bool) {
	for _, y := range c.ways {
		if y.p.reason == v1alpha1.ReasonMemoryShort && !y.w.terminating && y.w.revision == c.want.revision {
			return y, true
		}
	}
	return way{}, false
}

// allLoaded reports whether the workers of the wanted revision, of which there is at least one, hold the model.
func (c summary) allLoaded() bool { return c.current > 0 && c.holding() >= c.current }

// stage is the heaviest of so many groups of neighbouring layers; the first has the token embeddings as well, the last
// the output.
func stage(s *modelfile.Shape, groups int) *modelfile.Shape {
	groups = min(groups, len(s.Layers))
	if groups <= 1 {
		return s
	}
	rest := s.WeightBytes - min(s.InputBytes, s.WeightBytes)
	for _, l := range s.Layers {
		rest -= min(l.Bytes, rest)
	}
	if s.Tied {
		rest += s.OutputBytes // the last group's copy
	}
	heaviest := *s
	heaviest.WeightBytes = 0
	for i := range groups {
		layers := s.Layers[i*len(s.Layers)/groups : (i+1)*len(s.Layers)/groups]
		var bytes uint64
		for _, l := range layers {
			bytes += l.Bytes
		}
		switch i {
		case 0:
			bytes += s.InputBytes
		case groups - 1:
			bytes += rest
		}
		if bytes > heaviest.WeightBytes || i == 0 {
			heaviest.Layers, heaviest.WeightBytes = layers, bytes
		}
	}
	return &heaviest
}

// inMebibytes writes the fullest device of a plan into a status. The needs are rounded up, what is there down.
func inMebibytes(p *memoryplan.Plan, q asked) *v1alpha1.ModelMemory {
	d := p.Devices[p.Fullest]
	up := func(n uint64) int64 { return int64((n + 1<<20 - 1) >> 20) }
	m := &v1alpha1.ModelMemory{
		GPUs: int32(p.Options.GPUs * q.groups), WeightsMebibytes: up(d.Weights), KVCacheMebibytes: up(d.KV), OtherMebibytes: up(d.Compute + d.Runtime),
		AvailableMebibytes: int64(p.Budget >> 20),
	}
	m.NeededMebibytes = m.WeightsMebibytes + m.KVCacheMebibytes + m.OtherMebibytes
	return m
}
