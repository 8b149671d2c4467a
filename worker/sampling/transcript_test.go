package sampling

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// TestTranscripts runs testdata/choices. Rewrite it with -rewrite.
//
//	logits WORD=LOGIT …      the vocabulary
//	choose [SETTING=VALUE …] what 1000 seeds choose
//
// Settings are temperature, top_p, top_k, min_p, presence, frequency, repetition; bias=(WORD:BIAS, …); prompt, output,
// allowed=(WORD, …); and logprobs=N, after which one choice's log probabilities follow.
func TestTranscripts(t *testing.T) {
	x := &transcript{}
	datadriven.RunTest(t, "testdata/choices", x.run)
}

type transcript struct {
	words []string
	row   []float32
}

func (x *transcript) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "logits":
		x.words, x.row = nil, nil
		for _, a := range d.CmdArgs {
			x.words, x.row = append(x.words, a.Key), append(x.row, float32(number(t, a.Vals[0])))
		}
		return ""
	case "choose":
		return x.choose(t, d)
	}
	t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	return ""
}

func (x *transcript) choose(t *testing.T, d *datadriven.TestData) string {
	s, o, output := x.settings(t, d)
	counts := make([]int, len(x.words))
	var last Choice
	for seed := range uint64(1000) {
		s.Seed = seed
		sampler := New(s, o)
		for _, token := range output {
			sampler.Accept(token)
		}
		var err error
		if last, err = sampler.Next(x.row); err != nil {
			return err.Error()
		}
		counts[last.Token]++
	}
	var chosen []string
	for i, n := range counts {
		if n > 0 {
			chosen = append(chosen, fmt.Sprintf("%s %d", x.words[i], n))
		}
	}
	var b strings.Builder
	b.WriteString(strings.Join(chosen, ", "))
	if o.Logprobs {
		fmt.Fprintf(&b, "\n%s is at %.3f; the best:", x.words[last.Token], last.Logprob)
		for _, r := range last.Top {
			fmt.Fprintf(&b, " %s %.3f", x.words[r.Token], r.Logprob)
		}
	}
	return b.String()
}

func (x *transcript) settings(t *testing.T, d *datadriven.TestData) (s engine.Sampling, o Options, output []engine.Token) {
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "temperature":
			s.Temperature = number(t, a.Vals[0])
		case "top_p":
			s.TopP = number(t, a.Vals[0])
		case "top_k":
			s.TopK = int(number(t, a.Vals[0]))
		case "min_p":
			s.MinP = number(t, a.Vals[0])
		case "presence":
			s.PresencePenalty = number(t, a.Vals[0])
		case "frequency":
			s.FrequencyPenalty = number(t, a.Vals[0])
		case "repetition":
			s.RepetitionPenalty = number(t, a.Vals[0])
		case "bias":
			s.LogitBias = map[engine.Token]float32{}
			for _, v := range a.Vals {
				word, bias, _ := strings.Cut(v, ":")
				s.LogitBias[x.token(word)] = float32(number(t, bias))
			}
		case "prompt":
			o.Prompt = x.tokens(a.Vals)
		case "output":
			output = x.tokens(a.Vals)
		case "allowed":
			set := x.tokens(a.Vals)
			o.Constraint = one(func(t engine.Token) bool { return slices.Contains(set, t) })
		case "logprobs":
			o.Logprobs, o.TopLogprobs = true, int(number(t, a.Vals[0]))
		default:
			t.Fatalf("%s: unknown setting %s", d.Pos, a.Key)
		}
	}
	return s, o, output
}

func (x *transcript) token(word string) engine.Token {
	return engine.Token(slices.Index(x.words, word))
}

func (x *transcript) tokens(words []string) (out []engine.Token) {
	for _, w := range words {
		out = append(out, x.token(w))
	}
	return out
}

func number(t *testing.T, s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
