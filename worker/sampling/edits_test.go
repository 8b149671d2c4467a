package sampling

import (
	"errors"
	"slices"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

func TestEditsChangeTheLogitsAsTheirFormulasSay(t *testing.T) {
	row := []float32{2, -2, 2, -2, 2, 0}
	cases := map[string]struct {
		s              engine.Sampling
		prompt, output []engine.Token
		want           []float32
	}{
		"none": {engine.Sampling{RepetitionPenalty: 1}, []engine.Token{0}, []engine.Token{1}, row},
		"repetition divides positive and multiplies negative logits of prompt and output": {
			engine.Sampling{RepetitionPenalty: 2}, []engine.Token{0, 1, 1}, []engine.Token{2, 2, 3}, []float32{1, -4, 1, -4, 2, 0}},
		"repetition below 1 rewards": {
			engine.Sampling{RepetitionPenalty: 0.5}, []engine.Token{0, 1}, nil, []float32{4, -1, 2, -2, 2, 0}},
		"presence is once for what the output has": {
			engine.Sampling{PresencePenalty: 0.5}, []engine.Token{0, 1}, []engine.Token{2, 2, 3}, []float32{2, -2, 1.5, -2.5, 2, 0}},
		"frequency is for each occurrence in the output": {
			engine.Sampling{FrequencyPenalty: 0.5}, []engine.Token{0, 1}, []engine.Token{2, 2, 3}, []float32{2, -2, 1, -2.5, 2, 0}},
		"negative ones reward": {
			engine.Sampling{FrequencyPenalty: -1, PresencePenalty: -0.5}, nil, []engine.Token{2, 2}, []float32{2, -2, 4.5, -2, 2, 0}},
		"bias, then repetition, then the others": {
			engine.Sampling{LogitBias: map[engine.Token]float32{0: 2, 5: -3}, RepetitionPenalty: 2, PresencePenalty: 0.5, FrequencyPenalty: 0.25},
			[]engine.Token{5}, []engine.Token{0, 0}, []float32{1, -2, 2, -2, 2, -6}},
		"a bias of -100 forbids": {
			engine.Sampling{LogitBias: map[engine.Token]float32{0: -100, 1: -99}}, nil, nil, []float32{nothing, -101, 2, -2, 2, 0}},
		"tokens outside of the vocabulary are passed over": {
			engine.Sampling{LogitBias: map[engine.Token]float32{-1: 5, 6: 5}, RepetitionPenalty: 2}, []engine.Token{-7, 1 << 30}, nil, row},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := newEdits(c.s, c.prompt)
			for _, token := range c.output {
				e.accept(token)
			}
			got := e.apply(row)
			for i := range got {
				if got[i] != c.want[i] {
					t.Fatalf("got %v, want %v", got, c.want)
				}
			}
		})
	}
}

func TestAForcedTokenIsChosenWhateverTheLogits(t *testing.T) {
	row := []float32{9, 1, nothing, 500}
	biased := func(tokens ...engine.Token) map[engine.Token]float32 {
		m := map[engine.Token]float32{}
		for _, t := range tokens {
			m[t] = 100
		}
		return m
	}
	cases := map[string]struct {
		forced map[engine.Token]float32
		forbid engine.Token
		want   engine.Token
	}{
		"one":                            {biased(1), -1, 1},
		"the best of two":                {biased(0, 1), -1, 0},
		"one that may not be":            {biased(1), 1, 3},
		"the other where one may not be": {biased(0, 1), 0, 1},
		"one without a logit":            {biased(2), -1, 3},
		"one outside of the vocabulary":  {biased(-1, 4), -1, 3},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, s := range []engine.Sampling{{}, {Temperature: 1, TopK: 1}, {Temperature: 0.001}, {PresencePenalty: 2}} {
				s.LogitBias = c.forced
				o := Options{Forbid: func(t engine.Token) bool { return t == c.forbid }}
				if got, err := New(s, o).Next(row); err != nil || got.Token != c.want {
					t.Errorf("%+v: got %v, %v, want %d", s, got, err, c.want)
				}
			}
		})
	}
}

func TestWhereNothingIsAllowedTheErrorSaysSo(t *testing.T) {
	row := []float32{1, 2}
	for name, s := range someSettings {
		if _, err := New(s, Options{Forbid: func(engine.Token) bool { return true }}).Next(row); !errors.Is(err, ErrNoneAllowed) {
			t.Errorf("%s, all forbidden: %v", name, err)
		}
		s.LogitBias = map[engine.Token]float32{0: -100, 1: -100}
		if _, err := New(s, Options{}).Next(row); !errors.Is(err, ErrNoneAllowed) {
			t.Errorf("%s, all ruled out by bias: %v", name, err)
		}
		s.LogitBias = map[engine.Token]float32{0: -100}
		if _, err := New(s, Options{Constraint: even{}}).Next(row); !errors.Is(err, ErrNoneAllowed) {
			t.Errorf("%s, bias and constraint together: %v", name, err)
		}
	}
}

func TestForbidYieldsWhereTheConstraintAllowsNothingElse(t *testing.T) {
	row := []float32{1, 2, 3, 4}
	for name, s := range someSettings {
		for _, c := range []struct{ forbidden, want []engine.Token }{
			{[]engine.Token{0, 2}, []engine.Token{0, 2}}, {[]engine.Token{0, 1, 2, 3}, []engine.Token{0, 2}}, {[]engine.Token{2}, []engine.Token{0}},
		} {
			o := Options{Constraint: even{}, Forbid: func(t engine.Token) bool { return slices.Contains(c.forbidden, t) }}
			if got, err := New(s, o).Next(row); err != nil || !slices.Contains(c.want, got.Token) {
				t.Errorf("%s, %v forbidden: got %v, %v, want one of %v", name, c.forbidden, got, err, c.want)
			}
		}
	}
}
