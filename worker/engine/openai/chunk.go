package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// wireChunk is one event of a stream, with what the servers add to the protocol.
type wireChunk struct {
	Error   json.RawMessage `json:"error"`
	Object  string          `json:"object"`
	Choices []wireChoice    `json:"choices"`
	Usage   *wireUsage      `json:"usage"`
	// Timings and Progress are llama-server's.
	Timings *struct {
		Prompt    int `json:"prompt_n"`
		Cached    int `json:"cache_n"`
		Predicted int `json:"predicted_n"`
	} `json:"timings"`
	Progress *struct {
		Total  int `json:"total"`
		Cached int `json:"cache"`
	} `json:"prompt_progress"`
	PromptIDs []engine.Token `json:"prompt_token_ids"` // of a chat at vLLM
}

type wireChoice struct {
	Text      string         `json:"text"`
	Delta     *wireDelta     `json:"delta"`
	Finish    string         `json:"finish_reason"`
	IDs       []engine.Token `json:"token_ids"`
	PromptIDs []engine.Token `json:"prompt_token_ids"`
	Logprobs  *wireLogprobs  `json:"logprobs"`
}

type wireDelta struct {
	Content          string     `json:"content"`
	Reasoning        string     `json:"reasoning"`
	ReasoningContent string     `json:"reasoning_content"` // the older name
	ToolCalls        []wireCall `json:"tool_calls"`
}

type wireCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type wireUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Details    *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// assembler turns the events of one stream, which has one choice, into chunks.
type assembler struct {
	request        string // its id
	field, adapter string // what its prompt is called, and its adapter
	choice         int
	vocab, most    int // tokens that there are, and that it may make; 0: unknown
	joint          joint
	prompt         int          // without what was made elsewhere; 0: not known yet
	usage          engine.Usage // as the server counts
	counted        int          // completion tokens that were named
	finish         engine.FinishReason
	text           characters
	thought        characters
	calls          calls
	spoken         bool // there was output
}

// errGarbage is an answer that is not of the protocol.
var errGarbage = errors.New("it sent what is not of the protocol")

// push takes one event. Alive says that the server has got on with the request.
func (a *assembler) push(data []byte) (c engine.Chunk, alive bool, err error) {
	data, mended := mend(data)
	var w wireChunk
	if err := json.Unmarshal(data, &w); err != nil {
		return c, false, errGarbage // without the text, which is the model's
	}
	if len(w.Error) > 0 && string(w.Error) != "null" || w.Object == "error" {
		return c, false, a.failed(data)
	}
	known := a.prompt
	a.count(&w)
	alive = w.Progress != nil || a.prompt != known
	if len(w.Choices) == 0 {
		return c, alive, nil
	}
	choice := &w.Choices[0]
	c.Choice = a.choice
	text := choice.Text
	if d := choice.Delta; d != nil {
		text += d.Content
		c.Reasoning = a.thought.add(d.Reasoning+d.ReasoningContent, mended)
		if c.ToolCalls, err = a.calls.add(a.request, a.choice, d.ToolCalls, mended); err != nil {
			return c, false, err
		}
	}
	c.Text = a.text.add(text, mended)
	a.joint.join(&c)
	c.Tokens = choice.IDs
	if choice.Logprobs != nil {
		c.Logprobs = choice.Logprobs.list(c.Tokens)
		if c.Tokens == nil {
			c.Tokens = named(c.Logprobs)
		}
	}
	if err := a.tally(&c); err != nil {
		return c, false, err
	}
	if a.finish, err = finishOf(a.finish, choice.Finish, a.calls.any()); err != nil {
		return c, false, err
	}
	a.spoken = a.spoken || worth(&c)
	return c, alive || worth(&c), nil
}

// spare is how many pieces more than tokens a server may make of them.
const spare = 64

// tally counts the tokens of a chunk, and refuses what no request can have asked for.
func (a *assembler) tally(c *engine.Chunk) error {
	for _, t := range c.Tokens {
		if err := inside(t, a.vocab); err != nil {
			return err
		}
	}
	a.counted += len(c.Tokens)
	if len(c.Tokens) == 0 && worth(c) {
		a.counted++ // at least
	}
	if a.counted > a.bound() {
		return fmt.Errorf("it has sent %d pieces of at most %d tokens and goes on", a.counted, a.most)
	}
	return nil
}

// bound is how many pieces may come.
func (a *assembler) bound() int {
	if a.most == 0 {
		return mostContext
	}
	return 2*a.most + spare
}

// inside refuses a token that the server can't mean. The size of its vocabulary may be unknown, and is 0 then.
func inside(t engine.Token, vocab int) error {
	if t < 0 || vocab > 0 && int(t) >= vocab {
		return fmt.Errorf("it sent the token %d, outside the vocabulary of %d", t, vocab)
	}
	return nil
}

