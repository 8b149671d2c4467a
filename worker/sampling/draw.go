package sampling

import (
	"math"
	"slices"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// stream is where the second half of the generator's state starts: any fixed number.
const stream = 0x9e3779b97f4a7c15

var nothing = float32(math.Inf(-1))

// uniform returns a number in [0, 1).
func (s *Sampler) uniform() float64 { return float64(s.random.Uint64()>>11) / (1 << 53) }

// draw chooses from a row by temperature and filters, and leaves in s.kept the tokens on which the set of those that it
// chose from depends.
func (s *Sampler) draw(row []float32) (engine.Token, error) {
	s.kept = s.kept[:0]
	if s.scale > 0 && s.topK > 0 && s.topK < len(row) {
		s.kept = best(row, s.topK, s.kept)
		if len(s.kept) == 0 {
			return 0, ErrNoChoice
		}
		return s.fromKept(), nil
	}
	at := argmax(row)
	if at < 0 {
		return 0, ErrNoChoice
	}
	top := row[at]
	switch {
	case s.scale == 0 || math.IsInf(float64(top), 1):
		return engine.Token(at), nil
	case s.topP < 1:
		return s.nucleus(row, top), nil
	}
	if s.limit < -floor {
		s.kept = append(s.kept, candidate{token: engine.Token(at), logit: top})
	}
	return s.pick(row, top, s.uniform()*s.histogram(row, top)), nil
}

// fromKept chooses from the best tokens, of which it keeps those that min_p does; top_p may keep fewer.
func (s *Sampler) fromKept() engine.Token {
	top := s.kept[0].logit
	if math.IsInf(float64(top), 1) {
		s.kept = s.kept[:1]
		return s.kept[0].token
	}
	total := 0.0
	for i := range s.kept {
		c := &s.kept[i]
		d := float64(top-c.logit) * s.scale
		if !(d <= s.limit) {
			s.kept = s.kept[:i]
			break
		}
		c.weight, _ = weight(d)
		total += c.weight
	}
	set := s.kept
	if s.topP < 1 {
		set, total = reach(set, s.topP*total)
	}
	return among(set, s.uniform()*total)
}

// reach returns the first of set whose weights reach want together, and their sum.
func reach(set []candidate, want float64) (reached []candidate, sum float64) {
	for i, c := range set {
		if sum += c.weight; sum >= want {
			return set[:i+1], sum
		}
	}
	return set, sum // the rounding of the sums
}

// among returns the token of set at the point left of its weights in a row.
func among(set []candidate, left float64) engine.Token {
	for _, c := range set {
		if left -= c.weight; left < 0 {
			return c.token
		}
	}
	return set[len(set)-1].token // the rounding of the sums
}

// histogram adds up in s.mass the weights of the tokens within s.limit, and returns their sum.
func (s *Sampler) histogram(row []float32, top float32) (total float64) {
	clear(s.mass[:])
	bar := s.bar(top, s.limit)
	for _, l := range row {
		if l >= bar { // false for NaN
			if d := float64(top-l) * s.scale; d <= s.limit {
				w, cell := weight(d)
				s.mass[cell] += w
			}
		}
	}
	for _, m := range s.mass {
		total += m
	}
	return total
}

// pick returns the token at the point left of the weights in s.mass in a row: first the cell, then the token in it.
func (s *Sampler) pick(row []float32, top float32, left float64) engine.Token {
	cell := 0
	for i, m := range s.mass {
		if m > 0 {
			cell = i
			if left < m {
				break
			}
			left -= m
		}
	}
	at, bar := 0, s.bar(top, float64(cell+1)/bins)
	for i, l := range row {
		if l >= bar {
			if w, ok := s.within(cell, top, l); ok {
				at = i
				if left -= w; left < 0 {
					break
				}
			}
		}
	}
	return engine.Token(at) // at the latest the last one, where the sums were rounded
}

// within returns the weight of the logit l, and whether it is in a cell of the histogram.
func (s *Sampler) within(cell int, top, l float32) (float64, bool) {
	d := float64(top-l) * s.scale
	if !(d <= s.limit) {
		return 0, false
	}
	w, c := weight(d)
	return w, c == cell
}

// bar returns a logit that those of all tokens reach whose distance to the best one over the temperature is at most d. So
// most tokens need no arithmetic.
func (s *Sampler) bar(top float32, d float64) float32 {
	const rounding = 1e-6 // of float32, and as much again
	x := d / s.scale
	return float32(float64(top) - x - rounding*(x+math.Abs(float64(top))))
}

// nucleus chooses among the smallest set of best tokens whose weights reach topP of all within the limit. The histogram
// finds the cell in which the set ends; only the tokens of that cell are sorted.
func (s *Sampler) nucleus(row []float32, top float32) engine.Token {
	want := s.topP * s.histogram(row, top)
	end, before := 0, 0.0
	for end < cells-1 && before+s.mass[end] < want {
		before += s.mass[end]
		end++
	}
	s.border = s.border[:0]
	bar := s.bar(top, float64(end+1)/bins)
	for i, l := range row {
		if l >= bar {
			if w, ok := s.within(end, top, l); ok {
				s.border = append(s.border, candidate{engine.Token(i), l, w})
			}
		}
	}
	slices.SortFunc(s.border, byLogit)
	border, sum := reach(s.border, want-before)
	left := s.uniform() * (before + sum)
	if left < before {
		return s.pick(row, top, left)
	}
	return among(border, left-before)
}
