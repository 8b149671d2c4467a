package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// pairs is how often the two sides take turns; the ratio is the median of the pairs' ratios.
const pairs = 15

// large is the vocabulary of Qwen's models, three times the demo model's.
const large = 151936

// contest is one setting on both sides.
type contest struct {
	name  string
	ours  engine.Sampling
	chain func(m *model) []llama.Sampler
	goal  bool // ours is to take no longer, and is compared with a large vocabulary too
	json  bool // the output is one JSON object
}

// some are the rows of a contest. llama.cpp's grammar takes so long that few do.
func (c contest) some(rows [][]float32) [][]float32 {
	if c.json {
		return rows[:10]
	}
	return rows
}

// The chains are in llama.cpp's own order: filters, then temperature, then the draw.
var contests = []contest{
	{name: "greedy", goal: true, chain: func(*model) []llama.Sampler { return []llama.Sampler{llama.SamplerInitGreedy()} }},
	{name: "top_k 40, temperature 0.8", goal: true, ours: engine.Sampling{TopK: 40, Temperature: 0.8},
		chain: func(*model) []llama.Sampler { return drawn(llama.SamplerInitTopK(40)) }},
	{name: "top_p 0.95, temperature 0.8", goal: true, ours: engine.Sampling{TopP: 0.95, Temperature: 0.8},
		chain: func(*model) []llama.Sampler { return drawn(llama.SamplerInitTopP(0.95, 1)) }},
	{name: "min_p 0.05, temperature 0.8", goal: true, ours: engine.Sampling{MinP: 0.05, Temperature: 0.8},
		chain: func(*model) []llama.Sampler { return drawn(llama.SamplerInitMinP(0.05, 1)) }},
	{name: "top_k 40, top_p 0.95, min_p 0.05, temperature 0.8", ours: engine.Sampling{TopK: 40, TopP: 0.95, MinP: 0.05, Temperature: 0.8},
		chain: func(*model) []llama.Sampler {
			return drawn(llama.SamplerInitTopK(40), llama.SamplerInitTopP(0.95, 1), llama.SamplerInitMinP(0.05, 1))
		}},
	{name: "temperature 0.8", ours: engine.Sampling{Temperature: 0.8}, chain: func(*model) []llama.Sampler { return drawn() }},
	{name: "all penalties, top_k 40, temperature 0.8",
		ours: engine.Sampling{PresencePenalty: 0.5, FrequencyPenalty: 0.5, RepetitionPenalty: 1.1, TopK: 40, Temperature: 0.8},
		chain: func(m *model) []llama.Sampler {
			return drawn(llama.SamplerInitPenalties(int32(m.size), int32(len(m.rows)), 1.1, 0.5, 0.5), llama.SamplerInitTopK(40))
		}},
	{name: "one JSON object, greedy", json: true, chain: func(m *model) []llama.Sampler {
		return []llama.Sampler{llama.SamplerInitGrammar(m.vocab, gbnf, "root"), llama.SamplerInitGreedy()}
	}},
}

func drawn(filters ...llama.Sampler) []llama.Sampler {
	return append(filters, llama.SamplerInitTemp(0.8), llama.SamplerInitDist(1))
}

// measure runs all contests on the demo model's vocabulary, and those with a goal on a large one.
func (m *model) measure(out io.Writer) (figures []bench.Figure, err error) {
	if err := m.agree(); err != nil {
		return nil, err
	}
	for _, size := range []int{m.size, large} {
		for _, c := range contests {
			var f []bench.Figure
			switch name := fmt.Sprintf("%s, %d tokens", c.name, size); {
			case size == m.size:
				f, err = m.turns(name, c, m.own, out)
			case c.goal:
				f, err = m.turns(name, c, m.widened, out)
			}
			if err != nil {
				return nil, err
			}
			figures = append(figures, f...)
		}
	}
	return figures, nil
}

