package openai

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// unnamed is a token whose id the server does not tell.
const unnamed engine.Token = -1

// wireLogprobs are log probabilities as chats have them, in Content, or as text completions do.
type wireLogprobs struct {
	Content []wireLogprob `json:"content"`

	Tokens   []string             `json:"tokens"`
	Logprobs []*float64           `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"`
}

type wireLogprob struct {
	ID      *engine.Token `json:"id"` // llama-server's
	Token   string        `json:"token"`
	Bytes   []int         `json:"bytes"`
	Logprob *float64      `json:"logprob"`
	Top     []wireLogprob `json:"top_logprobs"`
}

// list returns them in our form. Tokens are those of the chunk where the server names them elsewhere.
func (w *wireLogprobs) list(tokens []engine.Token) []engine.Logprob {
	var out []engine.Logprob
	for _, c := range w.Content {
		l := c.logprob()
		for _, t := range c.Top {
			l.Top = append(l.Top, t.logprob())
		}
		out = append(out, l)
	}
	for i, text := range w.Tokens {
		l := wireLogprob{Token: text}.logprob()
		if i < len(w.Logprobs) && w.Logprobs[i] != nil {
			l.Logprob = *w.Logprobs[i]
		}
		if i < len(w.Top) {
			for text, p := range w.Top[i] {
				l.Top = append(l.Top, wireLogprob{Token: text, Logprob: &p}.logprob())
			}
		}
		out = append(out, l)
	}
	for i := range out {
		if len(tokens) == len(out) {
			naming(&out[i], tokens[i])
		}
		slices.SortStableFunc(out[i].Top, func(a, b engine.Logprob) int { return cmp.Compare(b.Logprob, a.Logprob) })
	}
	return out
}

// naming gives a log probability, and the equal one among the best, the token's id.
func naming(l *engine.Logprob, t engine.Token) {
	l.Token = t
	for i := range l.Top {
		if l.Top[i].Token == unnamed && bytes.Equal(l.Top[i].Bytes, l.Bytes) {
			l.Top[i].Token = t
		}
	}
}

// lowest is the log probability of a token that the server gives none: JSON has no infinity.
const lowest = -9999

func (w wireLogprob) logprob() engine.Logprob {
	l := engine.Logprob{Token: unnamed, Bytes: []byte(w.Token), Logprob: lowest}
	if w.Logprob != nil {
		l.Logprob = min(*w.Logprob, 0)
	}
	if w.Bytes != nil {
		l.Bytes = make([]byte, len(w.Bytes))
		for i, b := range w.Bytes {
			l.Bytes[i] = byte(b)
		}
	}
	if w.ID != nil {
		l.Token = *w.ID
	} else if id, ok := strings.CutPrefix(w.Token, "token_id:"); ok {
		if n, err := strconv.ParseInt(id, 10, 32); err == nil {
			l.Token = engine.Token(n)
		}
	}
	return l
}

// named returns the tokens of l where all of them have an id.
func named(l []engine.Logprob) []engine.Token {
	var out []engine.Token
	for _, p := range l {
		if p.Token == unnamed {
			return nil
		}
		out = append(out, p.Token)
	}
	return out
}

// trim leaves the most probable n of each, and nothing at all where they were asked for only to learn the tokens.
func trim(l []engine.Logprob, wanted bool, n int) []engine.Logprob {
	if !wanted {
		return nil
	}
	for i := range l {
		l[i].Top = l[i].Top[:min(n, len(l[i].Top))]
		if n == 0 {
			l[i].Top = nil
		}
	}
	return l
}
