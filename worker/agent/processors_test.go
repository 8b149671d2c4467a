package agent

import "testing"

func TestGoCodeGetsTheProcessorsThatTheEngineLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		options   Options
		available int
		want      int
	}{
		"the engine takes all but one":                  {Options{CPULimit: 8}, 8, 1},
		"one is left where the engine takes all":        {Options{CPULimit: 2, Threads: 2}, 2, 1},
		"more are left where the engine takes few":      {Options{CPULimit: 8, Threads: 3}, 8, 5},
		"a machine may have fewer than the limit":       {Options{CPULimit: 8, Threads: 1}, 4, 3},
		"on a GPU the engine's threads rest":            {Options{CPULimit: 8, GPU: GPUOptions{Layers: -1}}, 8, 8},
		"a server beside this process computes, not we": {Options{CPULimit: 2, Driver: openAI}, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.options.processors(c.available); got != c.want {
				t.Errorf("%d processors, expected %d", got, c.want)
			}
		})
	}
}
