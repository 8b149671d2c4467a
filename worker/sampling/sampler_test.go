package sampling

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

var (
	nan      = float32(math.NaN())
	infinite = float32(math.Inf(1))
)

func TestGreedyTakesTheFirstGreatestLogit(t *testing.T) {
	cases := map[string]struct {
		logits []float32
		want   engine.Token
	}{
		"the greatest":              {[]float32{1, 3, 2}, 1},
		"the first of equals":       {[]float32{1, 3, 3}, 1},
		"all negative":              {[]float32{-5, -3, -9}, 1},
		"NaN first":                 {[]float32{nan, -3, nan}, 1},
		"-Inf and one finite":       {[]float32{nothing, nothing, -1e30}, 2},
		"+Inf":                      {[]float32{1, infinite, nan}, 1},
		"a vocabulary of one token": {[]float32{-7}, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, s := range []engine.Sampling{{}, {Temperature: -1}, {Temperature: math.NaN()}} {
				if got, err := New(s, Options{}).Next(c.logits); err != nil || got.Token != c.want {
					t.Errorf("%+v: got %v, %v, want %d", s, got, err, c.want)
				}
			}
		})
	}
}

func TestLogitsWithoutAChoiceAreAnError(t *testing.T) {
	for _, logits := range [][]float32{nil, {}, {nan}, {nothing, nan}} {
		for _, s := range []engine.Sampling{{}, {Temperature: 1, TopP: 1}, {Temperature: 1, TopP: 0.5}} {
			if _, err := New(s, Options{}).Next(logits); !errors.Is(err, ErrNoChoice) {
				t.Errorf("%v at %+v: %v", logits, s, err)
			}
		}
	}
}

func TestExtremeLogitsAndSettingsChooseATokenThatIsThere(t *testing.T) {
	settings := []engine.Sampling{
		{Temperature: 1e-300, TopP: 0.9}, {Temperature: 1e300, TopP: 0.9}, {Temperature: math.Inf(1), TopP: 1},
		{Temperature: 1, TopP: math.SmallestNonzeroFloat64}, {Temperature: 1, TopP: 1 - 1e-16}, {Temperature: 1, TopP: math.NaN()},
		{Temperature: 1, TopP: -3}, {Temperature: 5e-324, TopP: 1},
	}
	rows := [][]float32{
		{math.MaxFloat32, -math.MaxFloat32, nan}, {nothing, 0, nan, nothing}, {0, 0, 0, 0},
		{-math.MaxFloat32, -math.MaxFloat32}, {nan, infinite, 3}, {1e-45, 0, -1e-45},
	}
	for _, s := range settings {
		for _, row := range rows {
			got, err := New(s, Options{}).Next(row)
			if err != nil || int(got.Token) >= len(row) || row[got.Token] != row[got.Token] || row[got.Token] == nothing {
				t.Errorf("%v at %+v: got %v, %v", row, s, got, err)
			}
		}
	}
}

func TestAnInfiniteLogitWinsAtAnyTemperature(t *testing.T) {
	s := New(engine.Sampling{Temperature: 2, TopP: 1}, Options{})
	for range 50 {
		if got, err := s.Next([]float32{5, infinite, 5}); err != nil || got.Token != 1 {
			t.Fatalf("got %v, %v", got, err)
		}
	}
}

func TestWeightIsTheExponential(t *testing.T) {
	for d := 0.0; d <= -floor; d += 0.00037 {
		w, cell := weight(d)
		if want := math.Exp(-d); math.Abs(w-want) > 1e-8*want || cell != int(d*bins) {
			t.Fatalf("weight(%g) is %g in cell %d, want %g", d, w, cell, want)
		}
	}
}

// reference returns the probabilities of the tokens by the definition: sort, then cut.
func reference(logits []float32, s engine.Sampling) []float64 {
	order := make([]int, len(logits))
	p := make([]float64, len(logits))
	top, total := slices.Max(logits), 0.0
	for i, l := range logits {
		order[i], p[i] = i, math.Exp(float64(l-top)/s.Temperature)
		total += p[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return byLogit(candidate{logit: logits[a]}, candidate{logit: logits[b]}) })
	sum, kept := 0.0, 0.0
	for _, i := range order {
		if sum >= s.TopP*total {
			p[i] = 0
			continue
		}
		sum += p[i]
		kept += p[i]
	}
	for i := range p {
		p[i] /= kept
	}
	return p
}

