package memoryplan

import (
	"fmt"
	"sort"
	"strings"

	"github.com/ringfleet/ringfleet/api/modelfile"
)

// mostSequences is how many sequences of the asked length fit.
func mostSequences(s *modelfile.Shape, o Options) int {
	return greatest(o.limit(), func(n int) bool {
		o.Sequences = n
		return fits(s, o)
	})
}

// limit is how many sequences of the asked length the engine can have, whatever the memory.
func (o Options) limit() int {
	switch {
	case o.Engine != LlamaCpp:
		return maxSequences
	case !o.Shared:
		return min(llamaCppMost, maxCells/o.ContextTokens)
	case o.ContextTokens > maxCells:
		return 0
	}
	return llamaCppMost
}

// mostContext is the longest that all sequences can be, in whole thousands of 1024 or, below them, in steps of 256 tokens.
func mostContext(s *modelfile.Shape, o Options) int {
	unit := 256
	most := greatest(o.ContextTokens/unit, func(n int) bool {
		o.ContextTokens = n * unit
		return fits(s, o)
	}) * unit
	if most > 1024 {
		return most / 1024 * 1024
	}
	return most
}

// fewestGPUs is the least number of GPUs, more than there are, on which everything fits; 0: none up to MaxGPUs.
func fewestGPUs(s *modelfile.Shape, o Options) int {
	if o.GPUs == 0 {
		return 0
	}
	for n := o.GPUs + 1; n <= MaxGPUs; n++ {
		if o.GPUs = n; shares(s, o) && fits(s, o) {
			return n
		}
	}
	return 0
}

// mostWeights is the largest size of weights with which everything fits.
func mostWeights(s *modelfile.Shape, p *Plan) uint64 {
	least := 1.0
	for _, d := range p.Devices {
		rest := d.Total() - d.Weights
		if rest >= p.Budget {
			return 0
		}
		if d.Weights > 0 {
			least = min(least, float64(p.Budget-rest)/float64(d.Weights))
		}
	}
	return uint64(float64(s.WeightBytes) * least)
}

// leastBits is the fewest bits of a weight with which a model is still of use.
const leastBits = 2

// ways lists the single changes that make everything fit.
func ways(s *modelfile.Shape, o Options, p *Plan) []Way {
	var w []Way
	smaller := o
	if smaller.KV = Q8; o.Engine == VLLM {
		smaller.KV = FP8
	}
	if o.KV == F16 && fits(s, smaller) {
		w = append(w, Way{Change: SmallerKV, KV: smaller.KV})
	}
	if p.MostSequences > 0 && p.MostSequences < o.Sequences {
		w = append(w, Way{Change: FewerSequences, Value: uint64(p.MostSequences)})
	}
	if n := mostContext(s, o); n > 0 {
		w = append(w, Way{Change: ShorterContext, Value: uint64(n)})
	}
	if n := fewestGPUs(s, o); n > 0 {
		w = append(w, Way{Change: MoreGPUs, Value: uint64(n)})
	}
	if n := mostWeights(s, p); n*8 >= leastBits*s.Parameters && n > 0 {
		w = append(w, Way{Change: SmallerWeights, Value: n})
	}
	return w
}

func fits(s *modelfile.Shape, o Options) bool { return lay(s, o).Fits }

// greatest returns the greatest n up to most for which ok holds, where it holds for all below that; 0: for none.
func greatest(most int, ok func(int) bool) int {
	return sort.Search(most, func(i int) bool { return !ok(i + 1) })
}

// shares reports whether so many GPUs can share the model.
func shares(s *modelfile.Shape, o Options) bool {
	if o.Engine != VLLM || o.GPUs < 2 {
		return o.GPUs <= len(s.Layers)+1
	}
	return s.Heads%o.GPUs == 0
}

// sharers lists the numbers of GPUs that can share the heads.
func sharers(s *modelfile.Shape) string {
	var n []string
	for i := 1; i <= MaxGPUs; i++ {
		if s.Heads%i == 0 {
			n = append(n, fmt.Sprint(i))
		}
	}
	return strings.Join(n, ", ")
}
