package server

import (
	"context"
	"errors"
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

// way is what is known of a call from its turns so far.
type way struct {
	waited time.Duration
	held   bool // in any of them
	lost   int  // workers, at work on it
	alone  bool // it came back because its only worker was
	placed bool // in the last turn
	cached int  // tokens of its prompt, as was thought then
}

// enter waits until a call may run, and returns its first place.
func (g *generator) enter(ctx context.Context, c *gateway.Call, q *placement.Request, w *way) (*queue.Pass, *placement.Ticket, error) {
	f := g.fleet
	w.placed = false
	var first *placement.Ticket
	item := &queue.Item{
		RequestID: c.RequestID, Model: c.ModelUID, Tenant: c.Tenant, Tier: (*f.tiers.Load())[c.Tier],
		Tokens: f.board.Estimate(q), Bytes: int64(q.PromptBytes), Deadline: c.Deadline,
		Waited: w.waited, WasHeld: w.held,
		Try: func(now time.Time) (err error) {
			if q.Chain == nil && c.Chat != nil {
				q.Chain = chain(c) // not before the request may be placed: at an overload most are not
			}
			first, err = f.board.Place(q, now)
			return err
		},
	}
	pass, err := f.gate.Enter(ctx, item)
	if err != nil {
		return nil, nil, err
	}
	w.waited, w.held, w.placed, w.cached = pass.Waited, pass.Held, true, first.Decision().Chosen.Cached
	return pass, first, nil
}

// Generate is gateway.Generator's.
func (g *generator) Generate(ctx context.Context, c *gateway.Call) (gateway.Stream, error) {
	place := placement.Request{
		ModelUID: c.ModelUID, RequestID: c.RequestID, Adapter: c.Adapter, Key: c.Key,
		PromptBytes: len(c.Chat.Tools) + len(c.Chat.Messages), MaxTokens: c.Chat.MaxTokens, Choices: int(c.Chat.Choices),
	}
	message := question(c.Chat, c.Adapter)
	message.Priority, message.CacheSalt = c.Priority, c.Salt
	var s *upstream.Stream
	pass, err := g.run(ctx, c, &place, func(first *placement.Ticket, lost int) (err error) {
		s, err = g.fleet.calls.Generate(ctx, upstream.Request{
			Place: place, First: first, Lost: lost, Proto: message, FirstByte: c.FirstByte, Idle: c.Idle,
			Resume: g.fleet.resume.Load(), Restart: !c.Chat.Stream,
		})
		return err
	})
	if err != nil {
		return nil, g.fault(c, err)
	}
	return &stream{Stream: s, g: g, call: c, pass: pass, prompt: s.PromptTokens()}, nil
}

// mostTurns is how often a request may wait for its turn.
const mostTurns = 3

// run waits for a call's turn and makes it. Where nobody took it, because the workers refused or were lost before anybody
// did any work, and the others have no room, or there are none that might take it, it waits for its turn again. So it does,
// once, where the only worker was lost at work on it and nothing was answered: with others it would have been tried there.
// All turns together wait no longer than one may, and lose no more workers. Call is told how many were lost.
func (g *generator) run(ctx context.Context, c *gateway.Call, q *placement.Request, call func(first *placement.Ticket, lost int) error) (*queue.Pass, error) {
	w := way{}
	for turn := 1; ; turn++ {
		pass, err := g.turn(ctx, c, q, &w, call)
		if err == nil || turn == mostTurns || !g.again(c, &w, err) {
			if w.placed {
				g.fleet.count(c.ModelUID, func(name string) { g.fleet.set.Entered(name, w.waited, float64(w.cached)) })
			}
			return pass, err
		}
	}
}

// again reports whether a call whose turn ended with err waits for its turn again.
func (g *generator) again(c *gateway.Call, w *way, err error) bool {
	var on *upstream.Error
	if errors.As(err, &on) {
		w.lost = on.Lost
	}
	nobody := g.fleet.board.View(c.ModelUID).Sound() == 0
	switch {
	case errors.Is(err, placement.ErrNoWorker):
	case on != nil && on.Alone && !w.alone:
		w.alone = true
	default:
		nobody = false
	}
	return nobody || errors.Is(err, placement.ErrNoRoom)
}

// turn waits for a call's turn and makes it. Whatever comes of it, a panic too, its place is given back unless it runs.
func (g *generator) turn(ctx context.Context, c *gateway.Call, q *placement.Request, w *way, call func(*placement.Ticket, int) error) (*queue.Pass, error) {
	pass, first, err := g.enter(ctx, c, q, w)
	if err != nil {
		return nil, err
	}
	runs := false
	defer func() {
		if !runs {
			first.Ended(placement.Result{}, g.fleet.clock.Now())
			pass.Done(unknown)
		}
	}()
	if err := call(first, w.lost); err != nil {
		return nil, err
	}
	runs = true
	return pass, nil
}

// unknown is the number of tokens of a call that came to no end.
const unknown = -1

// chain is what the prefix index knows a chat by.
func chain(c *gateway.Call) prefix.Chain {
	b := prefix.Begin(nil, c.ModelUID, c.Adapter, c.Salt)
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
	var got *upstream.Embeddings
	pass, err := g.run(ctx, c, &place, func(first *placement.Ticket, lost int) (err error) {
		got, err = g.fleet.calls.Embed(ctx, upstream.EmbedRequest{
			Place: place, First: first, Lost: lost, Limit: c.FirstByte, Inputs: inputs(c.Embedding),
		})
		return err
	})
	if err != nil {
		return nil, g.fault(c, err)
	}
	pass.Done(int64(got.GetPromptTokens()))
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
		s.tokens = 0
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
