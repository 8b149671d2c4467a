package sampling

import (
	"slices"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// candidate is a token that may be chosen.
type candidate struct {
	token  engine.Token
	logit  float32
	weight float64
}

// byLogit orders candidates from the best to the worst.
func byLogit(a, b candidate) int {
	switch {
	case a.logit > b.logit:
		return -1
	case a.logit < b.logit:
		return 1
	}
	return int(a.token - b.token)
}

// argmax returns the index of the first greatest logit, or -1 where all are NaN or -Inf.
func argmax(row []float32) int {
	top, at := nothing, -1
	i := 0
	for ; i+8 <= len(row); i += 8 { // in eights the loop itself costs little
		r := row[i : i+8 : i+8]
		if r[0] > top || r[1] > top || r[2] > top || r[3] > top || r[4] > top || r[5] > top || r[6] > top || r[7] > top {
			for j, l := range r {
				if l > top { // false for NaN
					top, at = l, i+j
				}
			}
		}
	}
	for ; i < len(row); i++ {
		if row[i] > top {
			top, at = row[i], i
		}
	}
	return at
}

// slack is how many candidates best collects at least before it selects among them.
const slack = 256

// best returns the k best tokens of a row in order, fewer where fewer have a logit, in buf if it is large enough. It reads
// the row once: whatever beats the k-th best token so far is collected, and the collection is cut to k when it is full,
// which raises the bar.
func best(row []float32, k int, buf []candidate) []candidate {
	room := k + max(k, slack)
	buf = slices.Grow(buf[:0], room)
	bar := nothing
	for i, l := range row {
		if l > bar { // false for NaN; of equal logits the first ones have passed
			buf = append(buf, candidate{token: engine.Token(i), logit: l})
			if len(buf) == room {
				selectBest(buf, k)
				buf = buf[:k]
				bar = worst(buf)
			}
		}
	}
	if len(buf) > k {
		selectBest(buf, k)
		buf = buf[:k]
	}
	slices.SortFunc(buf, byLogit)
	return buf
}

func worst(c []candidate) float32 {
	least := c[0].logit
	for _, x := range c {
		least = min(least, x.logit)
	}
	return least
}

// selectBest moves the k best candidates to the front, 0 < k < len(c), by Hoare's algorithm FIND.
func selectBest(c []candidate, k int) {
	for lo, hi := 0, len(c)-1; lo < hi; {
		pivot := c[lo+(hi-lo)/2]
		i, j := lo, hi
		for i <= j {
			for byLogit(c[i], pivot) < 0 {
				i++
			}
			for byLogit(pivot, c[j]) < 0 {
				j--
			}
			if i <= j {
				c[i], c[j] = c[j], c[i]
				i++
				j--
			}
		}
		switch {
		case k-1 <= j:
			hi = j
		case k-1 >= i:
			lo = i
		default:
			return
		}
	}
}
