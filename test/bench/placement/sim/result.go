package sim

import (
	"slices"
	"time"
)

// Summary is a result in a few numbers.
type Summary struct {
	// Hit is the share of the prompts' blocks that workers found in their caches.
	Hit float64
	// Mean, P90 and P99 are of the times from a request's arrival to its first token.
	Mean, P90, P99 time.Duration
	// PrefillPeak and RequestPeak are the most tokens of prompts that a worker computed, and the most requests that one
	// took, over the mean of all workers.
	PrefillPeak, RequestPeak float64
	// Held is how many requests found no worker at once.
	Held int
}

// Summary sums up.
func (r *Result) Summary() Summary {
	hits, blocks := 0, 0
	var sum time.Duration
	waits := make([]time.Duration, len(r.Jobs))
	for i, j := range r.Jobs {
		hits += j.Matched
		blocks += len(j.Request.Blocks)
		waits[i] = j.First - r.Arrived[i]
		sum += waits[i]
	}
	slices.Sort(waits)
	return Summary{
		Hit:         float64(hits) / float64(blocks),
		Mean:        sum / time.Duration(len(waits)),
		P90:         quantile(waits, 90),
		P99:         quantile(waits, 99),
		PrefillPeak: peak(r.Prefilled),
		RequestPeak: peak(r.Placed),
		Held:        r.Held,
	}
}

// quantile is the least of sorted values that percent of all do not exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

// peak is the greatest value over the mean.
func peak(v []int) float64 {
	sum := 0
	for _, n := range v {
		sum += n
	}
	return float64(slices.Max(v)) * float64(len(v)) / float64(sum)
}
