package report

import (
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/test/bench"
)

func TestTheIntroductionSaysWhatRanAndWhetherTheMachineWasBusy(t *testing.T) {
	h := bench.Head{Machine: map[string]string{Threads: "1"}, Versions: map[string]string{"llama.cpp": "v0.5.0", "vllm": "cpu-0.32.0"}}
	quiet := Intro(h)
	for _, want := range []string{"Threads of each engine: 1.", "llama.cpp v0.5.0 under the worker", " vLLM cpu-0.32.0."} {
		if !strings.Contains(quiet, want) {
			t.Errorf("no %q in %s", want, quiet)
		}
	}
	if strings.Contains(quiet, "**") {
		t.Error("a quiet machine is said to be busy")
	}
	h.Machine[Busy] = "It was busy."
	if got := Intro(h); !strings.Contains(got, "**It was busy.**") {
		t.Error("nobody is told that the machine was busy")
	}
}
