package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestARequestIsCountedOnceWithItsTokens(t *testing.T) {
	s := New()
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

func TestAModelThatIsGoneLeavesNoSeries(t *testing.T) {
	s := New()
	for _, m := range []string{"gone", "stays"} {
		s.Begin(m).End("ok", time.Second, 1, 1, 1)
		s.Retries.WithLabelValues(m).Inc()
		s.RingMembers.WithLabelValues(m).Set(1)
	}
	s.Forget("gone")
	families, err := s.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	stays := 0
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetValue() == "gone" {
					t.Errorf("%s still has the model", f.GetName())
				}
				if l.GetValue() == "stays" {
					stays++
				}
			}
		}
		if !strings.HasPrefix(f.GetName(), "ringfleet_router_") && !strings.HasPrefix(f.GetName(), "go_") && !strings.HasPrefix(f.GetName(), "process_") {
			t.Errorf("metric %s without our prefix", f.GetName())
		}
	}
	if stays < 8 {
		t.Errorf("%d series of the other model", stays)
	}
}
