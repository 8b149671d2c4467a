package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
)

// EmbedRequest is one request for embeddings.
type EmbedRequest struct {
	Place  placement.Request // as a Request's
	First  *placement.Ticket // as a Request's
	Inputs []*workerv1.EmbedInput
	Lost   int // as a Request's
	// Limit is how long each worker may take; 0 means without limit.
	Limit time.Duration
}

// Embeddings are the answer, the pod that made it, and why that one was chosen.
type Embeddings struct {
	*workerv1.EmbedResponse
	Worker, Reason string
}

// Embed runs r. Another worker is tried as Generate does before the first piece. Ending ctx ends the worker's work.
func (c *Client) Embed(ctx context.Context, r EmbedRequest) (*Embeddings, error) {
	var out *Embeddings
	q := newSearch(&r.Place, r.First, &workerv1.EmbedRequest{Inputs: r.Inputs}, r.Lost)
	err := c.seek(&q, func(t ticket, extra bool) (*seat, failure) {
		s := &seat{worker: t.Worker(), extra: extra, began: c.options.Clock.Now()}
		got, f := c.embed(ctx, &r, s)
		now := c.options.Clock.Now()
		if f.err != nil {
			t.Ended(placement.Result{}, now)
			return s, f
		}
		t.Accepted(got.GetPromptTokens(), now)
		t.Ended(placement.Result{Answered: true, PromptTokens: got.GetPromptTokens()}, now)
		c.report(s, Good, false)
		out = &Embeddings{got, s.worker.Pod, t.Reason()}
		return s, f
	})
	if err != nil {
		return nil, err
	}
	c.acquit(&q)
	return out, nil
}

// embed asks one worker.
func (c *Client) embed(caller context.Context, r *EmbedRequest, s *seat) (*workerv1.EmbedResponse, failure) {
	ctx, cancel := context.WithCancelCause(caller)
	defer cancel(nil)
	s.cancel = cancel
	defer c.release(s)
	if err := c.acquire(s); err != nil {
		return nil, failure{err: err, idle: true, gone: lives}
	}
	if r.Limit > 0 {
		timer := c.options.Clock.AfterFunc(r.Limit, func() { cancel(ErrFirstByte) })
		defer timer.Stop()
	}
	var from grpcpeer.Peer
	var said metadata.MD
	out, err := workerv1.NewWorkerClient(s.peer.conn).Embed(ctx, &workerv1.EmbedRequest{
		ExpectedInstanceId: s.worker.Instance, ExpectedRevision: s.worker.Revision, ExpectedModelUid: r.Place.ModelUID,
		RequestId: r.Place.RequestID, Inputs: r.Inputs,
	}, grpc.Peer(&from), grpc.Trailer(&said))
	if err == nil {
		return out, failure{}
	}
	// Where a connection was there and the worker has said nothing, not even an error, it may have been at work.
	e := ending{caller: caller, ctx: ctx, pod: s.worker.Pod, started: from.Addr != nil && len(said) == 0}
	if status.Code(err) == codes.Unimplemented {
		return nil, e.as(ErrNoEmbeddings, nothing, status.Convert(err).Message())
	}
	f := e.judge(err)
	if errors.Is(f.err, ErrFirstByte) {
		f.outcome = 0 // how much there was to do is the client's choice
	}
	var invalid *InvalidError
	if status.Code(err) == codes.ResourceExhausted && errors.As(f.err, &invalid) {
		invalid.Field = "input"
		invalid.Message = fmt.Sprintf("The embeddings of the %d inputs have more than %d MiB together. Send fewer at once.", len(r.Inputs), maxReceive>>20)
	}
	return nil, f
}
