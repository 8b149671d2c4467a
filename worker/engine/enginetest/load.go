package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// load: many more requests than run together are all answered, each with what its own prompt gives.
func (r *rig) load() {
	const kinds, each, tokens = 4, 6, 16
	prompts := make([]engine.Prompt, kinds)
	alone := make([]string, kinds)
	for k := range prompts {
		prompts[k] = engine.Prompt{Text: fmt.Sprintf("%d. ", k+1) + strings.Repeat(r.h.Long, 3*k) + r.h.Text}
		alone[k] = r.answer(r.request(prompts[k], tokens)).choices[0].text
	}
	type got struct {
		kind int
		text string
		err  error
	}
	results := make(chan got, kinds*each)
	var all sync.WaitGroup
	for i := range kinds * each {
		q := r.request(prompts[i%kinds], tokens)
		all.Go(func() {
			out, err := r.try(q)
			g := got{kind: i % kinds, err: err}
			if err == nil {
				g.text = out.choices[0].text
			}
			results <- g
		})
	}
	all.Wait()
	close(results)
	mixed := 0
	for g := range results {
		if g.err != nil {
			r.Errorf("a request of kind %d failed: %v", g.kind, g.err)
			continue
		}
		own := shared(g.text, alone[g.kind])
		for k := range alone {
			if alone[k] != alone[g.kind] && shared(g.text, alone[k]) > own+4 {
				mixed++
				break
			}
		}
	}
	// Batches of other shapes change a greedy token now and then, which may lead anywhere, so those of one kind may go astray.
	if mixed*3 > kinds*each {
		r.Errorf("%d of %d answers are more like those of other prompts than like their own", mixed, kinds*each)
	}
	r.quiet()
}

// drains: a drain refuses new requests, lets running ones end, and returns then, or when its context ends.
func (r *rig) drains() {
	ctx, stop := context.WithCancel(r.within())
	s := r.begin(ctx)
	enough := errors.New("enough")
	short, cancel := context.WithCancelCause(context.Background())
	over := make(chan error, 2)
	go func() { over <- r.e.Drain(short) }()
	r.eventually("new requests are refused", func() bool {
		out, err := r.e.Generate(r.within(), r.request(r.chat(), 1))
		if err == nil {
			_ = out.Close()
		}
		return errors.Is(err, engine.ErrDraining)
	})
	cancel(enough)
	if err := <-over; !errors.Is(err, enough) {
		r.Errorf("a drain whose context ended returned %v", err)
	}
	if _, err := s.Next(); err != nil {
		r.Errorf("the running request was disturbed: %v", err)
	}
	go func() { over <- r.e.Drain(r.within()) }()
	stop()
	_ = r.last(s)
	if err := <-over; err != nil {
		r.Errorf("the drain ended with %v", err)
	}
}

// closes: what runs ends, and nothing more is taken.
func (r *rig) closes() {
	s := r.begin(r.within())
	if err := r.e.Close(); err != nil {
		r.Errorf("close: %v", err)
	}
	if err := r.last(s); !errors.Is(err, engine.ErrClosed) {
		r.Errorf("the running request ended with %v", err)
	}
	if _, err := r.e.Generate(r.within(), r.request(r.chat(), 1)); !errors.Is(err, engine.ErrClosed) {
		r.Errorf("a request after Close gave %v", err)
	}
	if r.e.Health(r.within()) == nil {
		r.Error("a closed engine says that it is healthy")
	}
}

// refuses: what can never run is an *engine.InvalidError with the field and, where OpenAI has one, the code; the engine
// serves on, and nothing is left behind.
func (r *rig) refuses() {
	most := r.e.Info().ContextTokens
	outside := engine.Token(1 << 30)
	if v := r.e.Info().Vocab; v > 0 {
		outside = engine.Token(v)
	}
	chat := func(messages string) engine.Prompt {
		return engine.Prompt{Chat: &engine.Chat{Messages: []byte(messages)}}
	}
	for _, c := range []struct {
		name   string
		q      *engine.Request
		field  string
		code   string
		orRuns bool // an engine may as well make sense of it
	}{
		{name: "a text longer than the context", q: r.request(r.long(most+most/4), 4), field: "prompt", code: engine.CodeContextLength},
		{name: "more tokens than the context", q: r.request(engine.Prompt{Tokens: make([]engine.Token, most+1)}, 1),
			field: "prompt", code: engine.CodeContextLength},
		{name: "a chat longer than the context", field: "messages", code: engine.CodeContextLength,
			q: r.request(chat(fmt.Sprintf(`[{"role":"user","content":%q}]`, strings.Repeat(r.h.Long, most+most/4))), 4)},
		{name: "10 MB of one character", q: r.request(engine.Prompt{Text: strings.Repeat("a", 10<<20)}, 4), field: "prompt",
			code: engine.CodeContextLength},
		{name: "more output than the context", q: r.request(r.text(), most+1), code: engine.CodeContextLength},
		{name: "no prompt", q: r.request(engine.Prompt{}, 4), field: "prompt"},
		{name: "no tokens", q: r.request(engine.Prompt{Tokens: []engine.Token{}}, 4), field: "prompt"},
		{name: "a token below the vocabulary", q: r.request(engine.Prompt{Tokens: []engine.Token{1, -1}}, 4), field: "prompt"},
		{name: "a token above the vocabulary", q: r.request(engine.Prompt{Tokens: []engine.Token{1, outside}}, 4), field: "prompt"},
		{name: "no messages", q: r.request(chat(`[]`), 4), field: "messages"},
		{name: "messages that are no list", q: r.request(chat(`{"role":"user"}`), 4), field: "messages"},
		{name: "messages that are no JSON", q: r.request(chat(`[{"role":`), 4), field: "messages"},
		{name: "text that is not UTF-8", q: r.request(engine.Prompt{Text: "a\xff\xfeb"}, 4), field: "prompt", orRuns: true},
		{name: "an adapter that is not there", q: r.request(r.text(), 4, func(q *engine.Request) { q.Adapter = "nobody" })},
	} {
		_, err := r.try(c.q)
		if err == nil && c.orRuns {
			continue
		}
		invalid := (*engine.InvalidError)(nil)
		switch {
		case !errors.As(err, &invalid):
			r.Errorf("%s: the error is %v; expected an *engine.InvalidError", c.name, err)
		case c.field != "" && invalid.Field != c.field, c.code != "" && invalid.Code != c.code:
			r.Errorf("%s: the error has the field %q and the code %q; expected %q and %q",
				c.name, invalid.Field, invalid.Code, c.field, c.code)
		case invalid.Message == "" || len(invalid.Message) > 4096:
			r.Errorf("%s: the message has %d bytes", c.name, len(invalid.Message))
		}
		if err := r.e.Health(r.within()); err != nil {
			r.Fatalf("%s: the engine is unhealthy after it: %v", c.name, err)
		}
	}
	r.answer(r.request(r.chat(), 4))
	r.quiet()
}

