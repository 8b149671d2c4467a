package trial

import (
	"math"
	"slices"
	"time"
)

// Series is one value for each time that a fault was done.
type Series []float64

// Add adds a value.
func (s *Series) Add(v float64) { *s = append(*s, v) }

// Took adds a time in seconds.
func (s *Series) Took(d time.Duration) { s.Add(d.Seconds()) }

// Max is the greatest; NaN of none, as nothing was measured.
func (s *Series) Max() float64 {
	if len(*s) == 0 {
		return math.NaN()
	}
	return slices.Max(*s)
}

// Sum adds all up; NaN of none, as nothing was measured.
func (s *Series) Sum() float64 {
	if len(*s) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, v := range *s {
		sum += v
	}
	return sum
}

// Quantile is the value that a share of q does not exceed; NaN of none, as nothing was measured.
func (s *Series) Quantile(q float64) float64 {
	if len(*s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(*s))
	return sorted[max(min(int(math.Ceil(q*float64(len(sorted))))-1, len(sorted)-1), 0)]
}
