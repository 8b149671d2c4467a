package memoryplan

import (
	"fmt"
	"strings"
)

// Terms are by what names people change what was planned.
type Terms struct {
	// Idle is how many of the plan's sequences people don't set.
	Idle int
	// Parallelism is the field that says how many GPUs share the model, and Groups by how much it is multiplied; 0 is 1.
	Parallelism string
	Groups      int
}

// The fields of an InferenceModel and a WorkerPool that decide about memory.
const (
	fieldKV        = "engine.kvCacheType"
	fieldSequences = "engine.maxSequences"
	fieldContext   = "engine.contextTokens"
	fieldMemory    = "workerResources.limits.memory"
)

// leastContext is the least that engine.contextTokens may be, and llamaCppGPUs the most GPUs that llama.cpp can use.
const (
	leastContext = 256
	llamaCppGPUs = 16
)

// Say says in a sentence what the fullest device needs and has, and where that is too little, what would be enough.
func (p *Plan) Say(t Terms) string {
	d := p.Devices[p.Fullest]
	who, of := "a worker", fmt.Sprintf("%d %% of %s", p.Options.UsePercent, Size(p.Options.MemoryBytes))
	switch n := p.Options.GPUs * max(t.Groups, 1); {
	case n == 1:
		who = "a worker's GPU"
	case n > 1:
		who = fmt.Sprintf("the fullest of a worker's %d GPUs", n)
	}
	said := fmt.Sprintf("%s needs %s (weights %s, KV cache %s, buffers and process %s), and %s may be used (%s)", who,
		Size(d.Total()), Size(d.Weights), Size(d.KV), Size(d.Compute+d.Runtime), Size(p.Budget), of)
	if p.Fits {
		return said
	}
	ways := p.Advice(t)
	switch len(ways) {
	case 0:
		return said + "; no single change is enough"
	case 1:
		return said + "; this is enough: " + ways[0]
	}
	return said + "; one of these is enough: " + strings.Join(ways, "; ")
}

// Advice words what would make the plan fit, each change by itself, as it is written into the objects.
func (p *Plan) Advice(t Terms) []string {
	var out []string
	for _, w := range p.Ways {
		value, groups := int64(w.Value), int64(max(t.Groups, 1))
		switch w.Change {
		case SmallerKV:
			out = append(out, fieldKV+": Q8") // the API's word for the small one of either engine
		case FewerSequences:
			if value > int64(t.Idle) {
				out = append(out, fmt.Sprintf("%s: %d", fieldSequences, value-int64(t.Idle)))
			}
		case ShorterContext:
			if value >= leastContext {
				out = append(out, fmt.Sprintf("%s: %d", fieldContext, value))
			}
		case MoreGPUs:
			if p.Options.Engine != LlamaCpp || value <= llamaCppGPUs {
				out = append(out, fmt.Sprintf("%s: %d (%d GPUs)", t.Parallelism, value, value*groups))
			}
		case SmallerWeights:
			out = append(out, "weights of at most "+Size(w.Value))
		}
	}
	if p.Fits {
		return out
	}
	whole := (p.Devices[p.Fullest].Total()*100 + uint64(p.Options.UsePercent) - 1) / uint64(p.Options.UsePercent)
	if p.Options.GPUs == 0 {
		return append(out, fmt.Sprintf("%s: %dMi", fieldMemory, (whole+mib-1)/mib))
	}
	for _, a := range Accelerators { // the smallest first
		if a.MiB*mib >= whole {
			return append(out, fmt.Sprintf("a larger GPU, such as %s", a.Name))
		}
	}
	return out
}

// Size writes bytes for people.
func Size(n uint64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", (n+mib/2)/mib)
}
