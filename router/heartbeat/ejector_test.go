package heartbeat

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

func TestEjectorTranscripts(t *testing.T) {
	rewrite(t)
	datadriven.Walk(t, "testdata/ejector", func(t *testing.T, path string) {
		e := NewEjector(0, 1500*time.Millisecond)
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			switch td.Cmd {
			case "new":
				e = NewEjector(0, 1500*time.Millisecond)
			case "stall":
				d, err := time.ParseDuration(td.CmdArgs[0].Key)
				if err != nil {
					t.Fatal(err)
				}
				e.Configure(d, 1500*time.Millisecond)
			case "run":
				return runEjector(t, e, td.Input)
			default:
				t.Fatalf("unknown command %q", td.Cmd)
			}
			return ringOf(e)
		})
	})
}

// runEjector plays one event a line: a time, the event, a worker as pod/instance, and how often (x5) and how far apart
// (each=1s). It prints the state that is left, and what was told and when.
func runEjector(t *testing.T, e *Ejector, input string) string {
	var out strings.Builder
	for line := range strings.SplitSeq(input, "\n") {
		f := strings.Fields(line)
		at, err := time.ParseDuration(f[0])
		if err != nil {
			t.Fatal(err)
		}
		pod, instance, _ := strings.Cut(f[2], "/")
		var told strings.Builder
		n, apart := times(t, f[3:])
		for range n {
			for _, c := range playEjector(t, e, epoch.Add(at), f[1], pod, instance, f[3:]) {
				fmt.Fprintf(&told, "        %s: %s %s %s: %s", at, c.Pod, c.Change, c.Cause, c.Why)
				if c.For > 0 {
					fmt.Fprintf(&told, ", for %s, n=%d", c.For, c.Times)
				}
				told.WriteByte('\n')
			}
			at += apart
		}
		fmt.Fprintf(&out, "%-7s %-36s %s\n%s", f[0], strings.Join(f[1:], " "), ringOf(e), told.String())
	}
	return out.String()
}

