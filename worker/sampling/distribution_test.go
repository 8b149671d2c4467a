package sampling

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// reference returns the probabilities of the tokens by the definition: what isn't allowed is taken out, then the
// temperature, min_p, top_k and top_p, each of what the one before left. TopP is met to within slack.
func reference(logits []float32, s engine.Sampling, allowed func(engine.Token) bool, slack float64) []float64 {
	p := make([]float64, len(logits))
	var order []candidate
	for i, l := range logits {
		if l > nothing && (allowed == nil || allowed(engine.Token(i))) {
			order = append(order, candidate{token: engine.Token(i), logit: l})
		}
	}
	slices.SortFunc(order, byLogit)
	total := 0.0
	for i := range order {
		w := math.Exp(float64(order[i].logit-order[0].logit) / s.Temperature)
		if w < s.MinP-slack || s.TopK > 0 && i >= s.TopK {
			order = order[:i]
			break
		}
		order[i].weight = w
		total += w
	}
	sum, kept := 0.0, 0.0
	for i, c := range order {
		if s.TopP > 0 && sum >= (s.TopP+slack)*total {
			order = order[:i]
			break
		}
		sum += c.weight
		kept += c.weight
	}
	for _, c := range order {
		p[c.token] = c.weight / kept
	}
	return p
}

var filters = map[string]engine.Sampling{
	"temperature 1":           {Temperature: 1},
	"temperature 0.7":         {Temperature: 0.7},
	"top_p 0.9":               {Temperature: 1, TopP: 0.9},
	"top_p 0.5 and hot":       {Temperature: 1.5, TopP: 0.5},
	"top_p 0.1":               {Temperature: 1, TopP: 0.1},
	"top_p that keeps one":    {Temperature: 0.2, TopP: 0.01},
	"top_p that keeps most":   {Temperature: 1, TopP: 0.999},
	"top_k 10":                {Temperature: 1, TopK: 10},
	"top_k that keeps all":    {Temperature: 1, TopK: 150},
	"min_p 0.1":               {Temperature: 0.8, MinP: 0.1},
	"min_p and top_p":         {Temperature: 1, MinP: 0.05, TopP: 0.8},
	"top_k and top_p":         {Temperature: 1, TopK: 20, TopP: 0.8},
	"min_p, top_k and top_p":  {Temperature: 1.2, MinP: 0.1, TopK: 12, TopP: 0.9},
	"top_k beyond what min_p": {Temperature: 1, MinP: 0.3, TopK: 40},
}

// wide returns 150 logits of which some at a border are equal.
func wide() []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	row := make([]float32, 150)
	for i := range row {
		row[i] = float32(r.NormFloat64() * 2)
	}
	row[7], row[9] = row[3], row[3]
	return row
}

func TestChoicesFollowTheDistribution(t *testing.T) {
	row := wide()
	for name, s := range filters {
		t.Run(name, func(t *testing.T) {
			s.Seed = 42
			checkCounts(t, New(s, Options{}), row, reference(row, s, nil, 0))
		})
	}
}

func TestChoicesFollowTheDistributionOfTheAllowedTokens(t *testing.T) {
	row := wide()
	order := best(row, len(row), nil)
	sets := map[string]func(engine.Token) bool{
		"even tokens":      func(t engine.Token) bool { return t%2 == 0 },
		"not the best":     func(t engine.Token) bool { return t != order[0].token },
		"all but the best": func(t engine.Token) bool { return row[t] <= order[30].logit },
		"all":              func(engine.Token) bool { return true },
	}
	for name, s := range filters {
		for set, allowed := range sets {
			t.Run(name+", "+set, func(t *testing.T) {
				s.Seed = 43
				want := reference(row, s, allowed, 0)
				checkCounts(t, New(s, Options{Forbid: func(t engine.Token) bool { return !allowed(t) }}), row, want)
				checkCounts(t, New(s, Options{Constraint: one(allowed)}), row, want)
				checkCounts(t, New(s, Options{Constraint: many{allowed}}), row, want)
				some := func(t engine.Token) bool { return t%3 > 0 && allowed(t) }
				checkCounts(t, New(s, Options{Constraint: many{allowed}, Forbid: func(t engine.Token) bool { return t%3 == 0 }}), row,
					reference(row, s, some, 0))
			})
		}
	}
}

// checkCounts does a test of χ²: over cells with at least five expected choices, the statistic has cells-1 degrees of
// freedom; its mean is that and its deviation the root of twice that. Six deviations happen once in 1e8 runs, and the
// seeds are fixed anyway.
func checkCounts(t *testing.T, s *Sampler, row []float32, want []float64) {
	t.Helper()
	const n = 3000
	counts := make([]float64, len(row))
	for _, token := range draws(t, s, row, n) {
		counts[token]++
	}
	statistic, cells, restCount, restWant := 0.0, 0.0, 0.0, 0.0
	for i, p := range want {
		if p == 0 && counts[i] > 0 {
			t.Errorf("token %d is outside of the set and was chosen %g times", i, counts[i])
		}
		if p*n < 5 {
			restCount, restWant = restCount+counts[i], restWant+p*n
			continue
		}
		statistic += (counts[i] - p*n) * (counts[i] - p*n) / (p * n)
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

func TestAChoiceIsOneThatTheDefinitionKeeps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logit := rapid.OneOf(rapid.Float32Range(-20, 20), rapid.SampledFrom([]float32{0, 1, 1, nan, nothing, 1e30, -1e30}))
		row := rapid.SliceOfN(logit, 1, 60).Draw(t, "logits")
		s := engine.Sampling{
			Temperature: rapid.Float64Range(0.01, 3).Draw(t, "temperature"), Seed: rapid.Uint64().Draw(t, "seed"),
			TopK: rapid.IntRange(0, 70).Draw(t, "top_k"),
		}
		if rapid.Bool().Draw(t, "with top_p") {
			s.TopP = rapid.Float64Range(0.01, 1).Draw(t, "top_p")
		}
		if rapid.Bool().Draw(t, "with min_p") {
			s.MinP = rapid.Float64Range(0.001, 1).Draw(t, "min_p")
		}
		mod := rapid.Int32Range(1, 4).Draw(t, "allowed are multiples of")
		allowed := func(t engine.Token) bool { return int32(t)%mod == 0 }
		want := reference(row, s, allowed, 1e-6)
		sampler := New(s, Options{Constraint: one(allowed)})
		for range 5 {
			got, err := sampler.Next(row)
			if (err == nil) != slices.ContainsFunc(want, func(p float64) bool { return p > 0 }) {
				t.Fatalf("%v, of %v", err, want)
			}
			if err != nil {
				return
			}
			if want[got.Token] == 0 {
				t.Fatalf("chose %d, of %v", got.Token, want)
			}
			sampler.Accept(got.Token)
		}
	})
}

// one is a constraint that is asked about one token at a time.
type one func(engine.Token) bool

func (c one) Allows(t engine.Token) bool { return c(t) }
func (one) Accept(engine.Token)          {}

// many is one that masks a row.
type many struct{ one }

func (m many) Mask(row []float32) {
	for i := range row {
		if !m.one(engine.Token(i)) {
			row[i] = nothing
		}
	}
}

// even allows the even tokens.
type even struct{}

func (even) Allows(t engine.Token) bool { return t%2 == 0 }
func (even) Accept(engine.Token)        {}
