// Package sampling chooses the next token from a model's logits. It is pure: the choice depends on the logits, the
// settings, the seed and the tokens accepted before, and on nothing else. What ends an output is not its concern, nor is
// which outputs are grammatical: a Constraint says that.
//
// What acts on the logits does so in vLLM's order: tokens that Forbid or Constraint rule out count as -Inf; then the bias,
// the penalties (repetition, frequency, presence), the temperature, min_p, top_k and top_p. So a filter keeps the best of
// the tokens that are allowed, and top_p is a share of what the filters before it left. llama.cpp's chain differs: there the
// filters are top_k, top_p and min_p, and the temperature comes last.
package sampling

import (
	"errors"
	"math"
	"math/rand/v2"

	"github.com/ringfleet/ringfleet/worker/engine"
)

var (
	// ErrNoChoice means that every logit is NaN or -Inf: the model is broken.
	ErrNoChoice = errors.New("the model gave no token a finite logit")
	// ErrNoneAllowed means that every token that has a logit is ruled out.
	ErrNoneAllowed = errors.New("no token may be chosen")
)

// MaxTop is the most that Options.TopLogprobs has an effect for.
const MaxTop = 20

// Options say what a sampler does besides engine.Sampling.
type Options struct {
	// Prompt is what the repetition penalty counts as seen. It must not change before the first Next or Accept, and isn't
	// kept after that.
	Prompt []engine.Token
	// Logprobs asks for Choice.Logprob, and TopLogprobs, at most MaxTop, for so many Choice.Top besides.
	Logprobs    bool
	TopLogprobs int
	// Forbid says which tokens may not be chosen now, such as those that would end the output too early. nil: none. It yields
	// where the Constraint allows no other token.
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

// Masker is a Constraint that rules out many tokens at once faster than one by one.
type Masker interface {
	// Mask sets the entry of each token that Allows refuses to -Inf.
	Mask(row []float32)
}

// Choice is the token that comes next.
type Choice struct {
	Token engine.Token
	// Logprob is the natural logarithm of the token's probability by the logits as they were given, before bias, penalties,
	// temperature and filters; 0 unless asked for.
	Logprob float64
	// Top holds the most probable tokens by the same measure, best first, where asked for. The next call overwrites it.
	Top []Ranked
}

// Ranked is a token with the natural logarithm of its probability.
type Ranked struct {
	Token   engine.Token
	Logprob float64
}

// Sampler chooses the tokens of one output. It isn't safe for use by several goroutines. Next allocates nothing after its
// first call as long as the size of the vocabulary stays.
type Sampler struct {
	scale float64 // 1/temperature, finite; 0 is greedy
	topP  float64 // 1 is off
	topK  int     // 0 is off
	limit float64 // most distance to the best logit, over the temperature: -ln(min_p), or floor

	seed     uint64
	accepted uint64
	random   rand.PCG

	edits      edits
	forbid     func(engine.Token) bool
	constraint Constraint

	logprobs bool
	top      int
	ranked   []Ranked

	allowed []float32      // the logits of allowed tokens, -Inf for the others
	mass    [cells]float64 // sum of weights by distance to the best logit
	kept    []candidate
	border  []candidate
}

// New returns a sampler. A temperature that isn't above 0 is greedy; a TopP outside (0, 1), a TopK below 1 and a MinP that
// isn't above 0 keep every token.
func New(s engine.Sampling, o Options) *Sampler {
	out := &Sampler{
		topP: 1, topK: max(s.TopK, 0), limit: -floor, seed: s.Seed,
		edits: newEdits(s, o.Prompt), forbid: o.Forbid, constraint: o.Constraint,
		logprobs: o.Logprobs,
	}
	if s.Temperature > 0 {
		out.scale = min(1/s.Temperature, math.MaxFloat64) // finite so that the best token's distance of 0 stays 0
	}
	if s.TopP > 0 && s.TopP < 1 {
		out.topP = s.TopP
	}
	if s.MinP > 0 {
		out.limit = min(-math.Log(min(s.MinP, 1)), -floor)
	}
	if o.Logprobs {
		out.top = min(max(o.TopLogprobs, 0), MaxTop)
	}
	return out
}

// Next returns the next token. logits has an entry for each token of the vocabulary and is neither changed nor kept. NaN
// counts as -Inf; if there is +Inf it wins. Of equal logits the lowest token is the first. Next draws at random by the seed
// and the number of accepted tokens: asked twice without Accept it answers the same.
func (s *Sampler) Next(logits []float32) (Choice, error) {
	s.random.Seed(s.seed, stream+s.accepted)
	t, err := s.choose(logits)
	if err != nil {
		return Choice{}, err
	}
	c := Choice{Token: t}
	if s.logprobs {
		s.probabilities(logits, &c)
	}
	return c, nil
}

// Accept takes t as the next token of the output, whoever chose it. It draws nothing at random: a new sampler that accepts
// the tokens of an output goes on as the first one would have.
func (s *Sampler) Accept(t engine.Token) {
	s.accepted++
	s.edits.accept(t)
	if s.constraint != nil {
		s.constraint.Accept(t)
	}
}

// choose returns the next token.
func (s *Sampler) choose(logits []float32) (engine.Token, error) {
	if only, ok := s.edits.only(logits); ok {
		if t, err := s.legal(only, s.forbid); err == nil {
			return t, nil
		}
	}
	row := s.edits.apply(logits)
	t, err := s.legal(row, s.forbid)
	if err != nil && s.forbid != nil && s.constraint != nil {
		t, err = s.legal(row, nil)
	}
	if err != nil && argmax(logits) >= 0 {
		err = ErrNoneAllowed
	}
	return t, err
}

// legal draws from the allowed tokens of a row. It asks about the tokens that decide the draw first, and about all only
// where those aren't enough: with a set that depends on the probability of all allowed tokens, or when one of the first
// is ruled out. A draw from all tokens that is allowed, or else one from the allowed tokens, has the distribution of the
// latter: q(x) + (1-Q)·q(x)/Q = q(x)/Q, where Q is the sum of q over the allowed tokens.
func (s *Sampler) legal(row []float32, forbid func(engine.Token) bool) (engine.Token, error) {
	if forbid == nil && s.constraint == nil {
		return s.draw(row)
	}
	if s.scale == 0 || s.topP == 1 || s.topK > 0 && s.topK < len(row) {
		t, err := s.draw(row)
		if err != nil || s.decided(t, forbid) {
			return t, err
		}
	}
	s.allowed = sized(s.allowed, len(row))
	copy(s.allowed, row)
	s.mask(s.allowed, forbid)
	return s.draw(s.allowed)
}

// decided reports whether t, drawn from all tokens, can stand as one drawn from the allowed tokens. s.kept holds the
// tokens that decide: the best k with top_k, or else the best one where min_p measures by it.
func (s *Sampler) decided(t engine.Token, forbid func(engine.Token) bool) bool {
	for _, c := range s.kept {
		if !s.allows(c.token, forbid) {
			return false
		}
	}
	return s.allows(t, forbid)
}

func (s *Sampler) allows(t engine.Token, forbid func(engine.Token) bool) bool {
	return (forbid == nil || !forbid(t)) && (s.constraint == nil || s.constraint.Allows(t))
}

// mask sets the entry of each token that isn't allowed to -Inf.
func (s *Sampler) mask(row []float32, forbid func(engine.Token) bool) {
	if m, ok := s.constraint.(Masker); ok {
		m.Mask(row)
		if forbid == nil {
			return
		}
	}
	for i, l := range row {
		if l > nothing && !s.allows(engine.Token(i), forbid) {
			row[i] = nothing
		}
	}
}

// sized returns a slice of n entries, s itself where it is large enough.
func sized(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
}
