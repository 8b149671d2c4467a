package kvcache

import (
	"math"
	"testing"
)

// lengths are deciles of prompt and output tokens, the least and the greatest first and last.
type lengths struct{ prompt, output [11]int }

// The lengths that real services see: conversation and code completion of one hour of a public cloud's trace (Azure LLM
// inference trace 2023, CC-BY-4.0), and a trace of shorter requests (AIBrix, Apache-2.0).
var services = map[string]lengths{
	"conversation": {
		[11]int{2, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2735, 14050},
		[11]int{7, 54, 77, 91, 103, 129, 177, 384, 400, 424, 1000},
	},
	"code completion": {
		[11]int{3, 147, 385, 770, 1075, 1469, 1909, 2433, 3193, 5194, 7437},
		[11]int{6, 7, 8, 9, 11, 13, 16, 20, 29, 55, 1899},
	},
	"short requests": {
		[11]int{8, 100, 145, 182, 223, 264, 302, 348, 418, 525, 2415},
		[11]int{1, 9, 14, 20, 25, 34, 46, 66, 101, 179, 925},
	},
}

// TestInternalWasteIsBelowFourPercent runs 2,000 requests of each service, sixteen at once, nothing shared, and weighs the
// unused room of the blocks that are held against the tokens in them, after every step.
func TestInternalWasteIsBelowFourPercent(t *testing.T) {
	for name, l := range services {
		t.Run(name, func(t *testing.T) {
			share := waste(t, l)
			t.Logf("%.2f %%", 100*share)
			if share >= 0.04 || share <= 0 {
				t.Errorf("%.2f %% of the tokens held", 100*share)
			}
		})
	}
}

func waste(t *testing.T, l lengths) float64 {
	const requests, streams, chunk = 2000, 16, 256
	c := New(Options{Blocks: streams * 1000, Sequences: streams})
	type stream struct {
		t            *Table
		prompt, left int
	}
	var running []*stream
	var unused, held float64
	for next := 0; next < requests || len(running) > 0; {
		for len(running) < streams && next < requests {
			table, err := c.Open(Key{}, []Token{Token(next)})
			if err != nil {
				t.Fatal(err)
			}
			running = append(running, &stream{table, l.prompt[0], 0})
			s := running[len(running)-1]
			s.prompt, s.left = at(l.prompt, next, math.Phi), at(l.output, next, math.Sqrt2)
			next++
		}
		still := running[:0]
		for i, s := range running {
			n := 1
			if s.t.Len() < s.prompt {
				n = min(chunk, s.prompt-s.t.Len())
			} else {
				s.left--
			}
			tokens := make([]Token, n)
			tokens[0] = Token(i)
			if err := c.Grow(s.t, s.t.Len()+n); err != nil {
				t.Fatal(err)
			}
			c.Append(s.t, tokens)
			if s.left > 0 {
				still = append(still, s)
			} else {
				c.Close(s.t, false)
			}
		}
		running = still
		c.Ops()
		now := c.Stats()
		unused += float64(now.Waste)
		held += float64(now.Tokens)
	}
	return unused / held
}

// at is the length of request i: the multiples of an irrational number spread evenly over the deciles.
func at(deciles [11]int, i int, irrational float64) int {
	_, u := math.Modf(float64(i+1) * irrational)
	d := int(u * 10)
	return deciles[d] + int(float64(deciles[d+1]-deciles[d])*(u*10-float64(d)))
}
