// Package report says what the bench of the worker ran with. It measures and judges nothing.
package report

import (
	"fmt"
	"strings"

	"github.com/ringfleet/ringfleet/test/bench"
)

// The keys of a head's machine that are this bench's own.
const (
	Threads = "threads"
	Busy    = "busy"
)

// Intro is what to know before the tables.
func Intro(h bench.Head) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Threads of each engine: %s. The library of llama.cpp %s under the worker, llama-batched-bench and llama-server.",
		h.Machine[Threads], h.Versions["llama.cpp"])
	if v := h.Versions["vllm"]; v != "" {
		fmt.Fprintf(&b, " vLLM %s.", v)
	}
	b.WriteString("\n")
	if why := h.Machine[Busy]; why != "" {
		fmt.Fprintf(&b, "\n**%s**\n", why)
	}
	return b.String()
}
