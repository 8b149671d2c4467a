// Package many is how requests follow one another on a stream of GenerateMany: the worker's loop over them, and how the end of
// one is written and read. It decides neither what comes of a request nor which stream one takes.
package many

import (
	"context"
	"errors"
	"fmt"
	"io"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

type (
	// Stream is the worker's side of a GenerateMany.
	Stream = grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]
	// One runs one request, as a worker's Generate does. Its context ends when it returns, and it sends nothing afterwards.
	One func(q *workerv1.GenerateRequest, out grpc.ServerStreamingServer[workerv1.GenerateResponse]) error
)

// Serve runs the requests of a stream, one after the other, until the caller has no more of them or stop is closed. A request
// that runs when stop is closed comes to its end, and what is sent while it runs is not read before. What Serve returns is the
// call's status, unless gRPC has refused what came: then it has said so itself.
func Serve(stream Stream, stop <-chan struct{}, run One) error {
	requests := make(chan *workerv1.GenerateRequest)
	next := make(chan struct{}, 1) // says that the next one may be read
	defer close(next)
	var broke error // once requests is closed
	go func() {
		defer close(requests)
		for range next {
			var q *workerv1.GenerateRequest
			if q, broke = stream.Recv(); broke != nil {
				return
			}
			select {
			case requests <- q:
			case <-stream.Context().Done(): // also when Serve has returned
				return
			}
		}
	}()
	for {
		next <- struct{}{}
		select {
		case <-stop:
			return nil
		case q, more := <-requests:
			switch {
			case more:
				if err := turn(stream, q, run); err != nil {
					return err
				}
			case errors.Is(broke, io.EOF):
				return nil
			default:
				return broke
			}
		}
	}
}

// turn runs one request and says that it has ended.
func turn(stream Stream, q *workerv1.GenerateRequest, run One) error {
	ctx, cancel := context.WithCancel(stream.Context())
	err := run(q, &answer{ServerStream: stream, ctx: ctx, attempt: q.GetAttemptId()})
	cancel()
	if stream.Context().Err() != nil {
		return status.FromContextError(stream.Context().Err()).Err()
	}
	return stream.Send(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Ended{Ended: ended(q.GetAttemptId(), err)}})
}

// answer is the part of a stream that belongs to one request.
type answer struct {
	grpc.ServerStream

	ctx     context.Context
	attempt string
}

// Context is the request's.
func (a *answer) Context() context.Context { return a.ctx }

// Send sends a part of the answer.
func (a *answer) Send(r *workerv1.GenerateResponse) error {
	if err := a.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if x := r.GetAccepted(); x != nil && x.GetAttemptId() != a.attempt {
		x = proto.CloneOf(x) // it may be sent elsewhere, too
		x.AttemptId = a.attempt
		r = &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Accepted{Accepted: x}}
	}
	return a.SendMsg(r)
}

func ended(attempt string, err error) *workerv1.Ended {
	e := &workerv1.Ended{AttemptId: attempt}
	if err == nil {
		return e
	}
	s, ok := status.FromError(err)
	if !ok { // as gRPC does with what a call returns
		s = status.FromContextError(err)
	}
	if e.Status, err = proto.Marshal(s.Proto()); err != nil { // a text that is not UTF-8
		e.Status, _ = proto.Marshal(&rpcstatus.Status{Code: int32(s.Code()), Message: "what it says can't be written"})
	}
	return e
}

// Err is the status of e as a call's error; nil where the answer came to its end. A status that can't be read is Unknown.
func Err(e *workerv1.Ended) error {
	if len(e.GetStatus()) == 0 {
		return nil
	}
	var s rpcstatus.Status
	if err := proto.Unmarshal(e.GetStatus(), &s); err != nil {
		return status.Error(codes.Unknown, fmt.Sprintf("the status of its end can't be read: %v", err))
	}
	return status.ErrorProto(&s)
}