// tokenises: tokens of a text or a chat, run as they stand, are the same prompt.
func (r *rig) tokenises() {
	for name, p := range map[string]engine.Prompt{"text": r.text(), "chat": r.chat()} {
		tokens, err := r.e.Tokenize(r.within(), p)
		if err != nil {
			if field := "prompt"; p.Chat != nil && r.offered(err, "messages") || p.Chat == nil && r.offered(err, field) {
				r.Errorf("%s: %v", name, err)
			}
			return
		}
		again, err := r.e.Tokenize(r.within(), engine.Prompt{Tokens: tokens})
		if err != nil || !slices.Equal(tokens, again) {
			r.Errorf("%s: tokens of tokens are not themselves (%v)", name, err)
		}
		asText, asTokens := r.answer(r.request(p, 16)), r.answer(r.request(engine.Prompt{Tokens: tokens}, 16))
		if asText.prompt != len(tokens) || asTokens.prompt != len(tokens) {
			r.Errorf("%s: %d tokens; as a prompt %d, and as tokens %d", name, len(tokens), asText.prompt, asTokens.prompt)
		}
		a, b := asText.choices[0].text, asTokens.choices[0].text
		if shared(a, b)*4 < min(len(a), len(b)) {
			r.Errorf("%s: it gives %q, and its tokens give %q", name, a, b)
		}
	}
}

// stats: what the engine says of itself fits what it has been given.
func (r *rig) stats() {
	const n = 2
	before := r.e.Stats()
	var streams []engine.Stream
	ctx, stop := context.WithCancel(r.within())
	for range n {
		streams = append(streams, r.begin(ctx))
	}
	if ids := r.e.Stats().RequestIDs; len(ids) != n {
		r.Errorf("%d requests are inside; it names %q", n, ids)
	}
	r.eventually("requests are seen to run", func() bool {
		s := r.e.Stats()
		return s.Running >= n && (s.KVBlocksUsed == nil || *s.KVBlocksUsed > 0)
	})
	s := r.e.Stats()
	if s.MaxSequences < n || s.Running > s.MaxSequences {
		r.Errorf("%d run of at most %d", s.Running, s.MaxSequences)
	}
	if s.KVBlocksTotal != nil && (s.KVBlocksUsed == nil || *s.KVBlocksUsed > *s.KVBlocksTotal || s.KVBlockTokens < 1) {
		r.Errorf("the blocks are %d of %d tokens; %s", *s.KVBlocksTotal, s.KVBlockTokens, figures(s))
	}
	stop()
	for _, s := range streams {
		_ = r.last(s)
	}
	r.quiet()
	r.counters(before, r.e.Stats())
}

// counters only grow, and none becomes unknown.
func (r *rig) counters(before, after engine.Stats) {
	for name, pair := range map[string][2]*int64{
		"cache queries": {before.CacheQueries, after.CacheQueries}, "cache hits": {before.CacheHits, after.CacheHits},
		"preemptions": {before.Preemptions, after.Preemptions}, "evictions": {before.Evictions, after.Evictions},
		"progress": {before.Progress, after.Progress},
	} {
		if pair[0] != nil && (pair[1] == nil || *pair[1] < *pair[0]) {
			r.Errorf("%s went down or away", name)
		}
	}
	if q, h := after.CacheQueries, after.CacheHits; q != nil && h != nil && *h > *q {
		r.Errorf("%d tokens were found in the cache, of %d looked up", *h, *q)
	}
}
