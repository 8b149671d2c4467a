package placement

// average is a mean of values that weigh differently and that it forgets: what came before weighs at most as much as the
// memory of the last add.
type average struct {
	value, weight float64
}

// add takes in a value. One that weighs nothing changes nothing.
func (a *average) add(value, weight, memory float64) {
	if weight <= 0 {
		return
	}
	a.weight = min(a.weight+weight, memory)
	a.value += (value - a.value) * min(1, weight/a.weight)
}

// or is the mean with another value that weighs base, which is above 0: that value while there is nothing else.
func (a average) or(other, base float64) float64 {
	return (a.value*a.weight + other*base) / (a.weight + base)
}
