package measure

import (
	"slices"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/test/bench/worker/pairs"
)

// row finds one by its name.
func row(t *testing.T, rows []pairs.Row, name string) pairs.Row {
	t.Helper()
	for _, r := range rows {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("there is no row %q", name)
	return pairs.Row{}
}

func TestWhatARouterAddsIsMinusTheDirectWayTurnByTurn(t *testing.T) {
	v := values{}
	for i, direct := range []float64{100, 200} {
		v.add(Direct, "p50", direct)
		v.add(Ours, "p50", direct+[]float64{50, 60}[i])
		v.add("envoy", "p50", direct+100)
	}
	rows := latencyRows(v, []string{Direct, Ours, "envoy"})
	if r := row(t, rows, "added p50 at 1,000 requests/s, ringfleet"); r.Value != 55 || r.Goal != "" {
		t.Errorf("%+v", r)
	}
	if r := row(t, rows, "added p50 at 1,000 requests/s, ringfleet over envoy, second goal"); r.Value != 0.55 || !r.Holds {
		t.Errorf("%+v", r)
	}
}

func TestOnlyOurFiguresHaveGoals(t *testing.T) {
	v := values{}
	for _, s := range []string{Ours, "envoy"} {
		v.add(s, "cpu", 120)
		v.add(s, "220", 700)
		v.add(s, "tokens", 20_000)
		v.add(s, "memory", 10)
	}
	sides := []string{Direct, Ours, "envoy"}
	for name, want := range map[string]struct {
		rows  []pairs.Row
		holds bool
	}{
		"CPU per request over 32 connections, ": {busyRows(v, sides), false},
		"CPU for a prompt of 220 KB, ":          {promptRows(v, sides), true},
		"streamed tokens per second and core, ": {streamRows(v, sides), false},
		"memory per open stream, 8,000 open, ":  {openRows(v, sides), true},
	} {
		if r := row(t, want.rows, name+Ours); r.Goal == "" || r.Holds != want.holds {
			t.Errorf("%+v", r)
		}
		if r := row(t, want.rows, name+"envoy"); r.Goal != "" {
			t.Errorf("a peer has a goal: %+v", r)
		}
	}
}

func TestASecondGoalIsHarderThanTheFirst(t *testing.T) {
	sides := []string{Direct, Ours, "envoy", "vllm-router"}
	v := values{}
	v.add(Ours, "cpu", 100)
	v.add("envoy", "cpu", 50)
	v.add("vllm-router", "cpu", 120)
	v.add(Ours, "220", 600)
	v.add(Ours, "tokens", 40_000)
	v.add(Ours, "memory", 40)
	v.add("nginx", "cpu", 30)
	if r := row(t, busyRows(v, append(sides, "nginx")), "CPU per request over 32 connections, ringfleet over nginx"); r.Goal != "" {
		t.Errorf("nginx's figure is a goal: %+v", r)
	}
	rows := slices.Concat(busyRows(v, sides), promptRows(v, sides), streamRows(v, sides), openRows(v, sides))
	for first, then := range map[string]string{
		"CPU per request over 32 connections, ringfleet over vllm-router": "CPU per request over 32 connections, ringfleet over envoy, second goal",
		"CPU for a prompt of 220 KB, ringfleet":                           "CPU for a prompt of 220 KB, ringfleet, second goal",
		"streamed tokens per second and core, ringfleet":                  "streamed tokens per second and core, ringfleet, second goal",
		"memory per open stream, 8,000 open, ringfleet":                   "memory per open stream, 8,000 open, ringfleet, second goal",
	} {
		if a, b := row(t, rows, first), row(t, rows, then); !a.Holds || b.Holds || b.Goal == "" {
			t.Errorf("%+v, then %+v", a, b)
		}
	}
}

func TestADecisionThatGrowsWithTheFlowsIsNotFlat(t *testing.T) {
	const printed = `BenchmarkEnterWhileOthersWait/flows=1-2     1000  1000 ns/op  80 B/op
BenchmarkEnterWhileOthersWait/flows=5000-2  1000  1900 ns/op  80 B/op
`
	rows, err := admissionRows(printed)
	if err != nil {
		t.Fatal(err)
	}
	if r := row(t, rows, "one admission decision while 5,000 flows wait"); r.Value != 1.9 || !r.Holds {
		t.Errorf("%+v", r)
	}
	if r := row(t, rows, "one admission decision, 5,000 flows over one"); r.Value != 1.9 || r.Holds {
		t.Errorf("%+v", r)
	}
}

func TestALookupIsHeldToItsGoalWithoutTheHash(t *testing.T) {
	printed := ""
	for _, n := range []string{"8", "128", "1000"} {
		printed += "BenchmarkLookup/members=" + n + "-2 1 21 ns/op\nBenchmarkOwner/members=" + n + "-2 1 31 ns/op\n"
	}
	rows, err := ringRows(printed)
	if err != nil {
		t.Fatal(err)
	}
	if r := row(t, rows, "the owner of a hashed key, of 128 workers"); r.Value != 21 || r.Holds {
		t.Errorf("%+v", r)
	}
	if r := row(t, rows, "the owner of a key of 36 bytes with its hash, of 128 workers"); r.Value != 31 || r.Goal != "" {
		t.Errorf("%+v", r)
	}
}

func TestAMeasureThatIsNotThereIsNamedWithThoseThatAre(t *testing.T) {
	_, err := (&Rig{}).Run(t.Context(), 1, []string{"speed"})
	if err == nil || !strings.Contains(err.Error(), `measure "speed": there are latency, cpu, prompts, streams, open, ring, decision`) {
		t.Errorf("%v", err)
	}
}

func TestFailuresOfALoadAreNoFigures(t *testing.T) {
	if err := fine(3, "status 503"); err == nil || !strings.Contains(err.Error(), "3 requests failed, one of them: status 503") {
		t.Errorf("%v", err)
	}
	if err := fine(0, ""); err != nil {
		t.Error(err)
	}
}