// times reads words such as x5 and each=1s; without them it is once.
func times(t *testing.T, words []string) (n int, apart time.Duration) {
	n = 1
	var err error
	for _, w := range words {
		if d, ok := strings.CutPrefix(w, "each="); ok {
			apart, err = time.ParseDuration(d)
		} else if d, ok := strings.CutPrefix(w, "x"); ok {
			n, err = strconv.Atoi(d)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return n, apart
}

func playEjector(t *testing.T, e *Ejector, now time.Time, event, pod, instance string, words []string) []Ejection {
	switch event {
	case "in":
		return e.Stand(pod, instance, true)
	case "out":
		return e.Stand(pod, instance, false)
	case "gone":
		return e.Forget(pod)
	case "good":
		return e.Outcome(now, pod, instance, Good)
	case "failed":
		return e.Outcome(now, pod, instance, Failed)
	case "late":
		return e.Outcome(now, pod, instance, NoFirstByte)
	case "tick":
		return e.Tick(now, pod)
	case "report":
		running, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatal(err)
		}
		if len(words) == 1 || strings.HasPrefix(words[1], "x") {
			return e.Progress(now, pod, uint32(running), nil)
		}
		tokens, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return e.Progress(now, pod, uint32(running), &tokens)
	}
	t.Fatalf("unknown event %q", event)
	return nil
}

// ringOf is the members of the ring in order, the ejected ones with the end of their ejection.
func ringOf(e *Ejector) string {
	var in []string
	for _, pod := range slices.Sorted(maps.Keys(e.workers)) {
		c := e.workers[pod]
		word := pod
		if !c.until.IsZero() {
			word += fmt.Sprintf("(until %s)", c.until.Sub(epoch))
		}
		if c.spared {
			word += "(spared)"
		}
		if !c.inRing {
			word = "-" + word
		}
		in = append(in, word)
	}
	return strings.Join(in, " ")
}

// recount says what is wrong with e's own counts, or with what it must never do.
func recount(e *Ejector, now time.Time) string {
	inRing, out := 0, 0
	for pod, c := range e.workers {
		if c.inRing {
			inRing++
			if !c.until.IsZero() {
				out++
			}
		}
		if left := c.until.Sub(now); !c.until.IsZero() && left > longestEjection {
			return fmt.Sprintf("%s is out for %s", pod, left)
		}
		if c.spared && !c.until.IsZero() {
			return pod + " is spared and ejected"
		}
	}
	switch {
	case inRing != e.inRing, out != e.out:
		return fmt.Sprintf("counts %d of %d out, but there are %d of %d", e.out, e.inRing, out, inRing)
	case 2*out > inRing:
		return fmt.Sprintf("%d of %d are out", out, inRing)
	}
	return ""
}

func TestNeverMoreThanHalfOfARingIsOutWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, now := NewEjector(0, 1500*time.Millisecond), epoch
		tokens := uint64(1)
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 100, 1000, 30_000}).Draw(t, "ms")) * time.Millisecond)
			pod := rapid.SampledFrom([]string{"w0", "w1", "w2", "w3", "w4"}).Draw(t, "pod")
			instance := rapid.SampledFrom([]string{"a", "a", "a", "a", "a", "b"}).Draw(t, "instance")
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				e.Stand(pod, instance, rapid.Bool().Draw(t, "up"))
			case 1:
				e.Stand(pod, instance, true)
			case 2:
				e.Tick(now, pod)
			case 3:
				e.Progress(now, pod, 1, &tokens)
			case 4:
				if rapid.IntRange(0, 5).Draw(t, "gone") == 0 {
					e.Forget(pod)
				}
			case 5:
				e.Outcome(now, pod, "a", Good)
			default:
				for range rapid.IntRange(1, 5).Draw(t, "failures") {
					e.Outcome(now, pod, "a", Outcome(rapid.IntRange(1, 2).Draw(t, "outcome")))
				}
			}
			if wrong := recount(e, now); wrong != "" {
				t.Fatal(wrong)
			}
		}
	})
}

func TestOfARingWithASoundWorkerAtMostFiveRequestsInARowGoToOneThatFails(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := NewEjector(0, 1500*time.Millisecond)
		e.Stand("bad", "a", true)
		e.Stand("good", "a", true)
		now, wasted := epoch, 0
		for range 1000 {
			now = now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "ms")) * time.Millisecond)
			e.Stand("bad", "a", true) // its heartbeat passes
			e.Tick(now, "bad")
			if e.Ejected("bad") {
				e.Outcome(now, "good", "a", Good)
				continue
			}
			wasted++
			e.Outcome(now, "bad", "a", Failed)
		}
		if wasted != failuresToEject {
			t.Fatalf("%d requests went to the worker that fails", wasted)
		}
	})
}

func TestAWorkerThatAnswersEverySecondRequestIsNeverEjected(t *testing.T) {
	e := NewEjector(0, 1500*time.Millisecond)
	e.Stand("w0", "a", true)
	e.Stand("w1", "a", true)
	for i := range 10_000 {
		now := epoch.Add(time.Duration(i) * 100 * time.Millisecond)
		e.Outcome(now, "w0", "a", Outcome(i%2*int(NoFirstByte)))
	}
	if e.Ejected("w0") {
		t.Error("it is ejected")
	}
}

func TestAReportWithoutProgressTokensNeverEjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, now := NewEjector(0, 1500*time.Millisecond), epoch
		e.Stand("w0", "a", true)
		e.Stand("w1", "a", true)
		for range 500 {
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			e.Progress(now, "w0", uint32(rapid.IntRange(0, 9).Draw(t, "running")), nil)
		}
		if e.Ejected("w0") {
			t.Fatal("it is ejected")
		}
	})
}
