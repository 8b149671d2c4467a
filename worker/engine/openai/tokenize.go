package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// Tokenize asks the server for the tokens of a prompt. A server without such an endpoint refuses with an
// *engine.InvalidError.
func (d *Driver) Tokenize(ctx context.Context, p engine.Prompt) ([]engine.Token, error) {
	d.mu.Lock()
	err, t := d.refusal(), d.about.target(&d.o)
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s := servers[t.kind]
	switch {
	case p.Tokens != nil:
		return p.Tokens, checkTokens(t, p.Tokens)
	case s.tokenize == "":
		return nil, invalid(fieldOf(&p), "an engine of kind %s has no tokenizer to ask", t.kind)
	}
	in := body{"model": t.model}
	if _, err := in.prompt(t, &p); err != nil {
		return nil, err
	}
	delete(in, "tool_choice")
	ctx, done, err := d.question(ctx, "")
	if err != nil {
		return nil, err
	}
	defer done()
	if s.template != "" {
		if in, err = d.render(ctx, s, in, p); err != nil {
			return nil, err
		}
	}
	var out struct {
		Tokens []engine.Token `json:"tokens"`
	}
	if err := d.answer(ctx, 1, s.tokenize, in, &out, fieldOf(&p)); err != nil {
		return nil, err
	}
	if out.Tokens == nil {
		return nil, broken(errGarbage)
	}
	for _, token := range out.Tokens {
		if err := inside(token, t.vocab); err != nil {
			return nil, broken(err)
		}
	}
	return out.Tokens, nil
}

// render makes the body of llama-server's tokenizer, which takes text only.
func (d *Driver) render(ctx context.Context, s *server, in body, p engine.Prompt) (body, error) {
	text := p.Text
	if p.Chat != nil {
		var err error
		if text, err = d.rendered(ctx, s, in); err != nil {
			return nil, err
		}
	}
	return body{"content": text, "add_special": true, "parse_special": true}, nil
}

// rendered asks the server for the text of a chat.
func (d *Driver) rendered(ctx context.Context, s *server, chat body) (string, error) {
	var out struct {
		Prompt string `json:"prompt"`
	}
	err := d.answer(ctx, 1, s.template, chat, &out, "messages")
	return out.Prompt, err
}

// maxInputs is how many texts one request for embeddings holds, so that its answer stays small.
const maxInputs = 64

// embeddings is the answer of /v1/embeddings.
type embeddings struct {
	Data []struct {
		Index  int    `json:"index"`
		Vector vector `json:"embedding"`
	} `json:"data"`
	Usage wireUsage `json:"usage"`
}

// vector is an embedding as numbers or as base64 of little-endian float32.
type vector struct{ values []float32 }

// UnmarshalJSON reads either form.
func (v *vector) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var raw []byte
		if err := json.Unmarshal(data, &raw); err != nil {
			return err
		}
		return v.decode(raw)
	}
	return json.Unmarshal(data, &v.values)
}

// Embed asks the server for embeddings, and gives them unit length.
func (d *Driver) Embed(ctx context.Context, r *engine.EmbedRequest) (*engine.Embeddings, error) {
	d.mu.Lock()
	err, t, able := d.refusal(), d.about.target(&d.o), d.about.embeddings
	d.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case !able:
		return nil, invalid("model", "this engine, of kind %s, makes no embeddings", t.kind)
	case len(r.Inputs) == 0:
		return nil, invalid("input", "there are no inputs")
	}
	inputs := make([]any, len(r.Inputs))
	for i := range r.Inputs {
		if inputs[i], err = embedInput(t, &r.Inputs[i], i); err != nil {
			return nil, err
		}
	}
	ctx, done, err := d.question(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	out := &engine.Embeddings{}
	for len(inputs) > 0 {
		n := min(len(inputs), maxInputs)
		if err := d.embed(ctx, t, inputs[:n], out); err != nil {
			return nil, err
		}
		inputs = inputs[n:]
	}
	return out, nil
}

func embedInput(t target, p *engine.Prompt, i int) (any, error) {
	switch {
	case p.Chat != nil:
		return nil, invalid("input", "input %d is a chat; expected a text or tokens", i)
	case p.Tokens != nil:
		return p.Tokens, checkTokens(t, p.Tokens)
	case p.Text == "" || !utf8.ValidString(p.Text):
		return nil, invalid("input", "input %d is empty or not valid UTF-8", i)
	}
	return p.Text, nil
}

func (d *Driver) embed(ctx context.Context, t target, inputs []any, out *engine.Embeddings) error {
	var got embeddings
	in := map[string]any{"model": t.model, "input": inputs, "encoding_format": "base64"}
	if err := d.answer(ctx, len(inputs), embeddingsPath, in, &got, "input"); err != nil {
		return err
	}
	vectors := make([][]float32, len(inputs))
	for _, e := range got.Data {
		if e.Index < 0 || e.Index >= len(vectors) || vectors[e.Index] != nil || !e.Vector.unit() {
			return broken(errGarbage)
		}
		vectors[e.Index] = e.Vector.values
	}
	if len(got.Data) != len(inputs) {
		return broken(fmt.Errorf("it made %d embeddings of %d inputs", len(got.Data), len(inputs)))
	}
	out.Vectors = append(out.Vectors, vectors...)
	for _, v := range out.Vectors {
		if len(v) != len(out.Vectors[0]) {
			return broken(fmt.Errorf("it made embeddings of %d and of %d numbers", len(out.Vectors[0]), len(v)))
		}
	}
	out.PromptTokens += got.Usage.Prompt
	return nil
}
