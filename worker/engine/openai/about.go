package openai

import (
	"context"
	"fmt"
	"net/http"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// about is what a server says of itself, and what it was seen to do.
type about struct {
	kind  Kind
	model string
	// Zero is unknown.
	context, vocab, slots int
	tools, embeddings     bool
	blind                 bool // its template shows no tools to the model, although it takes them
	loaded                bool
}

func (a *about) contextTokens(o *Options) int {
	if a.context > 0 {
		return a.context
	}
	return o.ContextTokens
}

func (a *about) sequences(o *Options) int {
	if a.slots > 0 {
		return a.slots
	}
	return o.MaxSequences
}

func (a *about) target(o *Options) target {
	return target{kind: a.kind, model: a.model, context: a.contextTokens(o), vocab: a.vocab, tools: a.tools, priorities: o.Priorities}
}

func (a *about) info(o *Options) engine.Info {
	if !a.loaded {
		return engine.Info{}
	}
	s := servers[a.kind]
	return engine.Info{
		Model: a.model, ContextTokens: a.contextTokens(o), Vocab: a.vocab,
		Caps: engine.Caps{
			Device: fmt.Sprintf("an engine of kind %s", a.kind), Vocab: a.vocab, MaxSeqs: a.sequences(o),
			Embeddings: a.embeddings, Adapters: o.Adapters && s.loadAdapter != "", Logprobs: s.logprobs,
			Tools: a.tools, JSONObject: true, Resumes: s.resumes(),
		},
	}
}

// modelList is the answer of /v1/models.
type modelList struct {
	Data []struct {
		ID      string `json:"id"`
		Owner   string `json:"owned_by"`
		Parent  string `json:"parent"` // of an adapter
		Context int    `json:"max_model_len"`
		Meta    *struct {
			Vocab   int `json:"n_vocab"`
			Context int `json:"n_ctx"`
		} `json:"meta"`
	} `json:"data"`
}

// Numbers beyond these no server means.
const mostContext, mostVocab, mostSlots = 1 << 28, 1 << 24, 1 << 16

// sound returns n, or 0 where it is no sound number.
func sound(n, most int) int {
	if n < 0 || n > most {
		return 0
	}
	return n
}

// describe asks a server what it is.
func (d *Driver) describe(ctx context.Context) (about, error) {
	a := about{kind: d.o.Kind, model: d.o.Model}
	var models modelList
	if err := d.step(ctx, http.MethodGet, modelsPath, nil, &models); err != nil {
		return a, fmt.Errorf("%s: %w", modelsPath, err)
	}
	found := false
	for _, m := range models.Data {
		if found || m.Parent != "" || d.o.Model != "" && m.ID != d.o.Model {
			continue
		}
		found = true
		a.model, a.context = m.ID, sound(m.Context, mostContext)
		if m.Meta != nil {
			a.vocab = sound(m.Meta.Vocab, mostVocab)
		}
		if a.kind == OpenAI {
			a.kind = kindOf(m.Owner)
		}
	}
	if !found {
		return a, fmt.Errorf("%s: of %d models none is %q", modelsPath, len(models.Data), d.o.Model)
	}
	if path := servers[a.kind].properties; path != "" {
		var properties struct {
			Slots    int `json:"total_slots"`
			Settings struct {
				Context int `json:"n_ctx"`
			} `json:"default_generation_settings"`
			Template struct {
				Tools *bool `json:"supports_tools"`
			} `json:"chat_template_caps"`
		}
		if err := d.step(ctx, http.MethodGet, path, nil, &properties); err != nil {
			return a, fmt.Errorf("%s: %w", path, err)
		}
		a.slots, a.context = sound(properties.Slots, mostSlots), sound(properties.Settings.Context, mostContext)
		a.blind = properties.Template.Tools != nil && !*properties.Template.Tools
	}
	return a, nil
}

// prove makes the server generate a token, or embed one where it is a server of embeddings, and finds out what else it
// can do.
func (d *Driver) prove(ctx context.Context, a *about) error {
	err := d.complete(ctx, completionPath, map[string]any{"model": a.model, "prompt": "Hello", "max_tokens": 1, "temperature": 0})
	hello := []map[string]any{{"role": "user", "content": "Hello"}}
	chat := map[string]any{"model": a.model, "messages": hello, "max_tokens": 1, "temperature": 0}
	if isMissing(err) {
		err = d.complete(ctx, chatPath, chat)
	}
	if err != nil && !isMissing(err) && !isInvalid(err) {
		return fmt.Errorf("a completion of one token: %w", err)
	}
	var vectors embeddings
	embedding := d.step(ctx, http.MethodPost, embeddingsPath, map[string]any{"model": a.model, "input": "Hello"}, &vectors)
	a.embeddings = embedding == nil && len(vectors.Data) == 1 && len(vectors.Data[0].Vector.values) > 0
	if err != nil {
		if a.embeddings {
			return nil
		}
		return fmt.Errorf("a completion of one token: %w", err)
	}
	if a.blind {
		return nil
	}
	chat["tools"] = []map[string]any{{"type": "function", "function": map[string]any{
		"name": "nothing", "description": "Does nothing.", "parameters": map[string]any{"type": "object", "properties": map[string]any{}},
	}}}
	chat["tool_choice"] = "auto"
	a.tools = d.complete(ctx, chatPath, chat) == nil
	return nil
}

// complete asks for a completion that is no stream, and looks whether the answer is one.
func (d *Driver) complete(ctx context.Context, path string, b map[string]any) error {
	var answer struct {
		Choices []struct {
			Finish *string `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := d.step(ctx, http.MethodPost, path, b, &answer); err != nil {
		return err
	}
	if len(answer.Choices) != 1 || answer.Choices[0].Finish == nil {
		return errGarbage
	}
	return nil
}

// step asks within the time that one step of proving may take.
func (d *Driver) step(ctx context.Context, method, path string, in, out any) error {
	ctx, done := d.within(ctx, d.o.Warmup)
	defer done()
	return d.client.ask(ctx, method, path, in, out, "prompt", "")
}
