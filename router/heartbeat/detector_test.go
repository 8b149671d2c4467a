package heartbeat

import (
	"flag"
	"fmt"
	"math/rand/v2"
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

func TestDetectorTranscripts(t *testing.T) {
	if *update {
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
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

// input is one event of the random comparison.
type input struct {
	at       time.Duration
	kind     byte // r: good report, u: unfit report, d: draining report, b: broken, t: tick
	instance string
}

// apply feeds e to d.
func (e input) apply(d *Detector) {
	now := epoch.Add(e.at)
	switch e.kind {
	case 'r':
		d.Report(now, good(e.instance))
	case 'u':
		r := good(e.instance)
		r.ModelLoaded = false
		d.Report(now, r)
	case 'd':
		r := good(e.instance)
		r.Draining = true
		d.Report(now, r)
	case 'b':
		d.Broken(now, "gone")
	case 't':
		d.Tick(now)
	}
}

// reference judges a whole history from scratch. It writes a letter for everything that counts (S, F, U for an unfit
// report, D for one that drains, R for a new instance) and reads the verdict off the word.
func reference(c Config, history []input) State {
	var word []byte
	instance, heard := "", time.Duration(0)
	lastS, lastF := time.Duration(-1), time.Duration(-1)
	failure := func(at time.Duration) {
		if lastF < 0 || at >= lastF+c.Interval {
			word, lastF = append(word, 'F'), at
		}
	}
	for _, e := range history {
		switch e.kind {
		case 'b':
			failure(e.at)
			continue
		case 't':
			if e.at >= heard+c.Interval+c.Timeout {
				failure(e.at)
			}
			continue
		}
		heard = e.at
		if e.instance != instance {
			word, instance, lastS, lastF = append(word, 'R'), e.instance, -1, -1
		}
		switch {
		case e.kind == 'u':
			word = append(word, 'U')
		case e.kind == 'd':
			word = append(word, 'D')
		case lastS < 0 || e.at >= lastS+c.Interval*9/10:
			word, lastS = append(word, 'S'), e.at
		default:
			word = append(word, '.') // a report that is no success: it ends draining, and nothing else
		}
	}
	return readWord(c, word)
}

func readWord(c Config, word []byte) State {
	up, draining := false, false
	s, f := 0, 0
	for _, w := range word {
		switch w {
		case 'S':
			s, f, draining = s+1, 0, false
		case 'F':
			s, f = 0, f+1
		case 'U':
			up, s, f, draining = false, 0, 0, false
		case 'R':
			up, s, f = false, 0, 0
		case 'D':
			up, s, f, draining = false, 0, 0, true
		case '.':
			draining = false
		}
		up = (up || s >= c.SuccessesToAdmit) && f < c.FailuresToDrop
	}
	switch {
	case f >= c.FailuresToDrop:
		return Lost
	case draining:
		return Draining
	case up:
		return Up
	}
	return Down
}

// compare plays a history drawn by intn against the reference; it describes a difference in
// the verdict at its end. The start of a history is a history too.
func compare(intn func(n int) int) string {
	c := Config{
		Interval: time.Second, Timeout: time.Duration(intn(11)) * 100 * time.Millisecond,
		FailuresToDrop: 1 + intn(4), SuccessesToAdmit: 1 + intn(4),
	}
	d := NewDetector(c, expected, epoch)
	var history []input
	at := time.Duration(0)
	steps := []time.Duration{0, 1, 100, 400, 500, 899, 900, 950, 1000, 1050, 1500, 2500}
	for range 1 + intn(30) {
		at += steps[intn(len(steps))] * time.Millisecond
		e := input{at: at, kind: "rrrrrrrbbbttttud"[intn(16)], instance: "a"}
		if intn(12) == 0 {
			e.instance = "b"
		}
		history = append(history, e)
		e.apply(d)
	}
	if got, want := d.State(), reference(c, history); got != want {
		return fmt.Sprintf("config %+v\nhistory %+v\nthe detector says %s, the reference %s", c, history, got, want)
	}
	return ""
}

func TestTheDetectorAgreesWithANaiveReferenceOnHundredThousandHistories(t *testing.T) {
	const histories = 100_000
	rng := rand.New(rand.NewPCG(7, 42))
	for i := range histories {
		if diff := compare(rng.IntN); diff != "" {
			t.Fatalf("history %d: %s", i, diff)
		}
	}
}

func TestTheDetectorAgreesWithANaiveReferenceOnShrinkableHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if diff := compare(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }); diff != "" {
			t.Fatal(diff)
		}
	})
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
