package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/seam"
)

// joint is where an output that was begun elsewhere goes on. These servers go on with text, so what was held back behind the
// text that its reader has is made anew.
type joint struct {
	made  int // tokens that count as made. They stand in the server's prompt, and it counts them there
	ahead seam.Ahead
	spoke bool // the answer's text has begun
}

// join makes a chunk what comes behind the joint. What a server takes for reasoning once the text has begun is text: it tells
// them apart by marks, and the one between them lies in its prompt now.
func (j *joint) join(c *engine.Chunk) {
	if j.spoke {
		c.Text, c.Reasoning = c.Reasoning+c.Text, ""
	}
	c.Text = j.ahead.Unsaid(c.Text)
}

// resume returns r as it is put to the server, and where it goes on. An output of which nothing can be read yet is begun
// anew. One whose tokens are as many as it may make is not to be put to the server at all: see finished.
func (d *Driver) resume(ctx context.Context, t target, r *engine.Request) (*engine.Request, joint, error) {
	has := r.Resume
	if has == nil {
		return r, joint{}, nil
	}
	if err := r.ResumeError(t.vocab, t.context); err != nil {
		return nil, joint{}, err
	}
	s, put := servers[t.kind], *r
	put.Resume = nil
	if why := unable(s, r); why != "" {
		return nil, joint{}, fmt.Errorf("%w: %s", engine.ErrNoResume, why)
	}
	text := has.Text
	if r.Prompt.Chat != nil && s.proceed != nil {
		// Some templates cut it off. Without it the server makes it again, which is seen.
		text = strings.TrimRightFunc(text, unicode.IsSpace)
	}
	ahead := seam.Ahead(has.Text[len(text):])
	if text == "" {
		return &put, joint{ahead: ahead}, nil
	}
	j := joint{made: len(has.Tokens), ahead: ahead, spoke: true}
	put.MinTokens = max(r.MinTokens-j.made, 0)
	if r.MaxTokens > 0 {
		put.MaxTokens = r.MaxTokens - j.made
	}
	put.Sampling.Seed += uint64(j.made) // else chance would repeat itself
	switch {
	case r.Prompt.Chat == nil:
		put.Prompt.Text += text
	case s.proceed != nil:
		put.Resume = &engine.Resume{Text: text, Reasoning: has.Reasoning}
	default:
		prompt, err := d.chatText(ctx, t, r)
		if err != nil {
			return nil, joint{}, err
		}
		put.Prompt = engine.Prompt{Text: prompt + text}
	}
	return &put, j, nil
}

// unable says why a server of a kind can't go on with r; "" where it can.
func unable(s *server, r *engine.Request) string {
	has := r.Resume
	switch {
	case !s.resumes():
		return "a server of its kind always begins anew"
	case r.Prompt.Tokens != nil:
		return "it goes on with text, and the prompt is one of tokens"
	case len(has.Tokens) > 0 && has.Text == "" && has.Reasoning == "":
		return "it goes on with text, and that of the tokens is not told"
	case has.Reasoning != "" && (strings.TrimSpace(has.Text) == "" || s.thought == ""):
		return "it can't go on within reasoning"
	case r.Prompt.Chat != nil:
		if tools, err := list("tools", r.Prompt.Chat.Tools); tools != nil || err != nil {
			return "it goes on with text, and tools may have been called"
		}
	}
	return ""
}

// proceed makes the chat in b one whose last message is what was made of the answer.
func (b body) proceed(s *server, has *engine.Resume) error {
	last := map[string]any{"role": "assistant", "content": has.Text}
	if has.Reasoning != "" {
		last[s.thought] = has.Reasoning
	}
	text, err := json.Marshal(last)
	if err != nil {
		return invalid("resume_text", "it can't be written as JSON: %v", err)
	}
	messages, ok := b["messages"].(json.RawMessage)
	if !ok {
		return invalid("resume_text", "the prompt is no chat")
	}
	b["messages"] = json.RawMessage(bytes.Join([][]byte{messages[:len(messages)-1], append(text, ']')}, []byte(",")))
	for k, v := range s.proceed {
		b[k] = v
	}
	return nil
}

// chatText asks the server for the text of r's chat.
func (d *Driver) chatText(ctx context.Context, t target, r *engine.Request) (string, error) {
	in := body{"model": t.model}
	if _, err := in.prompt(t, &r.Prompt); err != nil {
		return "", err
	}
	ctx, done, err := d.question(ctx, r.ID)
	if err != nil {
		return "", err
	}
	defer done()
	return d.rendered(ctx, servers[t.kind], in)
}

// finished is the stream of a request that came with all the tokens that it may make.
func (d *Driver) finished(ctx context.Context, r *engine.Request) engine.Stream {
	made := r.Made()
	out := newOutput(func(error) {})
	if tokens, err := d.Tokenize(ctx, r.Prompt); err == nil { // else its length stays unknown
		out.begin(len(tokens))
	}
	out.push(engine.Chunk{Finish: engine.FinishLength, Usage: engine.Usage{Prompt: out.PromptTokens(), Completion: made}})
	out.end(io.EOF)
	return out
}
