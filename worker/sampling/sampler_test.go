package sampling

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

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
		"the second of eight":       {[]float32{1, 9, 2, 9, 3, nan, 4, 5, 6}, 1},
		"the last of nine":          {[]float32{1, 1, 1, 1, 1, 1, 1, 1, 2}, 8},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, s := range []engine.Sampling{{}, {Temperature: -1}, {Temperature: math.NaN()}, {TopK: 3, TopP: 0.5, MinP: 0.1}, {Temperature: 1, TopK: 1}} {
				if got, err := New(s, Options{}).Next(c.logits); err != nil || got.Token != c.want {
					t.Errorf("%+v: got %v, %v, want %d", s, got, err, c.want)
				}
			}
		})
	}
}

// someSettings are one for each way through the filters.
var someSettings = map[string]engine.Sampling{
	"greedy":    {},
	"all":       {Temperature: 1},
	"top_p":     {Temperature: 1, TopP: 0.5},
	"top_k":     {Temperature: 1, TopK: 2},
	"min_p":     {Temperature: 1, MinP: 0.2},
	"every one": {Temperature: 1, TopP: 0.5, TopK: 2, MinP: 0.2},
}

func TestLogitsWithoutAChoiceAreAnError(t *testing.T) {
	for _, logits := range [][]float32{nil, {}, {nan}, {nothing, nan}, {nan, nan, nothing, nothing}} {
		for name, s := range someSettings {
			if _, err := New(s, Options{Logprobs: true, TopLogprobs: 3}).Next(logits); !errors.Is(err, ErrNoChoice) {
				t.Errorf("%v at %s: %v", logits, name, err)
			}
		}
	}
}

func TestExtremeLogitsAndSettingsChooseATokenThatIsThere(t *testing.T) {
	settings := []engine.Sampling{
		{Temperature: 1e-300, TopP: 0.9}, {Temperature: 1e300, TopP: 0.9}, {Temperature: math.Inf(1), TopP: 1},
		{Temperature: 1, TopP: math.SmallestNonzeroFloat64}, {Temperature: 1, TopP: 1 - 1e-16}, {Temperature: 1, TopP: math.NaN()},
		{Temperature: 1, TopP: -3}, {Temperature: 5e-324, TopP: 1}, {Temperature: 1, TopK: math.MaxInt}, {Temperature: 1, TopK: -1},
		{Temperature: 1, MinP: 1}, {Temperature: 1, MinP: 7}, {Temperature: 1, MinP: math.NaN()}, {Temperature: 1, MinP: 5e-324},
		{Temperature: 1e-300, MinP: 0.5}, {Temperature: 1e300, MinP: 0.5}, {Temperature: 1e300, TopK: 2}, {Temperature: 5e-324, TopK: 2},
		{RepetitionPenalty: 1e300}, {RepetitionPenalty: 5e-324}, {PresencePenalty: math.Inf(1)}, {FrequencyPenalty: math.NaN()},
	}
	rows := [][]float32{
		{math.MaxFloat32, -math.MaxFloat32, nan}, {nothing, 0, nan, nothing}, {0, 0, 0, 0},
		{-math.MaxFloat32, -math.MaxFloat32}, {nan, infinite, 3}, {1e-45, 0, -1e-45}, {infinite, infinite, infinite}, {0, -29, -40, -700},
	}
	for _, s := range settings {
		for _, row := range rows {
			got, err := New(s, Options{Logprobs: true, TopLogprobs: 2}).Next(row)
			if err != nil || int(got.Token) >= len(row) || row[got.Token] != row[got.Token] || row[got.Token] == nothing {
				t.Errorf("%v at %+v: got %v, %v", row, s, got, err)
			}
			for _, r := range append(got.Top, Ranked{Logprob: got.Logprob}) {
				if !(r.Logprob <= 0 && r.Logprob >= unlikely) {
					t.Errorf("%v at %+v: a log probability of %g", row, s, r.Logprob)
				}
			}
		}
	}
}

func TestAnInfiniteLogitWinsAtAnyTemperature(t *testing.T) {
	for name, setting := range someSettings {
		s := New(setting, Options{})
		for range 50 {
			got, err := s.Next([]float32{5, infinite, 5})
			if err != nil || got.Token != 1 {
				t.Fatalf("%s: got %v, %v", name, got, err)
			}
			s.Accept(got.Token)
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

func TestTheBestAreThoseThatSortingPutsFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, k := rapid.IntRange(1, 3000).Draw(t, "tokens"), rapid.IntRange(1, 600).Draw(t, "k")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		steps := rapid.SampledFrom([]int{2, 50, 1 << 20}).Draw(t, "different logits")
		rising := rapid.Bool().Draw(t, "rising") // each token beats the ones before
		row, want := make([]float32, n), []candidate{}
		for i := range row {
			row[i] = float32(r.IntN(steps))
			switch {
			case rising:
				row[i] = float32(i)
			case r.IntN(20) == 0:
				row[i] = []float32{nan, nothing, infinite}[r.IntN(3)]
			}
			if row[i] > nothing {
				want = append(want, candidate{token: engine.Token(i), logit: row[i]})
			}
		}
		slices.SortFunc(want, byLogit)
		if got := best(row, k, nil); !slices.Equal(got, want[:min(k, len(want))]) {
			t.Fatalf("got %v, want %v", got, want[:min(k, len(want))])
		}
	})
}

