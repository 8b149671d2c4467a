package trial

import (
	"math"
	"testing"
	"time"
)

func TestNothingIsSaidOfNoMeasurements(t *testing.T) {
	var none Series
	for what, v := range map[string]float64{"greatest": none.Max(), "sum": none.Sum(), "median": none.Quantile(0.5)} {
		if !math.IsNaN(v) {
			t.Errorf("%s of none: %g", what, v)
		}
	}
	some := Series{3, 0}
	some.Took(time.Second)
	if some.Max() != 3 || some.Sum() != 4 || some.Quantile(0) != 0 {
		t.Errorf("of %v: %g, %g, %g", some, some.Max(), some.Sum(), some.Quantile(0))
	}
}

func TestARunTakesAsLongAsItsTrials(t *testing.T) {
	if got := sum([]Trial{{Takes: time.Second}, {Takes: 2 * time.Second}}); got != 3*time.Second {
		t.Errorf("they take %s", got)
	}
}
