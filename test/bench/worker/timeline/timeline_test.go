package timeline

import (
	"math"
	"slices"
	"testing"
	"time"
)

var start = time.Unix(1000, 0)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

// answer was sent at 0 and had a token at each of these milliseconds.
func answer(ms ...int) Answer {
	a := Answer{Sent: start, Completion: len(ms)}
	for _, m := range ms {
		a.Arrivals = append(a.Arrivals, Arrival{At: at(m), Tokens: 1})
	}
	return a
}

// steady had n tokens, the first at from, one every so many milliseconds.
func steady(from, every, n int) Answer {
	var ms []int
	for i := range n {
		ms = append(ms, from+i*every)
	}
	return answer(ms...)
}

func TestTheFirstTokensTimeCountsFromTheRequest(t *testing.T) {
	if got := Firsts([]Answer{answer(250, 300), answer(40), {Sent: start}}); !slices.Equal(got, []float64{0.25, 0.04, 0}) {
		t.Errorf("%v", got)
	}
}

func TestDecodeCountsOnlyWhileAllRun(t *testing.T) {
	for name, c := range map[string]struct {
		answers []Answer
		want    float64
	}{
		"one answer":                            {[]Answer{steady(100, 10, 11)}, 100},
		"two in step":                           {[]Answer{steady(100, 10, 11), steady(100, 10, 11)}, 200},
		"two in step, one noted a little later": {[]Answer{steady(100, 10, 11), steady(101, 10, 11)}, 200},
		"one began when the other was alone, and fast": {[]Answer{
			answer(10, 11, 12, 13, 14, 15, 100, 120, 140, 160, 180), steady(100, 20, 5)}, 100},
		"one has no token":               {[]Answer{steady(100, 10, 11), {Sent: start}}, 0},
		"they were never both there":     {[]Answer{steady(0, 10, 3), steady(500, 10, 3)}, 0},
		"tokens that come two at once":   {[]Answer{{Completion: 6, Arrivals: []Arrival{{at(0), 2}, {at(20), 2}, {at(40), 2}}}}, 100},
		"tokens of which two are unsaid": {[]Answer{{Completion: 6, Arrivals: []Arrival{{at(0), 1}, {at(20), 1}, {at(40), 1}}}}, 100},
	} {
		if got := Decode(c.answers); math.Abs(got-c.want) > 0.01 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestThroughputCountsFromTheFirstRequestToTheLastToken(t *testing.T) {
	late := steady(100, 100, 5)
	late.Sent = at(50)
	if got := Throughput([]Answer{steady(100, 100, 5), late, answer(100, 1000)}); got != 12 {
		t.Errorf("%v", got)
	}
	if got := Throughput([]Answer{{Sent: start}}); got != 0 {
		t.Errorf("without a token: %v", got)
	}
}

func TestTheWorstGapIsTheLongestThatOverlapsTheTime(t *testing.T) {
	a := answer(0, 900, 1000, 1100, 1400, 1500, 9000)
	for name, c := range map[string]struct {
		from, to int
		want     time.Duration
	}{
		"those inside":                            {1000, 1500, 300 * time.Millisecond},
		"one that begins before":                  {800, 1100, 900 * time.Millisecond},
		"one that ends after":                     {1450, 1600, 7500 * time.Millisecond},
		"one that only touches it does not count": {900, 1100, 100 * time.Millisecond},
	} {
		if got := WorstGap([]Answer{answer(0, 1), a}, at(c.from), at(c.to)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
