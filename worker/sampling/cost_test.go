package sampling

import (
	"math/rand/v2"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

func TestAConstraintIsAskedAboutNoMoreTokensThanDecide(t *testing.T) {
	row := vocabulary(10000)
	order := best(row, 100, nil)
	cases := map[string]struct {
		s       engine.Sampling
		refused engine.Token
		most    int
	}{
		"greedy, the best is allowed":                {engine.Sampling{}, -1, 1},
		"greedy, the best is not":                    {engine.Sampling{}, order[0].token, 1 + len(row)},
		"all, the drawn one is allowed":              {engine.Sampling{Temperature: 1}, -1, 1},
		"min_p, the best and the drawn one":          {engine.Sampling{Temperature: 1, MinP: 0.1}, -1, 2},
		"top_k, the k best":                          {engine.Sampling{Temperature: 1, TopK: 40}, -1, 41},
		"top_k, one beyond is refused":               {engine.Sampling{Temperature: 1, TopK: 40}, order[40].token, 41},
		"top_k and top_p":                            {engine.Sampling{Temperature: 1, TopK: 40, TopP: 0.9}, -1, 41},
		"top_p alone needs the mass of all that are": {engine.Sampling{Temperature: 1, TopP: 0.9}, -1, len(row)},
		"top_k, of which min_p leaves fewer":         {engine.Sampling{Temperature: 1, TopK: 40, MinP: 0.9}, order[1].token, 2},
		"greedy heeds no filter":                     {engine.Sampling{TopP: 0.3, TopK: 7}, -1, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			asked := 0
			s := New(c.s, Options{Constraint: one(func(t engine.Token) bool { asked++; return t != c.refused })})
			if _, err := s.Next(row); err != nil {
				t.Fatal(err)
			}
			if asked > c.most || asked == 0 {
				t.Errorf("asked about %d tokens, expected at most %d", asked, c.most)
			}
		})
	}
}

// costs are the settings whose cost matters.
var costs = map[string]struct {
	s engine.Sampling
	o Options
}{
	"greedy":      {},
	"temperature": {s: engine.Sampling{Temperature: 1}},
	"top_p=0.9":   {s: engine.Sampling{Temperature: 1, TopP: 0.9}},
	"hot":         {s: engine.Sampling{Temperature: 2, TopP: 0.99}},
	"top_k=40":    {s: engine.Sampling{Temperature: 0.8, TopK: 40}},
	"min_p=0.05":  {s: engine.Sampling{Temperature: 0.8, MinP: 0.05}},
	"penalties":   {s: engine.Sampling{PresencePenalty: 1, FrequencyPenalty: 0.5, RepetitionPenalty: 1.1}, o: Options{Prompt: tokens(2000)}},
	"bias":        {s: engine.Sampling{LogitBias: map[engine.Token]float32{1: 3, 2: -100, 3: 100}}},
	"logprobs=5":  {o: Options{Logprobs: true, TopLogprobs: 5}},
	"constrained": {s: engine.Sampling{Temperature: 1, TopP: 0.9}, o: Options{Constraint: even{}}},
}

func tokens(n int) []engine.Token {
	out := make([]engine.Token, n)
	for i := range out {
		out[i] = engine.Token(i * 7)
	}
	return out
}

func TestChoicesAllocateNothingAfterTheFirst(t *testing.T) {
	row := vocabulary(49152)
	for name, c := range costs {
		s := New(c.s, c.o)
		once := func() {
			chosen, err := s.Next(row)
			if err != nil {
				t.Fatal(err)
			}
			s.Accept(chosen.Token % 4)
		}
		for range 4 { // each of four tokens is seen
			once()
		}
		if n := testing.AllocsPerRun(20, once); n != 0 {
			t.Errorf("%s: %g allocations a choice", name, n)
		}
	}
}

func TestASamplerThatWaitsHoldsNothingOfItsPrompt(t *testing.T) {
	prompt, with := tokens(100_000), engine.Sampling{RepetitionPenalty: 1.1}
	if n := testing.AllocsPerRun(10, func() { New(with, Options{Prompt: prompt}) }); n > 4 {
		t.Errorf("%g allocations", n)
	}
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
	for size, n := range map[string]int{"49k": 49152, "152k": 151936} {
		row := vocabulary(n)
		for name, c := range costs {
			b.Run(name+"/"+size, func(b *testing.B) {
				s := New(c.s, c.o)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.Next(row); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
