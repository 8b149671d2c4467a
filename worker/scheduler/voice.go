package scheduler

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/seam"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// voice turns the tokens of one choice into chunks: bytes to whole characters, to text before a stop string (text), to
// text, reasoning and tool calls apart (engine.Splitter).
type voice struct {
	text
	splitter engine.Splitter // nil: nothing is told apart
	request  string
	choice   int
	logprobs bool
	calls    int // tool calls that have begun
	ahead    ahead

	chunks  []engine.Chunk // said since the last call of said
	handed  []engine.Token // used by each call of said
	handedP []engine.Logprob
}

// ahead is what the reader of a resumed output has beyond what its tokens say.
type ahead struct{ text, reasoning seam.Ahead }

// say adds a token, and returns whether a stop string was completed.
func (v *voice) say(c sampling.Choice, vocab pieces, armed bool) bool {
	piece := vocab.Piece(c.Token)
	token := spelled{token: c.Token}
	if v.logprobs {
		token.logprob = &engine.Logprob{Token: c.Token, Bytes: piece, Logprob: c.Logprob}
		for _, top := range c.Top {
			token.logprob.Top = append(token.logprob.Top, engine.Logprob{Token: top.Token, Bytes: vocab.Piece(top.Token), Logprob: top.Logprob})
		}
	}
	v.split(v.text.push(token, piece, armed))
	return v.text.stopped
}

// end says what is held back, and returns whether the choice called tools.
func (v *voice) end() (called bool) {
	v.split(v.text.flush())
	if v.splitter == nil {
		return false
	}
	rest, called := v.splitter.Flush()
	for _, p := range rest {
		v.add(p)
	}
	return called
}

func (v *voice) split(text string) {
	if v.splitter == nil || text == "" {
		v.add(engine.Part{Text: text})
		return
	}
	for _, p := range v.splitter.Push(text) {
		v.add(p)
	}
}

// add makes a chunk of p, or a part of the last one.
func (v *voice) add(p engine.Part) {
	c := engine.Chunk{Choice: v.choice, Text: v.ahead.text.Unsaid(p.Text), Reasoning: v.ahead.reasoning.Unsaid(p.Reasoning)}
	if p.Call != nil {
		call := *p.Call
		if call.Index >= v.calls {
			v.calls = call.Index + 1
			call.ID = callID(v.request, v.choice, call.Index)
		}
		c.ToolCalls = []engine.ToolCall{call}
	}
	if first(&c) == nothing {
		return
	}
	if n := len(v.chunks); n == 0 || !join(&v.chunks[n-1], &c) {
		v.chunks = append(v.chunks, c)
	}
}

// said returns what was said since the last call. The slices are valid until the next token.
func (v *voice) said() []engine.Chunk {
	out := v.chunks
	if n := v.text.ready(); n > 0 {
		v.handed, v.handedP = v.handed[:0], v.handedP[:0]
		for _, t := range v.text.tokens[:n] {
			v.handed = append(v.handed, t.token)
			if t.logprob != nil {
				v.handedP = append(v.handedP, *t.logprob)
			}
		}
		v.text.drop(n)
		if len(out) == 0 {
			out = append(out, engine.Chunk{Choice: v.choice})
		}
		out[len(out)-1].Tokens, out[len(out)-1].Logprobs = v.handed, v.handedP
	}
	v.chunks = out[:0]
	return out
}

// callID names a tool call. It is the same each time, so that a request that is run again elsewhere repeats it.
func callID(request string, choice, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", request, choice, index))
	return "call_" + hex.EncodeToString(sum[:12])
}

// kind orders what a chunk can say: reasoning comes before text, and text before calls.
type kind int

const (
	nothing kind = iota
	thinking
	speaking
	calling
)

// first is the kind with which c begins, last the one with which it ends.
func first(c *engine.Chunk) kind {
	switch {
	case c.Reasoning != "":
		return thinking
	case c.Text != "":
		return speaking
	case len(c.ToolCalls) > 0:
		return calling
	}
	return nothing
}

func last(c *engine.Chunk) kind {
	switch {
	case len(c.ToolCalls) > 0:
		return calling
	case c.Text != "":
		return speaking
	case c.Reasoning != "":
		return thinking
	}
	return nothing
}

// join appends next to c, or returns false where that would change the order of what is said, or the choice is another or
// has ended. It doesn't keep next's slices.
func join(c, next *engine.Chunk) bool {
	if c.Choice != next.Choice || c.Finish != "" || first(next) != nothing && last(c) > first(next) {
		return false
	}
	c.Reasoning += next.Reasoning
	c.Text += next.Text
	for _, call := range next.ToolCalls {
		if n := len(c.ToolCalls); n > 0 && c.ToolCalls[n-1].Index == call.Index && call.ID == "" {
			c.ToolCalls[n-1].Arguments += call.Arguments
		} else {
			c.ToolCalls = append(c.ToolCalls, call)
		}
	}
	c.Tokens = append(c.Tokens, next.Tokens...)
	c.Logprobs = append(c.Logprobs, next.Logprobs...)
	c.Finish, c.Usage = next.Finish, next.Usage
	return true
}
