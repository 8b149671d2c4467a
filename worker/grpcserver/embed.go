package grpcserver

import (
	"context"
	"strconv"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// Embed returns a vector for each input.
func (s *Server) Embed(ctx context.Context, q *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	out, err := s.embed(ctx, q)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, status(err)
	}
	r := &workerv1.EmbedResponse{PromptTokens: tokens(out.PromptTokens)}
	for _, v := range out.Vectors {
		r.Vectors = append(r.Vectors, &workerv1.Vector{Values: v})
	}
	return r, nil
}

func (s *Server) embed(ctx context.Context, q *workerv1.EmbedRequest) (*engine.Embeddings, error) {
	if err := s.meant(q); err != nil {
		return nil, err
	}
	e, err := s.ready()
	if err != nil {
		return nil, err
	}
	if !e.Info().Caps.Embeddings {
		return nil, errNoEmbeddings
	}
	inputs, err := inputs(q.GetInputs())
	if err != nil {
		return nil, err
	}
	return e.Embed(ctx, &engine.EmbedRequest{ID: clip(q.GetRequestId()), Inputs: inputs})
}

func inputs(list []*workerv1.EmbedInput) ([]engine.Prompt, error) {
	if n := len(list); n == 0 || n > maxInputs {
		return nil, invalid("input", "there are %d inputs; 1 to %d are allowed", n, maxInputs)
	}
	out := make([]engine.Prompt, len(list))
	for i, in := range list {
		var err error
		switch x := in.GetInput().(type) {
		case *workerv1.EmbedInput_Text:
			out[i], err = textPrompt(x.Text)
		case *workerv1.EmbedInput_Tokens:
			out[i], err = tokenPrompt(x.Tokens)
		default:
			err = invalid("prompt", "there is none")
		}
		if err != nil {
			bad := err.(*engine.InvalidError) //nolint:errorlint // the constructors above return nothing else
			return nil, invalid("input["+strconv.Itoa(i)+"]", "%s", bad.Message)
		}
	}
	return out, nil
}
