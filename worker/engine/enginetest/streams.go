package enginetest

import (
	"strings"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// streams: text comes in pieces, in order, and ends once.
func (r *rig) streams() {
	for name, p := range map[string]engine.Prompt{"chat": r.chat(), "text": r.text()} {
		out := r.answer(r.request(p, 32))
		c := out.choices[0]
		switch {
		case c.text == "":
			r.Errorf("%s: there is no text", name)
		case out.chunks < 3:
			r.Errorf("%s: %d tokens came in %d chunks; they were not streamed", name, c.usage.Completion, out.chunks)
		case c.finish == engine.FinishLength && c.usage.Completion != 32:
			r.Errorf("%s: it ended for its length after %d of 32 tokens", name, c.usage.Completion)
		}
	}
}

// counts: max_tokens is kept to the token, and what is said of the prompt at the start and at the end agrees.
func (r *rig) counts() {
	for _, n := range []int{1, 2, 17} {
		out := r.answer(r.request(r.text(), n))
		c := out.choices[0]
		if c.finish != engine.FinishLength || c.usage.Completion != n {
			r.Errorf("with max_tokens %d it made %d tokens and ended by %q", n, c.usage.Completion, c.finish)
		}
		if out.prompt < 1 || c.usage.Prompt != out.prompt || c.usage.Cached < 0 || c.usage.Cached >= c.usage.Prompt {
			r.Errorf("the prompt has %d tokens at the start, and at the end the usage is %+v", out.prompt, c.usage)
		}
	}
}

// fills: without max_tokens the output goes on until the context is full.
func (r *rig) fills() {
	const left = 12
	most := r.e.Info().ContextTokens
	prompt, ok := r.tokensOf(strings.Repeat(r.h.Long, most))
	if !ok {
		return
	}
	if len(prompt) < most {
		r.Fatalf("%d words are %d tokens", most, len(prompt))
	}
	out := r.answer(r.request(engine.Prompt{Tokens: prompt[:most-left]}, 0))
	c := out.choices[0]
	// Some engines count the token that would not fit any more.
	if c.finish == engine.FinishLength && (c.usage.Completion < left-1 || c.usage.Completion > left+1) || c.usage.Prompt != most-left {
		r.Errorf("a prompt of %d in a context of %d tokens gave %d tokens and ended by %q; its usage is %+v",
			most-left, most, c.usage.Completion, c.finish, c.usage)
	}
}

// tokensOf tokenises, where the engine does.
func (r *rig) tokensOf(text string) ([]engine.Token, bool) {
	tokens, err := r.e.Tokenize(r.within(), engine.Prompt{Text: text})
	if err != nil {
		if r.offered(err, "prompt") {
			r.Fatalf("tokenise: %v", err)
		}
		return nil, false
	}
	return tokens, true
}

// names: chunks hold the tokens that made their text, as many as the usage says.
func (r *rig) names() {
	c := r.answer(r.request(r.text(), 16)).choices[0]
	if len(c.tokens) == 0 {
		r.no("unknown")
		return
	}
	if len(c.tokens) != c.usage.Completion {
		r.Errorf("the chunks hold %d tokens; the usage counts %d", len(c.tokens), c.usage.Completion)
	}
}

// choices: each has an end and a usage of its own.
func (r *rig) choices() {
	q := r.request(r.text(), 12, func(q *engine.Request) { q.Choices, q.Sampling.Temperature = 3, 1.2 })
	out, err := r.try(q)
	if err != nil {
		if r.offered(err, "n") {
			r.Fatal(err)
		}
		return
	}
	texts := map[string]bool{}
	for i, c := range out.choices {
		if c.usage.Completion < 1 || c.usage.Completion > 12 || c.usage.Prompt != out.choices[0].usage.Prompt {
			r.Errorf("choice %d has the usage %+v", i, c.usage)
		}
		texts[c.text] = true
	}
	if len(texts) < 2 {
		r.Errorf("at temperature 1.2 all choices are %q", out.choices[0].text)
	}
}

// stops: the output ends before the stop string, which is cut across the borders of tokens.
func (r *rig) stops() {
	for try := 1; ; try++ {
		whole := r.answer(r.request(r.text(), 48)).choices[0].text
		stop := middle(whole)
		if stop == "" {
			r.Fatalf("there is too little text for a stop string: %q", whole)
		}
		got := r.answer(r.request(r.text(), 48, func(q *engine.Request) { q.Stop = []string{"never in any text", stop} })).choices[0]
		want, _, _ := strings.Cut(whole, stop)
		if strings.Contains(got.text, stop) {
			r.Fatalf("the output has the stop string %q: %q", stop, got.text)
		}
		if got.text == want && got.finish == engine.FinishStop {
			return
		}
		// Greedy output differs by a token now and then, as a cached prompt is another batch shape.
		if strings.HasPrefix(whole, got.text) && got.finish == engine.FinishStop || try == 3 {
			r.Fatalf("with the stop string %q the output is %q, ended by %q; expected %q", stop, got.text, got.finish, want)
		}
	}
}

// middle returns seven characters out of the middle of a text, which are more than one token and stand in it once.
func middle(text string) string {
	runes := []rune(text)
	for at := len(runes) / 2; at+7 <= len(runes); at++ {
		s := string(runes[at : at+7])
		if first := strings.Index(text, s); first > 0 && strings.TrimSpace(s) != "" && first == len(string(runes[:at])) {
			return s
		}
	}
	return ""
}

// repeats: greedy answers, and those of one seed, are equal for most of their length; seeds differ.
func (r *rig) repeats() {
	const n = 24
	first := r.answer(r.request(r.text(), n)).choices[0].text
	second := r.answer(r.request(r.text(), n)).choices[0].text
	if same := shared(first, second); same*4 < len(first) {
		r.Errorf("two greedy answers share %d of %d bytes: %q and %q", same, len(first), first, second)
	}
	warm := func(seed uint64) string {
		return r.answer(r.request(r.text(), n, func(q *engine.Request) {
			q.Sampling = engine.Sampling{Temperature: 1, TopP: 1, Seed: seed}
		})).choices[0].text
	}
	texts := map[string]bool{}
	best := 0
	for seed := range uint64(4) {
		a := warm(seed)
		best = max(best, shared(a, warm(seed))*100/max(len(a), 1))
		texts[a] = true
	}
	if best < 50 {
		r.Errorf("of four seeds none gave the same text twice for at least half of it; the best shared %d %%", best)
	}
	if len(texts) < 2 {
		r.Error("four seeds gave one text")
	}
}

// shared is the length of the longest common beginning.
func shared(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