// The test of χ²: over cells with at least five expected choices, the statistic has cells-1 degrees of freedom; its mean
// is that and its deviation the root of twice that. Six deviations happen once in 1e8 runs, and the seeds are fixed anyway.
func TestChoicesFollowTheDistribution(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	row := make([]float32, 150)
	for i := range row {
		row[i] = float32(r.NormFloat64() * 2)
	}
	row[7], row[9] = row[3], row[3] // equal logits at a border matter
	for name, s := range map[string]engine.Sampling{
		"temperature 1":         {Temperature: 1, TopP: 1},
		"temperature 0.7":       {Temperature: 0.7, TopP: 1},
		"top_p 0.9":             {Temperature: 1, TopP: 0.9},
		"top_p 0.5 and hot":     {Temperature: 1.5, TopP: 0.5},
		"top_p 0.1":             {Temperature: 1, TopP: 0.1},
		"top_p that keeps one":  {Temperature: 0.2, TopP: 0.01},
		"top_p that keeps most": {Temperature: 1, TopP: 0.999},
	} {
		t.Run(name, func(t *testing.T) {
			const draws = 10000
			s.Seed = 42
			want, counts := reference(row, s), make([]float64, len(row))
			sampler := New(s, Options{})
			for range draws {
				got, err := sampler.Next(row)
				if err != nil {
					t.Fatal(err)
				}
				counts[got.Token]++
				sampler.Accept(got.Token)
			}
			checkCounts(t, counts, want, draws)
		})
	}
}

func checkCounts(t *testing.T, counts, want []float64, draws float64) {
	t.Helper()
	statistic, cells, restCount, restWant := 0.0, 0.0, 0.0, 0.0
	for i, p := range want {
		if p == 0 && counts[i] > 0 {
			t.Errorf("token %d is outside of the set and was chosen %g times", i, counts[i])
		}
		if p*draws < 5 {
			restCount, restWant = restCount+counts[i], restWant+p*draws
			continue
		}
		statistic += (counts[i] - p*draws) * (counts[i] - p*draws) / (p * draws)
		cells++
	}
	if restWant >= 5 {
		statistic += (restCount - restWant) * (restCount - restWant) / restWant
		cells++
	}
	if freedom := cells - 1; statistic > freedom+6*math.Sqrt(2*freedom)+1e-9 {
		t.Errorf("χ² is %.1f with %g degrees of freedom", statistic, freedom)
	}
}

func TestEqualSeedsMakeEqualChoices(t *testing.T) {
	row := make([]float32, 1000)
	for _, p := range []float64{1, 0.8} {
		draw := func(seed uint64) []engine.Token {
			s, out := New(engine.Sampling{Temperature: 1, TopP: p, Seed: seed}, Options{}), make([]engine.Token, 20)
			for i := range out {
				c, _ := s.Next(row)
				out[i] = c.Token
				s.Accept(c.Token)
			}
			return out
		}
		if !slices.Equal(draw(7), draw(7)) {
			t.Errorf("top_p %g: equal seeds differ", p)
		}
		if slices.Equal(draw(7), draw(8)) {
			t.Errorf("top_p %g: other seeds choose alike", p)
		}
	}
}

func TestChoicesAllocateNothingAfterTheFirst(t *testing.T) {
	row := vocabulary(49152)
	for name, s := range settings {
		sampler := New(s, Options{})
		_, _ = sampler.Next(row)
		if n := testing.AllocsPerRun(20, func() { _, _ = sampler.Next(row) }); n != 0 {
			t.Errorf("%s: %g allocations a choice", name, n)
		}
	}
}

var settings = map[string]engine.Sampling{
	"greedy":    {},
	"all":       {Temperature: 1, TopP: 1},
	"top_p=0.9": {Temperature: 1, TopP: 0.9},
	"hot":       {Temperature: 2, TopP: 0.99},
	"top_k=40":  {Temperature: 0.8, TopK: 40},
	"min_p=.05": {Temperature: 0.8, MinP: 0.05},
}

// vocabulary returns logits shaped as a language model's: a few likely tokens over a broad rest.
func vocabulary(n int) []float32 {
	r := rand.New(rand.NewPCG(3, 4))
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(r.NormFloat64()*2.5 - 2)
	}
	for i := range 12 {
		row[r.IntN(n)] = float32(14 - i)
	}
	return row
}

func BenchmarkNext(b *testing.B) {
	for _, n := range []int{49152, 151936} {
		row := vocabulary(n)
		for name, s := range settings {
			b.Run(name+"/"+map[int]string{49152: "49k", 151936: "152k"}[n], func(b *testing.B) {
				sampler := New(s, Options{})
				b.ReportAllocs()
				for b.Loop() {
					if _, err := sampler.Next(row); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
