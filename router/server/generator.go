package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/upstream"
)

// generator gives the gateway's calls to package upstream, and puts what comes back into the gateway's words.
type generator struct {
	client *upstream.Client
	state  func(modelUID string) workersState // for the client's sentence where nobody can answer
}

// Generate is gateway.Generator's.
func (g *generator) Generate(ctx context.Context, c *gateway.Call) (gateway.Stream, error) {
	s, err := g.client.Generate(ctx, upstream.Request{
		ModelUID: c.ModelUID, Key: c.Key, RequestID: c.RequestID, Tried: c.Tried, FirstByte: c.FirstByte, Idle: c.Idle,
		Proto: question(c.Chat, c.Adapter),
	})
	if err != nil {
		return nil, g.fault(c, err)
	}
	return &stream{Stream: s, g: g, call: c, prompt: s.PromptTokens()}, nil
}

// Embed is gateway.Generator's.
func (g *generator) Embed(ctx context.Context, c *gateway.Call) (*gateway.Embeddings, error) {
	got, err := g.client.Embed(ctx, upstream.EmbedRequest{
		ModelUID: c.ModelUID, Key: c.Key, RequestID: c.RequestID, Limit: c.FirstByte, Inputs: inputs(c.Embedding),
	})
	if err != nil {
		return nil, g.fault(c, err)
	}
	out := &gateway.Embeddings{PromptTokens: got.GetPromptTokens(), Worker: got.Worker}
	if out.Vectors, err = vectors(got.GetVectors(), len(c.Embedding.Inputs)); err != nil {
		return nil, g.fault(c, &upstream.Error{Kind: upstream.ErrFailed, Worker: got.Worker, Detail: err.Error()})
	}
	return out, nil
}

// stream is one call's output.
type stream struct {
	*upstream.Stream
	g      *generator
	call   *gateway.Call
	prompt uint32 // not told yet
}

// Next is gateway.Stream's.
func (s *stream) Next() (gateway.Event, error) {
	r, err := s.Stream.Next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = &upstream.Error{Kind: upstream.ErrLost, Worker: s.Worker(), Detail: "read beyond the end"}
		}
		return gateway.Event{}, s.g.fault(s.call, err)
	}
	event := answer(r)
	event.PromptTokens, s.prompt = s.prompt, 0
	return event, nil
}

// fault puts an error of package upstream into the gateway's words. The end of the call's context stays what it is.
func (g *generator) fault(c *gateway.Call, err error) error {
	f := &gateway.Fault{Kind: gateway.Lost, Err: err}
	var on *upstream.Error
	if errors.As(err, &on) {
		f.Worker = on.Worker
	}
	var invalid *upstream.InvalidError
	var none *placement.NoWorkerError
	switch {
	case errors.As(err, &invalid):
		f.Kind, f.Message = gateway.Invalid, invalid.Message
		f.Param = param(invalid.Field)
		f.TooLong = invalid.Code == codeContextLength
	case errors.Is(err, upstream.ErrBusy):
		f.Kind = gateway.Busy
	case errors.Is(err, upstream.ErrTooLarge):
		f.Kind = gateway.TooLarge
		f.Message = fmt.Sprintf("The request is larger than a worker takes: %s. Send a shorter conversation or fewer inputs at once.", on.Detail)
	case errors.Is(err, upstream.ErrSlowReader):
		f.Kind = gateway.SlowReader
	case errors.Is(err, upstream.ErrNoAdapter):
		f.Kind, f.Param = gateway.NoAdapter, "model"
		f.Message = fmt.Sprintf("No worker that was asked has loaded the adapter %q. Where the model is being rolled out, send the request again later.", c.Adapter)
	case errors.Is(err, upstream.ErrNoEmbeddings):
		f.Kind, f.Param = gateway.Invalid, "model"
		f.Message = "The model makes no embeddings: it or its engine is not made for them. Ask for another model."
	case errors.Is(err, upstream.ErrFirstByte):
		f.Kind = gateway.NoFirstByte
		f.Message = fmt.Sprintf("The worker sent no token within %s.", c.FirstByte)
		if c.Embedding != nil {
			f.Message = fmt.Sprintf("The worker made no embeddings of the %d inputs within %s. Send fewer at once.", len(c.Embedding.Inputs), c.FirstByte)
		}
	case errors.Is(err, upstream.ErrIdle):
		f.Kind = gateway.Silent
		f.Message = fmt.Sprintf("The worker sent nothing for %s before the answer was complete.", c.Idle)
	case errors.As(err, &none) && none.Excluded == 0:
		f.Kind, f.Message = g.state(c.ModelUID).say()
	case errors.Is(err, placement.ErrNoWorker): // they were asked, and refused
		f.Kind, f.Message, f.RetryAfter = gateway.NoCapacity, "No worker of the model took the request.", 2*time.Second
	case errors.Is(err, upstream.ErrFailed):
		f.Message = "The worker's engine failed."
	case errors.Is(err, upstream.ErrLost):
	default:
		return err
	}
	return f
}

// workersState is what a model's workers do while none of them is in the ring.
type workersState struct {
	candidates, failed int
	stage              workerv1.Stage // of the one that is furthest
	percent            *uint32
}

// say tells a client what it waits for.
func (w workersState) say() (gateway.Kind, string) {
	switch {
	case w.candidates == 0:
		return gateway.NoCapacity, "The model has no worker now."
	case w.failed == w.candidates:
		return gateway.NoCapacity, fmt.Sprintf("None of the model's %d workers can load it; their InferenceModel says why.", w.candidates)
	}
	doing := map[workerv1.Stage]string{
		workerv1.Stage_STAGE_FETCHING: "fetching the weights",
		workerv1.Stage_STAGE_LOADING:  "loading the model",
		workerv1.Stage_STAGE_LOADED:   "about to be admitted",
		workerv1.Stage_STAGE_DRAINING: "going away",
	}[w.stage]
	if doing == "" {
		doing = "not heard yet"
	}
	if w.percent != nil {
		doing += fmt.Sprintf(", %d %% done", *w.percent)
	}
	return gateway.Loading, fmt.Sprintf("None of the model's %d workers takes requests yet; the furthest is %s.", w.candidates, doing)
}
