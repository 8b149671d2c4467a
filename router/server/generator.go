package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/prefix"
	"github.com/ringfleet/ringfleet/router/queue"
	"github.com/ringfleet/ringfleet/router/upstream"
)

// generator gives the gateway's calls to the queue and to package upstream, and puts what comes back into the gateway's words.
type generator struct{ fleet *fleet }

// Waits is gateway.Generator's.
func (g *generator) Waits(modelUID string) string { return g.fleet.waits(modelUID) }

// enter waits until a call may run, and returns its first place.
func (g *generator) enter(ctx context.Context, c *gateway.Call, q *placement.Request) (*queue.Pass, *placement.Ticket, error) {
	f := g.fleet
	var first *placement.Ticket
	item := &queue.Item{
		RequestID: c.RequestID, Model: c.ModelUID, Tenant: c.Tenant, Tier: (*f.tiers.Load())[c.Tier],
		Tokens: f.board.Estimate(q), Bytes: int64(q.PromptBytes), Deadline: c.Deadline,
		Try: func(now time.Time) (err error) {
			first, err = f.board.Place(q, now)
			return err
		},
	}
	pass, err := f.gate.Enter(ctx, item)
	if err != nil {
		return nil, nil, err
	}
	if name, known := f.label(c.ModelUID); known {
		f.set.QueueWait.WithLabelValues(name).Observe(pass.Waited.Seconds())
		f.set.ExpectedCached.WithLabelValues(name).Add(float64(first.Decision().Chosen.Cached))
	}
	return pass, first, nil
}

// Generate is gateway.Generator's.
func (g *generator) Generate(ctx context.Context, c *gateway.Call) (gateway.Stream, error) {
	place := placement.Request{
		ModelUID: c.ModelUID, RequestID: c.RequestID, Adapter: c.Adapter, Key: c.Key, Chain: chain(c),
		PromptBytes: len(c.Chat.Tools) + len(c.Chat.Messages), MaxTokens: c.Chat.MaxTokens,
	}
	pass, first, err := g.enter(ctx, c, &place)
	if err != nil {
		return nil, g.fault(c, err)
	}
	proto := question(c.Chat, c.Adapter)
	proto.Priority = c.Priority
	s, err := g.fleet.calls.Generate(ctx, upstream.Request{
		Place: place, First: first, Proto: proto, FirstByte: c.FirstByte, Idle: c.Idle,
		Resume: g.fleet.resume.Load(), Restart: !c.Chat.Stream,
	})
	if err != nil {
		pass.Done(unknown)
		return nil, g.fault(c, err)
	}
	return &stream{Stream: s, g: g, call: c, pass: pass, prompt: s.PromptTokens()}, nil
}

// unknown is the number of tokens of a call that came to no end.
const unknown = -1

// chain is what the prefix index knows a chat by.
func chain(c *gateway.Call) prefix.Chain {
	b := prefix.Begin(nil, c.ModelUID, c.Adapter)
	b.Write(c.Chat.Tools)
	b.Write(c.Chat.Messages[:len(c.Chat.Messages)-1]) // the next turn has more where this one closes its array
	return b.Chain()
}

// Embed is gateway.Generator's.
func (g *generator) Embed(ctx context.Context, c *gateway.Call) (*gateway.Embeddings, error) {
	place := placement.Request{ModelUID: c.ModelUID, RequestID: c.RequestID, Key: c.Key}
	for _, in := range c.Embedding.Inputs {
		place.PromptBytes += len(in.Text)
		place.PromptTokens += uint32(len(in.Tokens))
	}
	pass, first, err := g.enter(ctx, c, &place)
	if err != nil {
		return nil, g.fault(c, err)
	}
	tokens := int64(unknown)
	defer func() { pass.Done(tokens) }()
	got, err := g.fleet.calls.Embed(ctx, upstream.EmbedRequest{Place: place, First: first, Limit: c.FirstByte, Inputs: inputs(c.Embedding)})
	if err != nil {
		return nil, g.fault(c, err)
	}
	tokens = int64(got.GetPromptTokens())
	out := &gateway.Embeddings{PromptTokens: got.GetPromptTokens(), Worker: got.Worker, Reason: got.Reason}
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
	pass   *queue.Pass
	prompt uint32 // not told yet
	tokens int64  // of the choices that have ended, and of the prompt
}

// Next is gateway.Stream's.
func (s *stream) Next() (gateway.Event, error) {
	r, err := s.Stream.Next()
	switch {
	case errors.Is(err, upstream.ErrAgain):
		return gateway.Event{}, gateway.ErrAgain
	case errors.Is(err, io.EOF):
		err = &upstream.Error{Kind: upstream.ErrLost, Worker: s.Worker(), Detail: "read beyond the end"}
	}
	if err != nil {
		return gateway.Event{}, s.g.fault(s.call, err)
	}
	event := answer(r)
	event.PromptTokens, s.prompt = s.prompt, 0
	if event.Finish != "" {
		s.tokens = max(s.tokens, int64(event.Usage.Prompt)) + int64(event.Usage.Completion)
	}
	return event, nil
}

// Close is gateway.Stream's.
func (s *stream) Close() {
	s.Stream.Close()
	if s.tokens == 0 {
		s.tokens = unknown
	}
	s.pass.Done(s.tokens)
}

// fault puts an error of package upstream into the gateway's words. The end of the call's context stays what it is.
func (g *generator) fault(c *gateway.Call, err error) error {
	f := &gateway.Fault{Kind: gateway.Lost, Err: err}
	var on *upstream.Error
	if errors.As(err, &on) {
		f.Worker = on.Worker
	}
	if waited := g.waited(c, err); waited != nil {
		return waited
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
	case errors.Is(err, upstream.ErrQuarantined):
		f.Kind = gateway.Quarantined
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
		f.Kind, f.Message = g.fleet.state(c.ModelUID).say()
	case errors.Is(err, placement.ErrNoWorker): // they were asked, and refused
		f.Kind, f.Message, f.RetryAfter = gateway.NoCapacity, "No worker of the model took the request.", 2*time.Second
	case errors.Is(err, upstream.ErrFailed):
		f.Message = "The worker's engine failed."
	case errors.Is(err, upstream.ErrLost):
		f.Message = "The worker was lost before the answer was complete."
	default:
		return err
	}
	if on != nil && on.Stays != "" {
		f.Message += " The answer could not go on at another one: " + on.Stays + "."
	}
	return f
}
