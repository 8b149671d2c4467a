package measure

import (
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
	if r := row(t, rows, "added p50 at 1,000 requests/s, ringfleet over envoy"); r.Value != 0.55 || !r.Holds {
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

func TestAMeasureThatIsNotThereIsNamedWithThoseThatAre(t *testing.T) {
	_, err := (&Rig{}).Run(t.Context(), 1, []string{"speed"})
	if err == nil || !strings.Contains(err.Error(), `measure "speed": there are latency, cpu, prompts, streams, open, ring`) {
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
