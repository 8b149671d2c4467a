package scheduler

import (
	"context"
	"fmt"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// Embed returns one vector for each input.
func (s *scheduler) Embed(context.Context, *engine.EmbedRequest) (*engine.Embeddings, error) {
	return nil, &engine.InvalidError{Field: "model", Message: "this model makes no embeddings here"}
}

// LoadAdapter makes requests for an adapter possible.
func (s *scheduler) LoadAdapter(_ context.Context, a engine.Adapter) error {
	return &engine.InvalidError{Field: "adapter", Message: fmt.Sprintf("adapter %q: this engine has no adapters", a.Name)}
}

// UnloadAdapter forgets an adapter.
func (s *scheduler) UnloadAdapter(_ context.Context, name string) error {
	return &engine.InvalidError{Field: "adapter", Message: fmt.Sprintf("adapter %q: this engine has no adapters", name)}
}
