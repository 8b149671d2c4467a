package heartbeat

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

var update = flag.Bool("update", false, "rewrite transcripts")

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var expected = Expect{ModelUID: "uid-1", PodUID: "pod-1"}

// good is a report of instance id that counts.
func good(id string) *workerv1.Report {
	return &workerv1.Report{
		InstanceId: id, Model: "smollm2", ModelUid: "uid-1", PodUid: "pod-1", PodName: "smollm2-0", Revision: "r1",
		ModelLoaded: true, Stage: workerv1.Stage_STAGE_LOADED,
	}
}

// rewrite makes datadriven write transcripts where -update asks for it.
func rewrite(t *testing.T) {
	t.Helper()
	if *update {
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDetectorTranscripts(t *testing.T) {
	rewrite(t)
	datadriven.Walk(t, "testdata/detector", func(t *testing.T, path string) {
		c := DefaultConfig()
		d := NewDetector(c, expected, epoch)
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			switch td.Cmd {
			case "new":
				c = DefaultConfig()
				configure(t, td, &c)
				d = NewDetector(c, expected, epoch)
			case "configure":
				configure(t, td, &c)
				d.Configure(c)
			case "run":
				return run(t, d, td.Input)
			default:
				t.Fatalf("unknown command %q", td.Cmd)
			}
			return verdict(d)
		})
	})
}

func configure(t *testing.T, td *datadriven.TestData, c *Config) {
	for _, a := range td.CmdArgs {
		switch a.Key {
		case "failures":
			a.Scan(t, 0, &c.FailuresToDrop)
		case "successes":
			a.Scan(t, 0, &c.SuccessesToAdmit)
		case "interval", "timeout":
			d, err := time.ParseDuration(a.Vals[0])
			if err != nil {
				t.Fatal(err)
			}
			if a.Key == "interval" {
				c.Interval = d
			} else {
				c.Timeout = d
			}
		default:
			t.Fatalf("unknown setting %q", a.Key)
		}
	}
}

// run plays one event a line: a time, the event and its words.
func run(t *testing.T, d *Detector, input string) string {
	var out strings.Builder
	for line := range strings.SplitSeq(input, "\n") {
		f := strings.Fields(line)
		at, err := time.ParseDuration(f[0])
		if err != nil {
			t.Fatal(err)
		}
		now := epoch.Add(at)
		switch f[1] {
		case "report":
			d.Report(now, reportOf(t, f[2], f[3:]))
		case "broken":
			d.Broken(now, "connection refused")
		case "tick":
			d.Tick(now)
		case "terminating":
			d.Terminate()
		default:
			t.Fatalf("unknown event %q", f[1])
		}
		fmt.Fprintf(&out, "%-6s %-28s %s\n", f[0], strings.Join(f[1:], " "), verdict(d))
	}
	return out.String()
}

func reportOf(t *testing.T, id string, words []string) *workerv1.Report {
	r := good(id)
	for _, w := range words {
		switch w {
		case "loading":
			r.ModelLoaded, r.Stage = false, workerv1.Stage_STAGE_LOADING
		case "failed":
			r.ModelLoaded, r.Stage = false, workerv1.Stage_STAGE_FAILED
			r.Reason, r.Message = "WeightsCorrupt", "weights/m.gguf ends after 12 bytes"
		case "draining":
			r.Draining, r.Stage = true, workerv1.Stage_STAGE_DRAINING
		case "other-name":
			r.Model = "qwen"
		case "other-uid":
			r.ModelUid = "uid-2"
		case "other-pod":
			r.PodUid = "pod-2"
		default:
			t.Fatalf("unknown word %q", w)
		}
	}
	return r
}

func verdict(d *Detector) string {
	s := fmt.Sprintf("%s instance=%q successes=%d failures=%d next=%s",
		d.State(), d.Instance(), d.successes, d.failures, d.Next().Sub(epoch))
	if d.Why() != "" {
		s += " why: " + d.Why()
	}
	return s
}

func TestWithTicksOnTimeAWorkerIsLostAtMostThreeAndAHalfIntervalsAfterItsLastReport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := DefaultConfig()
		d := NewDetector(c, expected, epoch)
		last := epoch
		for range 5 {
			last = last.Add(time.Duration(rapid.IntRange(900, 1400).Draw(t, "gap")) * time.Millisecond)
			d.Report(last, good("a"))
		}
		if d.State() != Up {
			t.Fatalf("not up after five reports: %s", verdict(d))
		}
		for range rapid.IntRange(0, 6).Draw(t, "breaks") {
			d.Broken(last.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "at"))*time.Millisecond), "gone")
		}
		var at time.Duration
		for d.State() == Up {
			next := d.Next()
			d.Tick(next)
			at = next.Sub(last)
		}
		if d.State() != Lost || at > 3500*time.Millisecond {
			t.Fatalf("%s %s after the last report", d.State(), at)
		}
	})
}