// agree compares what both sides choose where nothing is left to chance.
func (m *model) agree() error {
	chain := m.chain(contests[0])
	defer llama.SamplerFree(chain)
	for i, row := range m.rows {
		chosen, err := sampling.New(contests[0].ours, sampling.Options{}).Next(row)
		if err != nil {
			return err
		}
		if theirs := llama.SamplerSample(chain, m.context, int32(i)); int32(theirs) != int32(chosen.Token) {
			return fmt.Errorf("greedy at position %d: we choose %d, llama.cpp %d", i, chosen.Token, theirs)
		}
	}
	return nil
}

// turns lets both sides choose at all positions in turns. Sides returns what times one round of each, in nanoseconds.
func (m *model) turns(name string, c contest, sides func(contest) (ours, theirs func() (int64, error)), out io.Writer) ([]bench.Figure, error) {
	ours, theirs := sides(c)
	var a, b, ratios []float64
	for i := range pairs + 1 {
		x, err := ours()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		y, err := theirs()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if i == 0 {
			continue // everything is allocated by then
		}
		n := float64(len(c.some(m.rows))) * 1000
		a, b, ratios = append(a, float64(x)/n), append(b, float64(y)/n), append(ratios, float64(x)/float64(y))
	}
	ratio := bench.Plain(name+": ours / llama.cpp", median(ratios), "×")
	if c.goal {
		ratio = bench.AtMost(name+": ours / llama.cpp", median(ratios), "×", 1)
	}
	fmt.Fprintf(out, "%-68s %7.1f µs, llama.cpp %8.1f µs, ratio %.3f\n", name, median(a), median(b), median(ratios))
	return []bench.Figure{ratio, bench.Plain(name+": ours", median(a), "µs"), bench.Plain(name+": llama.cpp", median(b), "µs")}, nil
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// own is a round on the model's own logits. llama.cpp takes them from its context, as its programs do.
func (m *model) own(c contest) (ours, theirs func() (int64, error)) {
	ours = func() (int64, error) {
		o := sampling.Options{}
		if c.json {
			o.Constraint = m.words.JSONObject()
		}
		s := sampling.New(c.ours, o)
		began := cpu()
		err := choose(s, c.some(m.rows))
		return cpu() - began, err
	}
	theirs = func() (int64, error) {
		chain := m.chain(c)
		defer llama.SamplerFree(chain)
		began := cpu()
		for i := range c.some(m.rows) {
			llama.SamplerSample(chain, m.context, int32(i)) // which accepts the token too
		}
		return cpu() - began, nil
	}
	return ours, theirs
}

func choose(s *sampling.Sampler, rows [][]float32) error {
	for _, row := range rows {
		chosen, err := s.Next(row)
		if err != nil {
			return err
		}
		s.Accept(chosen.Token)
	}
	return nil
}

func (m *model) chain(c contest) llama.Sampler {
	chain := llama.SamplerChainInit(llama.SamplerChainDefaultParams())
	for _, s := range c.chain(m) {
		llama.SamplerChainAdd(chain, s)
	}
	return chain
}

// widened is a round on logits for a large vocabulary: the model's own, and again lowered by 10. The library has no such
// logits of its own, so its list of candidates is filled here, which llama_sampler_sample does otherwise.
func (m *model) widened(c contest) (ours, theirs func() (int64, error)) {
	s, chain := sampling.New(c.ours, sampling.Options{}), m.chain(c)
	ours = func() (int64, error) {
		began := cpu()
		err := choose(s, m.wide)
		return cpu() - began, err
	}
	data := make([]llama.TokenData, large)
	theirs = func() (int64, error) {
		began := cpu()
		for _, row := range m.wide {
			for i, l := range row {
				data[i] = llama.TokenData{Id: llama.Token(i), Logit: l}
			}
			list := llama.TokenDataArray{Data: &data[0], Size: large, Selected: -1}
			llama.SamplerApply(chain, &list)
			if list.Selected < 0 {
				return 0, errors.New("llama.cpp chose nothing")
			}
		}
		return cpu() - began, nil
	}
	return ours, theirs
}

// widen returns rows for a large vocabulary.
func widen(rows [][]float32) [][]float32 {
	out := make([][]float32, len(rows))
	for i, row := range rows {
		out[i] = make([]float32, large)
		for j := range out[i] {
			out[i][j] = row[j%len(row)] - 10*float32(min(j/len(row), 1))
		}
	}
	return out
}
