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
	ModelUID  string
	Key       []byte // as a Request's
	RequestID string
	Inputs    []*workerv1.EmbedInput
	// Limit is how long each worker may take; 0 means without limit.
	Limit time.Duration
}

// Embeddings are the answer and the pod that made it.
type Embeddings struct {
	*workerv1.EmbedResponse
	Worker string
}

// Embed runs r. Another worker is tried as Generate does before the first piece. Ending ctx ends the worker's work.
func (c *Client) Embed(ctx context.Context, r EmbedRequest) (*Embeddings, error) {
	var out *Embeddings
	err := c.seek(search{modelUID: r.ModelUID, requestID: r.RequestID, key: r.Key}, func(w placement.Worker, _ int) failure {
		got, f := c.embed(ctx, &r, w)
		out = &Embeddings{got, w.Pod}
		return f
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// embed asks one worker.
func (c *Client) embed(caller context.Context, r *EmbedRequest, w placement.Worker) (*workerv1.EmbedResponse, failure) {
	p, err := c.acquire(w)
	if err != nil {
		return nil, failure{err: err}
	}
	defer c.release(w, p)
	ctx, cancel := context.WithCancelCause(caller)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })()
	if r.Limit > 0 {
		timer := c.options.Clock.AfterFunc(r.Limit, func() { cancel(ErrFirstByte) })
		defer timer.Stop()
	}
	var from grpcpeer.Peer
	var said metadata.MD
	out, err := workerv1.NewWorkerClient(p.conn).Embed(ctx, &workerv1.EmbedRequest{
		ExpectedInstanceId: w.Instance, ExpectedRevision: w.Revision, ExpectedModelUid: r.ModelUID, RequestId: r.RequestID,
		Inputs: r.Inputs,
	}, grpc.Peer(&from), grpc.Trailer(&said))
	if err == nil {
		return out, failure{}
	}
	// Where a connection was there and the worker has said nothing, not even an error, it may have been at work.
	a := attempt{caller: caller, ctx: ctx, pod: w.Pod, started: from.Addr != nil && len(said) == 0}
	if status.Code(err) == codes.Unimplemented {
		return nil, a.as(ErrNoEmbeddings, false, false, status.Convert(err).Message())
	}
	f := a.judge(err)
	var invalid *InvalidError
	if status.Code(err) == codes.ResourceExhausted && errors.As(f.err, &invalid) {
		invalid.Field = "input"
		invalid.Message = fmt.Sprintf("The embeddings of the %d inputs have more than %d MiB together. Send fewer at once.", len(r.Inputs), maxReceive>>20)
	}
	return nil, f
}
