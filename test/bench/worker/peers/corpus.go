package peers

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// words make texts that are worth nothing and are split into tokens as others are.
var words = strings.Fields(`the a of and in to with for on by from river stone harbour letter garden winter morning engine
window captain bridge market silver copper wooden narrow quiet distant early former seven twelve hundred carried opened
followed measured repaired counted painted crossed between above under beyond against during because although before after
station village library mountain island machine paper thread candle season weather question answer number story picture
travel arrived departed remembered promised wrote read spoke listened built sold bought found kept`)

// piece is how many tokens of a prompt lie together in the corpus.
const piece = 8

// Corpus makes prompts of an exact length. Two of them begin alike only if one was made from the other. Equal seeds make
// equal prompts.
type Corpus struct {
	tokens []uint32
	random *rand.Rand
}

// Text is what a corpus is made from, in tokens of the model.
func Text() string {
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for range 3000 {
		b.WriteString(words[random.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()
}

// NewCorpus makes prompts from the tokens of Text.
func NewCorpus(tokens []uint32, seed uint64) (*Corpus, error) {
	if len(tokens) < 1000 {
		return nil, fmt.Errorf("a corpus of %d tokens: want 1000 or more", len(tokens))
	}
	return &Corpus{tokens: tokens, random: rand.New(rand.NewPCG(seed, seed))}, nil
}

// Prompt returns prefix and n tokens after it.
func (c *Corpus) Prompt(prefix []uint32, n int) []uint32 {
	out := make([]uint32, 0, len(prefix)+n+piece)
	out = append(out, prefix...)
	for len(out) < len(prefix)+n {
		at := c.random.IntN(len(c.tokens) - piece)
		out = append(out, c.tokens[at:at+piece]...)
	}
	return out[:len(prefix)+n]
}

// Requests are count requests for maxTokens after prefix and n tokens of their own.
func (c *Corpus) Requests(count int, prefix []uint32, n, maxTokens int) []Request {
	out := make([]Request, count)
	for i := range out {
		out[i] = Request{Prompt: c.Prompt(prefix, n), MaxTokens: maxTokens}
	}
	return out
}
