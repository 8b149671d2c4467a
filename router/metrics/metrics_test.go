package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// keeping is a set for these models.
func keeping(names ...string) *Set {
	s, kept := New(), map[string]bool{}
	for _, name := range names {
		kept[name] = true
	}
	s.Keep(kept)
	return s
}

func TestARequestIsCountedOnceWithItsTokens(t *testing.T) {
	s := keeping("m")
	r := s.Begin("m")
	if got := testutil.ToFloat64(s.InFlight.WithLabelValues("m")); got != 1 {
		t.Errorf("in flight %v", got)
	}
	r.FirstToken(time.Second)
	r.NextToken(time.Millisecond)
	r.End("ok", 2*time.Second, 9, 4, 2)
	for what, c := range map[string]struct{ got, want float64 }{
		"in flight": {testutil.ToFloat64(s.InFlight.WithLabelValues("m")), 0},
		"requests":  {testutil.ToFloat64(s.Requests.WithLabelValues("m", "ok")), 1},
		"prompt":    {testutil.ToFloat64(s.PromptTokens.WithLabelValues("m")), 9},
		"cached":    {testutil.ToFloat64(s.CachedTokens.WithLabelValues("m")), 4},
		"answer":    {testutil.ToFloat64(s.AnswerTokens.WithLabelValues("m")), 2},
	} {
		if c.got != c.want {
			t.Errorf("%s %v, want %v", what, c.got, c.want)
		}
	}
}

func TestWhatARequestFoundAtItsWorkerIsCountedForItsModel(t *testing.T) {
	s := keeping("m", "other")
	s.Entered("m", 2*time.Second, 7)
	s.Entered("m", time.Second, 1)
	s.Entered("other", time.Second, 100)
	if got := testutil.ToFloat64(s.ExpectedCached.WithLabelValues("m")); got != 8 {
		t.Errorf("%v tokens are thought to be cached, want 8", got)
	}
	others := testutil.ToFloat64(s.ExpectedCached.WithLabelValues("other"))
	if n := testutil.CollectAndCount(s.QueueWait); n != 2 || others != 100 {
		t.Errorf("%d models waited, want 2; %v tokens of the other, want 100", n, others)
	}
	s.Keep(map[string]bool{"other": true})
	s.Keep(map[string]bool{"other": true, "m": true})
	s.Entered("m", time.Second, 1)
	if got := testutil.ToFloat64(s.ExpectedCached.WithLabelValues("m")); got != 1 {
		t.Errorf("a model that came back has %v tokens, want its own", got)
	}
}

// series returns how many series name the model.
func series(t *testing.T, s *Set, model string) int {
	t.Helper()
	families, err := s.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range families {
		if name := f.GetName(); !strings.HasPrefix(name, "ringfleet_router_") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("metric %s without our prefix", name)
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetValue() == model {
					n++
				}
			}
		}
	}
	return n
}

func TestAModelThatIsGoneLeavesNoSeries(t *testing.T) {
	s := keeping("gone", "stays")
	for _, m := range []string{"gone", "stays"} {
		s.Begin(m).End("ok", time.Second, 1, 1, 1)
		s.Retries.WithLabelValues(m).Inc()
		s.RingMembers.WithLabelValues(m).Set(1)
	}
	late, also := s.Begin("gone"), s.Begin("stays")
	s.Keep(map[string]bool{"stays": true})
	late.FirstToken(time.Second)
	late.NextToken(time.Second)
	late.End("ok", time.Second, 1, 1, 1)
	also.End("ok", time.Second, 1, 1, 1)
	if n := series(t, s, "gone"); n != 0 {
		t.Errorf("%d series of the model that is gone", n)
	}
	if n := series(t, s, "stays"); n < 8 {
		t.Errorf("%d series of the other model", n)
	}
	if n := testutil.ToFloat64(s.Requests.WithLabelValues("stays", "ok")); n != 2 {
		t.Errorf("%v requests of the other model", n)
	}
}

func TestAModelThatComesBackCountsItsOwnRequestsOnly(t *testing.T) {
	s := keeping("m")
	old := s.Begin("m")
	s.Keep(map[string]bool{})
	s.Keep(map[string]bool{"m": true})
	s.Begin("m")
	old.End("ok", time.Second, 1, 1, 1)
	if n := testutil.ToFloat64(s.InFlight.WithLabelValues("m")); n != 1 {
		t.Errorf("%v in flight", n)
	}
	if n := testutil.ToFloat64(s.Requests.WithLabelValues("m", "ok")); n != 0 {
		t.Errorf("%v requests", n)
	}
}

func TestARequestThatBeginsTooLateLeavesNoSeries(t *testing.T) {
	s := keeping("m")
	s.Keep(map[string]bool{})
	s.Entered("m", time.Second, 1)
	r := s.Begin("m")
	r.FirstToken(time.Second)
	r.NextToken(time.Second)
	r.End("ok", time.Second, 1, 1, 1)
	if n := series(t, s, "m"); n != 0 {
		t.Errorf("%d series", n)
	}
}
