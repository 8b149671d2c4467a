// Package sampling chooses the next token from a model's logits: greedily, or at random by temperature and top_p. It is
// pure: its randomness comes from a seed, and equal seeds and logits give equal choices. What ends a request is not its
// concern.
package sampling

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// ErrNoChoice means that every logit is NaN or -Inf: the model is broken.
var ErrNoChoice = errors.New("the model gave no token a finite logit")

const (
	// stream is the second half of the generator's state: any fixed number.
	stream = 0x9e3779b97f4a7c15
	// floor is the logarithm of a weight, relative to the best token's, that counts as nothing: of 2^18 such tokens the
	// sum is below 3e-8.
	floor = -30
	// The histogram of logarithms of weights: bins cells for each unit down to floor.
	bins  = 16
	cells = -floor*bins + 1
)

// Sampler chooses the tokens of one request. It isn't safe for use by several goroutines. After its first choice it
// allocates nothing as long as the size of the vocabulary stays.
type Sampler struct {
	temperature float64
	topP        float64
	random      *rand.Rand
	constraint  Constraint

	weights []float32      // of the tokens, relative to the best one
	mass    [cells]float64 // sum of the weights by distance to the best logit
	border  []candidate
	inside  []candidate
}

// Options say what a sampler does besides engine.Sampling.
type Options struct {
	// Prompt is what the repetition penalty counts as seen. It isn't kept.
	Prompt []engine.Token
	// Logprobs asks for Choice.Logprob, TopLogprobs for so many Choice.Top besides.
	Logprobs    bool
	TopLogprobs int
	// Forbid says which tokens may not be chosen now, such as those that would end the output too early. nil: none.
	Forbid func(engine.Token) bool
	// Constraint says which tokens may follow. nil: all.
	Constraint Constraint
}

// Constraint is a language that the output must be in.
type Constraint interface {
	// Allows reports whether t may follow what was accepted.
	Allows(t engine.Token) bool
	// Accept takes the next token of the output.
	Accept(t engine.Token)
}

// Choice is the token that comes next.
type Choice struct {
	Token engine.Token
	// Logprob is the natural logarithm of the token's probability by the logits as they were given; 0 unless asked for.
	Logprob float64
	// Top holds the most probable tokens, best first, where asked for. It is valid until the next call.
	Top []Ranked
}

// Ranked is a token with the natural logarithm of its probability.
type Ranked struct {
	Token   engine.Token
	Logprob float64
}

// candidate is a token that may be chosen.
type candidate struct {
	token  engine.Token
	logit  float32
	weight float32
}

// New returns a sampler. A temperature that isn't above 0 is greedy; a TopP outside (0, 1) keeps every token.
func New(s engine.Sampling, o Options) *Sampler {
	p := s.TopP
	if !(p > 0 && p < 1) {
		p = 1
	}
	return &Sampler{temperature: s.Temperature, topP: p, random: rand.New(rand.NewPCG(s.Seed, stream)), constraint: o.Constraint}
}

// Next returns the next token. logits has an entry for each token of the vocabulary and isn't kept. NaN counts as -Inf; if
// there is +Inf it wins. Of equal logits the lowest token is the first.
func (s *Sampler) Next(logits []float32) (Choice, error) {
	t, err := s.token(logits)
	return Choice{Token: t}, err
}

// Accept takes t as the next token of the output. It draws nothing at random, so tokens can be replayed.
func (s *Sampler) Accept(t engine.Token) {
	if s.constraint != nil {
		s.constraint.Accept(t)
	}
}

func (s *Sampler) token(logits []float32) (engine.Token, error) {
	best := argmax(logits)
	if best < 0 {
		return 0, ErrNoChoice
	}
	if !(s.temperature > 0) || math.IsInf(float64(logits[best]), 1) {
		return engine.Token(best), nil
	}
	if s.topP == 1 {
		return s.any(logits, logits[best]), nil
	}
	return s.nucleus(logits, logits[best]), nil
}

