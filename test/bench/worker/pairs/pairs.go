// Package pairs judges what was measured on two sides in turns: medians, how far the pairs lay apart, and ratios pair by
// pair. It measures nothing and writes nothing.
package pairs

import (
	"slices"

	"github.com/ringfleet/ringfleet/test/bench"
)

// Series are the values of one quantity, one for each pair.
type Series []float64

// Median is the value in the middle, or the mean of the two there; 0 without values.
func (s Series) Median() float64 {
	if len(s) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(s))
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}

// Over is a/b pair by pair. A pair whose b is 0 has no ratio.
func Over(a, b Series) Series {
	var out Series
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			out = append(out, a[i]/b[i])
		}
	}
	return out
}

// Row is a figure, the median of its pairs, and how far they lay apart.
type Row struct {
	bench.Figure
	Least    float64 `json:"least"`
	Greatest float64 `json:"greatest"`
	Pairs    int     `json:"pairs"`
	// Load is the machine's load average when the measure began.
	Load float64 `json:"load"`
}

// AtMost is a row whose median must not exceed goal.
func AtMost(name string, s Series, unit string, goal float64) Row {
	return row(bench.AtMost(name, s.Median(), unit, goal), s)
}

// AtLeast is a row whose median must reach goal.
func AtLeast(name string, s Series, unit string, goal float64) Row {
	return row(bench.AtLeast(name, s.Median(), unit, goal), s)
}

// Plain is a row without a goal.
func Plain(name string, s Series, unit string) Row {
	return row(bench.Plain(name, s.Median(), unit), s)
}

func row(f bench.Figure, s Series) Row {
	r := Row{Figure: f, Pairs: len(s)}
	if len(s) == 0 {
		r.Holds = false // nothing was seen
		return r
	}
	r.Least, r.Greatest = slices.Min(s), slices.Max(s)
	return r
}

// Figures are the rows as other benches have them.
func Figures(rows []Row) []bench.Figure {
	out := make([]bench.Figure, len(rows))
	for i, r := range rows {
		out[i] = r.Figure
	}
	return out
}
