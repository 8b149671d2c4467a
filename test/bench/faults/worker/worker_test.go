package worker

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

func TestTheRuleOfThreeAndTwoIsWhatItSays(t *testing.T) {
	for beats, want := range map[string]string{
		"FFS":        "iii",
		"FFFSFFFSS":  "iiooooooi",
		"FFFSS":      "iiooi",
		"FFFFFSFSS":  "iioooooo" + "i",
		"SFSFSFSF":   "iiiiiiii",
		"FFSFFSFFSS": "iiiiiiiiii",
	} {
		got := ""
		for _, in := range verdicts(beats) {
			got += map[bool]string{true: "i", false: "o"}[in]
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", beats, got, want)
		}
	}
}

func TestTheDetectorOfRoutersFollowsTheRule(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		beats := make([]byte, 1+source.IntN(30))
		for i := range beats {
			beats[i] = "SF"[source.IntN(2)]
		}
		if !equal(verdicts(string(beats)), judged(string(beats))) {
			t.Fatalf("%s: the rule says %v, the detector %v", beats, verdicts(string(beats)), judged(string(beats)))
		}
	}
}

func TestEachFormOfAStreamHasAllTexts(t *testing.T) {
	for _, form := range []string{"plain", "CR LF", "comments", "lines"} {
		all := spelled(form)
		if bytes.Count(all, []byte("delta")) != len(texts)+1 || !bytes.Contains(all, []byte("[DONE]")) {
			t.Errorf("%s: %s", form, all)
		}
		if form == "CR LF" && bytes.Count(all, []byte("\n")) != bytes.Count(all, []byte("\r\n")) {
			t.Error("a line ends in LF alone")
		}
	}
}

func TestKeysThatMoveAreCountedOnce(t *testing.T) {
	from := map[string]string{"a": "p", "b": "p", "c": "q", "d": "q"}
	to := map[string]string{"a": "q", "b": "p", "c": "p", "d": "q"}
	if n := moved(from, to); n != 2 {
		t.Errorf("%d moved", n)
	}
	if n := strays(from, to, "p"); n != 1 {
		t.Errorf("%d of others moved", n)
	}
}

func TestEveryFaultOfWorkersIsThere(t *testing.T) {
	ids := map[string]int{}
	for _, x := range Trials() {
		ids[x.ID]++
		if x.Says == "" || x.Run == nil || x.Times < 1 {
			t.Errorf("%s %s has no sentence, nothing to run, or no times", x.ID, x.Kind)
		}
	}
	for _, id := range []string{"F01", "F02", "F03", "F04", "F05", "F06", "F07", "F08", "F09", "F10", "F11", "F12", "F13", "F14", "F15", "F23"} {
		if ids[id] == 0 {
			t.Errorf("%s is missing", id)
		}
	}
}

func TestAttemptsAtOtherWorkersAreCounted(t *testing.T) {
	all := []history.Attempt{{ID: "a", Pod: "p"}, {ID: "a", Pod: "q"}, {ID: "b", Pod: "q"}}
	if n := beyond(all, map[string]bool{"a": true}, "p"); n != 1 {
		t.Errorf("%d of the requests were elsewhere, want 1", n)
	}
}
