package scheduler

import (
	"fmt"
	"strings"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/seam"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// resume gives the one choice of r the tokens that another engine has made of it. They go through all that tokens made here
// go through (sampler, text, splitter), so what was held back behind the last of them is held back again, and a seed gives
// the token that it would have given there. Nothing is said of them. Then the choice is like one that gave way: it is
// computed from its first token, as far as the cache doesn't have it. Where they end the output r.over says so.
func (s *scheduler) resume(r *request, q *engine.Request) error {
	has := q.Resume
	switch {
	case has == nil || len(has.Tokens) == 0 && has.Text == "" && has.Reasoning == "":
		return nil
	case len(has.Tokens) == 0:
		return fmt.Errorf("%w: its tokens are not told", engine.ErrNoResume)
	case len(has.Tokens) > r.grant.most:
		return notMade("%d tokens are made already; behind a prompt of %d the context holds %d", len(has.Tokens), r.out.prompt,
			r.grant.most)
	}
	c := r.runs[0]
	why, said, err := c.replay(has.Tokens, s.loaded.Vocabulary)
	if err == nil {
		err = c.voice.join(said, has)
	}
	if err != nil {
		return err
	}
	r.made = len(has.Tokens)
	if why != "" {
		r.over = c.conclude(why)
	}
	return nil
}

func notMade(format string, args ...any) error {
	return &engine.InvalidError{Field: "resume_tokens", Message: fmt.Sprintf(format, args...)}
}

// replay takes tokens that were made elsewhere. It returns why the last of them ends the output, "" where it doesn't, and what
// was said with them.
func (r *run) replay(tokens []engine.Token, vocab pieces) (why engine.FinishReason, said engine.Part, err error) {
	var text, reasoning strings.Builder
	for i, t := range tokens {
		if why != "" {
			return "", said, notMade("token %d of %d ends the output; nothing comes behind it", i, len(tokens))
		}
		if r.sampler != nil {
			r.sampler.Accept(t)
		}
		why = r.take(sampling.Choice{Token: t}, vocab)
		for _, c := range r.voice.said() {
			text.WriteString(c.Text)
			reasoning.WriteString(c.Reasoning)
		}
	}
	r.voice.text.drop(len(r.voice.text.tokens)) // they are handed out, even where their text is held back
	return why, engine.Part{Text: text.String(), Reasoning: reasoning.String()}, nil
}

// join goes on where the reader is, who may have more than the tokens say (an output that ended, but whose end it didn't hear
// of, holds nothing back) or less.
func (v *voice) join(said engine.Part, has *engine.Resume) error {
	if has.Text == "" && has.Reasoning == "" {
		return nil
	}
	text, restText, ok := seam.Compare(said.Text, has.Text)
	if !ok {
		return &engine.InvalidError{Field: "resume_text", Message: fmt.Sprintf(
			"its %d bytes are not what the tokens say, which has %d", len(has.Text), len(said.Text))}
	}
	reasoning, restReasoning, ok := seam.Compare(said.Reasoning, has.Reasoning)
	if !ok {
		return &engine.InvalidError{Field: "resume_reasoning", Message: fmt.Sprintf(
			"its %d bytes are not what the tokens say, which has %d", len(has.Reasoning), len(said.Reasoning))}
	}
	v.add(engine.Part{Text: restText, Reasoning: restReasoning})
	v.ahead = ahead{text: text, reasoning: reasoning}
	return nil
}
