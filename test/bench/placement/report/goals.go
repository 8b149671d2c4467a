package report

import "github.com/ringfleet/ringfleet/test/bench"

// The goals of the router on Mooncake's conversation trace with 8 workers.
const (
	leastHit, thenHit = 29, 31 // per cent
	mostMean          = 1.25   // seconds
	mostOver          = 1.15   // the mean of several routers over that of one
)

// Judge holds a policy to the goals, by the tables of one router and of several. A table without the policy is passed
// over.
func Judge(policy string, one, several Table) []bench.Figure {
	var out []bench.Figure
	alone, shared := one.Row(policy), several.Row(policy)
	if alone == nil {
		return nil
	}
	out = append(out,
		bench.AtLeast(one.Name+": hit rate", 100*alone.Hit, "%", leastHit),
		bench.AtLeast(one.Name+": hit rate, then", 100*alone.Hit, "%", thenHit),
		bench.AtMost(one.Name+": mean TTFT", alone.Mean.Seconds(), "s", mostMean),
	)
	if shared != nil {
		out = append(out, bench.AtMost(several.Name+": mean TTFT over that of one", shared.Mean.Seconds()/alone.Mean.Seconds(), "×", mostOver))
	}
	return out
}