// draws returns the first n choices of a sampler over one row.
func draws(t testing.TB, s *Sampler, row []float32, n int) []engine.Token {
	t.Helper()
	var out []engine.Token
	for range n {
		c, err := s.Next(row)
		if err != nil {
			t.Fatal(err)
		}
		s.Accept(c.Token)
		out = append(out, c.Token)
	}
	return out
}

func TestEqualSeedsMakeEqualChoices(t *testing.T) {
	row := make([]float32, 1000)
	for name, s := range map[string]engine.Sampling{
		"all": {Temperature: 1}, "top_p": {Temperature: 1, TopP: 0.8}, "top_k": {Temperature: 1, TopK: 900}, "min_p": {Temperature: 1, MinP: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			seeded := func(seed uint64) []engine.Token {
				s.Seed = seed
				return draws(t, New(s, Options{}), row, 20)
			}
			if !slices.Equal(seeded(7), seeded(7)) {
				t.Error("equal seeds differ")
			}
			if slices.Equal(seeded(7), seeded(8)) {
				t.Error("other seeds choose alike")
			}
		})
	}
}

func TestAChoiceIsTheSameUntilItIsAccepted(t *testing.T) {
	s, row := New(engine.Sampling{Temperature: 1, Seed: 3}, Options{}), make([]float32, 1000)
	first, _ := s.Next(row)
	if again, _ := s.Next(row); again.Token != first.Token {
		t.Errorf("chose %d, then %d", first.Token, again.Token)
	}
}

func TestASamplerThatAcceptsAnOutputGoesOnAsTheFirst(t *testing.T) {
	setting := engine.Sampling{Temperature: 1, TopP: 0.99, Seed: 5, FrequencyPenalty: 1, RepetitionPenalty: 1.2}
	row := vocabulary(500)
	o := Options{Prompt: []engine.Token{1, 2, 3}}
	want := draws(t, New(setting, o), row, 40)
	for _, n := range []int{0, 1, 17, 39} {
		s := New(setting, o)
		for _, token := range want[:n] {
			s.Accept(token)
		}
		if got := draws(t, s, row, 40-n); !slices.Equal(got, want[n:]) {
			t.Errorf("after %d replayed tokens: %v, want %v", n, got, want[n:])
		}
	}
}

func TestTheLogitsAreNotChanged(t *testing.T) {
	row := vocabulary(500)
	was := slices.Clone(row)
	s := New(engine.Sampling{
		Temperature: 1, TopP: 0.9, TopK: 5, MinP: 0.1, PresencePenalty: 1, LogitBias: map[engine.Token]float32{1: 5, 2: -100, 3: 100},
	}, Options{Forbid: func(t engine.Token) bool { return t%2 == 0 }, Logprobs: true, TopLogprobs: 5, Constraint: even{}})
	for range 5 {
		if _, err := s.Next(row); err != nil && !errors.Is(err, ErrNoneAllowed) {
			t.Fatal(err)
		}
		s.Accept(7)
	}
	if !slices.Equal(row, was) {
		t.Error("they are")
	}
}

func TestLogprobsAreThoseOfTheLogitsAsGiven(t *testing.T) {
	row := []float32{2, nan, 1, 4, nothing, 4, -3, -200}
	total := math.Log(2*math.Exp(4) + math.Exp(2) + math.Exp(1) + math.Exp(-3) + math.Exp(-200))
	s := New(engine.Sampling{
		Temperature: 0.3, TopK: 1, RepetitionPenalty: 9, LogitBias: map[engine.Token]float32{3: -100, 5: -100},
	}, Options{Prompt: []engine.Token{2, 3}, Logprobs: true, TopLogprobs: 4})
	got, err := s.Next(row)
	if err != nil || got.Token != 0 || math.Abs(got.Logprob-(2-total)) > 1e-6 {
		t.Fatalf("got %v, %v, want token 0 at %g", got, err, 2-total)
	}
	want := []Ranked{{3, 4 - total}, {5, 4 - total}, {0, 2 - total}, {2, 1 - total}}
	if len(got.Top) != len(want) {
		t.Fatalf("top %v, want %v", got.Top, want)
	}
	for i, r := range got.Top {
		if r.Token != want[i].Token || math.Abs(r.Logprob-want[i].Logprob) > 1e-6 {
			t.Errorf("top %d is %v, want %v", i, r, want[i])
		}
	}
}

func TestLogprobsHoldWhatWasAskedFor(t *testing.T) {
	row := vocabulary(100)
	for _, c := range []struct {
		o    Options
		set  bool
		want int
	}{
		{Options{}, false, 0}, {Options{TopLogprobs: 5}, false, 0}, {Options{Logprobs: true}, true, 0},
		{Options{Logprobs: true, TopLogprobs: 5}, true, 5}, {Options{Logprobs: true, TopLogprobs: 50}, true, MaxTop},
		{Options{Logprobs: true, TopLogprobs: -5}, true, 0},
	} {
		got, err := New(engine.Sampling{}, c.o).Next(row)
		if err != nil || got.Logprob < 0 != c.set || len(got.Top) != c.want {
			t.Errorf("%+v: got %v, %v", c.o, got, err)
		}
	}
}
