package sampling

import "math"

const (
	// floor is the logarithm of a weight, relative to the best token's, that counts as nothing: of 2^18 such tokens the
	// sum is below 3e-8.
	floor = -30
	// The histogram of logarithms of weights: bins cells for each unit down to floor.
	bins  = 16
	cells = -floor*bins + 1
)

// powers[i] is e^(-i/bins).
var powers = func() (p [cells]float64) {
	for i := range p {
		p[i] = math.Exp(-float64(i) / bins)
	}
	return p
}()

// weight returns e^-d and the cell of d, for the distance d in [0, -floor] of a logit to the best one over the temperature.
// The relative error is below 1e-8: the cell's power is looked up, and the rest of at most 1/bins goes through a Taylor
// polynomial. This runs once for each token of the vocabulary, and math.Exp takes several times as long.
func weight(d float64) (w float64, cell int) {
	cell = int(d * bins)
	r := float64(cell)*(1./bins) - d
	return powers[cell] * (1 + r*(1+r*(1./2+r*(1./6+r*(1./24))))), cell
}
