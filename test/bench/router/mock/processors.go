package mock

import (
	"os"
	"runtime"
)

// ShareProcessors has this process's Go code run on half of the processors, as that of a real worker does which leaves the
// others to an engine on the CPU. GOMAXPROCS in the environment overrules it.
func ShareProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(half(runtime.GOMAXPROCS(0)))
	}
}

// half of the processors is one at least.
func half(available int) int { return max(available/2, 1) }