// scale returns 1/temperature, finite so that the best token's distance of 0 stays 0.
func (s *Sampler) scale() float64 { return min(1/s.temperature, math.MaxFloat64) }

// argmax returns the index of the first greatest logit, or -1 where all are NaN or -Inf.
func argmax(logits []float32) int {
	best, at := float32(math.Inf(-1)), -1
	for i, l := range logits {
		if l > best { // false for NaN
			best, at = l, i
		}
	}
	return at
}

// any chooses among all tokens.
func (s *Sampler) any(logits []float32, top float32) engine.Token {
	s.weights = slices.Grow(s.weights[:0], len(logits))[:len(logits)]
	scale, total := s.scale(), 0.0
	for i, l := range logits {
		w, _, _ := weight(float64(top-l) * scale)
		s.weights[i] = float32(w)
		total += w
	}
	left, last := s.random.Float64()*total, 0
	for i, w := range s.weights {
		if w > 0 {
			if left -= float64(w); left < 0 {
				return engine.Token(i)
			}
			last = i
		}
	}
	return engine.Token(last) // the rounding of the sums
}

// nucleus chooses among the smallest set of best tokens whose weights reach topP of all. A histogram by distance to the
// best logit finds the cell in which the set ends; only the tokens of that cell are sorted.
func (s *Sampler) nucleus(logits []float32, top float32) engine.Token {
	scale := s.scale()
	clear(s.mass[:])
	total := 0.0
	for _, l := range logits {
		if w, cell, ok := weight(float64(top-l) * scale); ok {
			s.mass[cell] += w
			total += w
		}
	}
	end, sum := 0, 0.0
	for end = range s.mass {
		if sum+s.mass[end] >= s.topP*total {
			break
		}
		sum += s.mass[end]
	}
	s.inside, s.border = s.inside[:0], s.border[:0]
	limit := float64(end+1) / bins
	for i, l := range logits {
		d := float64(top-l) * scale
		if !(d <= limit) {
			continue
		}
		switch w, cell, ok := weight(d); {
		case ok && cell < end:
			s.inside = append(s.inside, candidate{engine.Token(i), l, float32(w)})
		case ok && cell == end:
			s.border = append(s.border, candidate{engine.Token(i), l, float32(w)})
		}
	}
	slices.SortFunc(s.border, byLogit)
	for _, c := range s.border {
		s.inside = append(s.inside, c)
		if sum += float64(c.weight); sum >= s.topP*total {
			break
		}
	}
	return s.choose(sum)
}

// choose takes one of s.inside, whose weights are total together.
func (s *Sampler) choose(total float64) engine.Token {
	left := s.random.Float64() * total
	for _, c := range s.inside {
		if left -= float64(c.weight); left < 0 {
			return c.token
		}
	}
	return s.inside[len(s.inside)-1].token // the rounding of the sums
}

func byLogit(a, b candidate) int {
	switch {
	case a.logit > b.logit:
		return -1
	case a.logit < b.logit:
		return 1
	}
	return int(a.token - b.token)
}

// powers[i] is e^(-i/bins).
var powers = func() (p [cells]float64) {
	for i := range p {
		p[i] = math.Exp(-float64(i) / bins)
	}
	return p
}()

// weight returns e^-d and the cell of d, for the distance d in [0, -floor] of a logit to the best one over the temperature;
// ok is false for more and for NaN. The relative error is below 1e-8: the cell's power is looked up, and the rest of at
// most 1/bins goes through a Taylor polynomial. This runs once for each token of the vocabulary, and math.Exp takes
// several times as long.
func weight(d float64) (w float64, cell int, ok bool) {
	if !(d <= -floor) {
		return 0, 0, false
	}
	cell = int(d * bins)
	r := float64(cell)*(1./bins) - d
	return powers[cell] * (1 + r*(1+r*(1./2+r*(1./6+r*(1./24))))), cell, true
}