// count books what an event says about numbers of tokens.
func (a *assembler) count(w *wireChunk) {
	if u := w.Usage; u != nil {
		a.usage.Prompt, a.usage.Completion = sound(u.Prompt, mostContext), max(a.usage.Completion, sound(u.Completion, a.bound()))
		if u.Details != nil {
			a.usage.Cached = sound(u.Details.Cached, mostContext)
		}
	}
	if p := w.Progress; p != nil {
		a.usage.Prompt, a.usage.Cached = sound(p.Total, mostContext), sound(p.Cached, mostContext)
	}
	if t := w.Timings; t != nil && t.Prompt > 0 {
		a.usage.Cached = sound(t.Cached, mostContext)
		a.usage.Prompt = sound(t.Prompt, mostContext) + a.usage.Cached
		a.usage.Completion = max(a.usage.Completion, sound(t.Predicted, a.bound()))
	}
	if n := len(w.PromptIDs); n > 0 {
		a.usage.Prompt = n
	}
	if len(w.Choices) > 0 && len(w.Choices[0].PromptIDs) > 0 {
		a.usage.Prompt = len(w.Choices[0].PromptIDs)
	}
	a.prompt = max(a.usage.Prompt-a.joint.made, 0)
}

// end returns the last chunk of a stream that has ended, or an error where the server never said why it ended.
func (a *assembler) end() (engine.Chunk, error) {
	if a.finish == "" {
		return engine.Chunk{}, errors.New("its stream ended before the output did")
	}
	usage := engine.Usage{Prompt: a.prompt, Completion: max(a.usage.Completion, a.counted) + a.joint.made, Cached: min(a.usage.Cached, a.prompt)}
	c := engine.Chunk{Choice: a.choice, Text: a.text.rest(), Reasoning: a.thought.rest(), ToolCalls: a.calls.rest(), Finish: a.finish, Usage: usage}
	a.joint.join(&c)
	return c, nil
}

// finishOf reads a reason. Some servers say "stop" after tool calls.
func finishOf(have engine.FinishReason, said string, called bool) (engine.FinishReason, error) {
	switch said {
	case "":
		return have, nil
	case "length":
		return engine.FinishLength, nil
	case "tool_calls", "function_call":
		return engine.FinishToolCalls, nil
	case "abort", "error":
		return have, fmt.Errorf("it ended the output with the reason %q", said)
	}
	if called {
		return engine.FinishToolCalls, nil
	}
	return engine.FinishStop, nil
}

// failed is an error event. One that comes first of all is an answer like any other: vLLM looks at some parameters only
// when it has begun to answer with 200. Later ones may quote the prompt, so only their numbers and kind are told.
func (a *assembler) failed(data []byte) error {
	e := parseError(data)
	if !a.spoken && e.status >= 400 && e.status < 500 || e.busy() {
		return e.err(a.field, a.adapter)
	}
	return fmt.Errorf("it ended the stream with an error%s", e.label())
}

// calls numbers tool calls from 0 in the order in which they begin, whatever the server's own numbers are, and gives an id
// to those that have none.
type calls struct {
	seen      []wireCall // Index is the server's, ID what it said
	arguments []characters
}

// maxCalls is more calls of tools than an output has.
const maxCalls = 1024

func (c *calls) any() bool { return len(c.seen) > 0 }

func (c *calls) add(request string, choice int, pieces []wireCall, mended bool) ([]engine.ToolCall, error) {
	var out []engine.ToolCall
	for _, p := range pieces {
		at := c.find(p)
		call := engine.ToolCall{Index: at}
		if at == maxCalls {
			return nil, fmt.Errorf("it made more than %d calls of tools", maxCalls)
		}
		if at == len(c.seen) {
			c.seen = append(c.seen, wireCall{Index: p.Index, ID: p.ID})
			c.arguments = append(c.arguments, characters{})
			call.ID, call.Name = p.ID, p.Function.Name
			if call.ID == "" {
				call.ID = callID(request, choice, at)
			}
		}
		if call.Arguments = c.arguments[at].add(p.Function.Arguments, mended); call.Arguments != "" || call.ID != "" {
			out = append(out, call)
		}
	}
	return out, nil
}

// rest is what was held back of arguments and never became a character.
func (c *calls) rest() (out []engine.ToolCall) {
	for i := range c.arguments {
		if text := c.arguments[i].rest(); text != "" {
			out = append(out, engine.ToolCall{Index: i, Arguments: text})
		}
	}
	return out
}

// find returns the call that p goes on with: the last one of its number, unless p has another id.
func (c *calls) find(p wireCall) int {
	for i := len(c.seen) - 1; i >= 0; i-- {
		if s := c.seen[i]; s.Index == p.Index {
			if p.ID != "" && p.ID != s.ID {
				break
			}
			return i
		}
	}
	return len(c.seen)
}

// label is the kind of an error without its text.
func (e *serverError) label() string {
	var parts []string
	if e.status != 0 {
		parts = append(parts, fmt.Sprint(e.status))
	}
	if e.kind != "" {
		parts = append(parts, e.kind)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, " ") + ")"
}
