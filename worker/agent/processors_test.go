package agent

import (
	"runtime"
	"testing"
)

func TestGoCodeGetsAPartOfTheProcessors(t *testing.T) {
	for name, c := range map[string]struct {
		options   Options
		available int
		want      int
	}{
		"one of two": {Options{CPULimit: 2}, 2, 1},
		"half, where the engine takes all but one":      {Options{CPULimit: 8}, 8, 4},
		"one, where there is one":                       {Options{CPULimit: 1}, 8, 1},
		"more, where the engine takes few":              {Options{CPULimit: 8, Threads: 2}, 8, 6},
		"a machine may have fewer than the limit":       {Options{CPULimit: 8, Threads: 1}, 4, 3},
		"on a GPU the engine's threads rest":            {Options{CPULimit: 8, GPU: GPUOptions{Layers: -1}}, 16, 8},
		"a server beside this process computes, not we": {Options{CPULimit: 2, Driver: openAI}, 2, 2},
		"what only fetches has no engine":               {Options{CPULimit: 2, FetchOnly: true}, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.options.processors(c.available); got != c.want {
				t.Errorf("%d processors, expected %d", got, c.want)
			}
		})
	}
}

func TestSharingProcessorsTakesNoneOfTheEnginesThreads(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	before := runtime.GOMAXPROCS(8)
	defer runtime.GOMAXPROCS(before)
	var o Options
	o.ShareProcessors()
	if threads, shared := o.threads(), runtime.GOMAXPROCS(0); threads != 7 || shared != 4 {
		t.Errorf("of 8 processors the engine has %d threads and Go's code %d", threads, shared)
	}
}
