package agent

import (
	"os"
	"runtime"
)

// ShareProcessors has the process's Go code run on a part of the CPU limit's processors, the engine's threads having the
// others. With all of them Go wakes another thread for each token that a stream sends, and the two share a processor with those
// that compute: on two processors a small model loses 3 to 5 % of its tokens. GOMAXPROCS in the environment overrules it.
func (o *Options) ShareProcessors() {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	available := runtime.GOMAXPROCS(0)
	if o.CPULimit == 0 {
		o.CPULimit = available // which the engine's threads are counted by, too
	}
	runtime.GOMAXPROCS(o.processors(available))
}

// processors is how many of those there are Go's code gets: what the engine's threads leave, and at least half, since those
// rest while tokens are chosen. Where GPUs compute, or a server beside this process, or only files are fetched, it gets all.
func (o *Options) processors(available int) int {
	if o.CPULimit > 0 {
		available = min(available, o.CPULimit)
	}
	if o.Driver == openAI || o.GPU.Layers != 0 || o.FetchOnly {
		return max(available, 1)
	}
	return max(available-o.threads(), available/2, 1)
}
