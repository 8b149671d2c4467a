package agent

import (
	"os"
	"runtime"
)

// LeaveProcessors has the process's Go code run on the processors that the engine's threads leave of the CPU limit, one at
// least. With more of them Go wakes another thread for each token that a stream sends, and the two share a processor with
// those that compute: a small model loses 3 to 5 % of its tokens. GOMAXPROCS in the environment overrules it.
func (o *Options) LeaveProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(o.processors(runtime.GOMAXPROCS(0)))
	}
}

// processors is how many of those there are Go's code gets. Where GPUs compute, or a server beside this process, all.
func (o *Options) processors(available int) int {
	if o.Driver == openAI || o.GPU.Layers != 0 {
		return available
	}
	if o.CPULimit > 0 {
		available = min(available, o.CPULimit)
	}
	return max(available-o.threads(), 1)
}
