package pairs

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestAMedianIsInTheMiddle(t *testing.T) {
	for name, c := range map[string]struct {
		s    Series
		want float64
	}{
		"of an odd number":   {Series{5, 1, 3}, 3},
		"of an even number":  {Series{4, 1, 3, 2}, 2.5},
		"of one":             {Series{7}, 7},
		"of none, nothing":   {nil, 0},
		"order is no matter": {Series{9, 9, 1, 1, 2}, 2},
	} {
		before := slices.Clone(c.s)
		if got := c.s.Median(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if !slices.Equal(c.s, before) {
			t.Errorf("%s: the series was sorted in place", name)
		}
	}
}

func TestARatioIsTakenPairByPair(t *testing.T) {
	if got := Over(Series{2, 9, 4, 8}, Series{1, 3, 0}); !slices.Equal(got, Series{2, 3}) {
		t.Errorf("%v", got)
	}
}

func TestARowIsJudgedByItsMedian(t *testing.T) {
	s := Series{0.9, 1, 1.3}
	for name, c := range map[string]struct {
		r     Row
		holds bool
	}{
		"at most, held":        {AtMost("a", s, "×", 1), true},
		"at most, not held":    {AtMost("a", s, "×", 0.99), false},
		"at least, held":       {AtLeast("a", s, "×", 1), true},
		"at least, not held":   {AtLeast("a", s, "×", 1.01), false},
		"without a goal":       {Plain("a", s, "×"), true},
		"nothing was measured": {AtMost("a", nil, "×", 1), false},
	} {
		if c.r.Holds != c.holds {
			t.Errorf("%s: %+v", name, c.r)
		}
	}
	if r := AtMost("a", s, "×", 1); r.Least != 0.9 || r.Greatest != 1.3 || r.Pairs != 3 || r.Value != 1 {
		t.Errorf("%+v", r)
	}
}

func TestARowIsAFigureInJSONWithItsSpread(t *testing.T) {
	text, err := json.Marshal(AtMost("a", Series{1, 2, 4}, "×", 3))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"a","value":2,"unit":"×","goal":"≤ 3","holds":true,"least":1,"greatest":4,"pairs":3,"load":0}`
	if string(text) != want {
		t.Errorf("%s", text)
	}
}
