package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ringfleet/ringfleet/router/placement"
)

// What can go wrong, for errors.Is. Besides these there are *InvalidError, placement.ErrNoWorker and, when the caller
// went away, the error of its context.
var (
	// ErrRefused: nobody who was asked took the request, and no work was done. It is a placement.ErrNoWorker as well.
	ErrRefused = errors.New("the worker did not take the request")
	// ErrBusy: the worker's queue is full.
	ErrBusy = errors.New("the worker's queue is full")
	// ErrLost: the worker or the connection to it died while it worked.
	ErrLost = errors.New("the worker was lost")
	// ErrFailed: the worker's engine failed.
	ErrFailed = errors.New("the worker's engine failed")
	// ErrFirstByte: the worker took too long until the first token.
	ErrFirstByte = errors.New("the first token took too long")
	// ErrNoAdapter: the worker has not loaded the adapter that the request names, and has done no work.
	ErrNoAdapter = errors.New("the worker has not loaded the adapter")
	// ErrNoEmbeddings: the model's engine makes none.
	ErrNoEmbeddings = errors.New("the model's engine makes no embeddings")
	// ErrTooLarge: the request has more bytes than a worker takes.
	ErrTooLarge = errors.New("the request is larger than the worker takes")
	// ErrSlowReader: the worker has ended the answer, because too much of it lay unread.
	ErrSlowReader = errors.New("the answer was read too slowly")
	// ErrIdle: the stream stood still for too long between two tokens.
	ErrIdle = errors.New("the stream stood still for too long")
)

// Error is one of the errors above with the worker that it happened on.
type Error struct {
	Kind   error  // one of the variables above
	Worker string // the pod's name
	Detail string // what the worker or the connection said; may be empty
}

// Error names the kind, the worker and the detail.
func (e *Error) Error() string {
	s := fmt.Sprintf("call %s: %s", e.Worker, e.Kind)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Is matches the kind; a refusal is a placement.ErrNoWorker too.
func (e *Error) Is(target error) bool {
	return target == e.Kind || target == placement.ErrNoWorker && e.Kind == ErrRefused
}

// InvalidError is a request that no worker of the model can ever run.
type InvalidError struct {
	Field   string // of the worker's request; may be empty
	Code    string // OpenAI's, where the worker knows one
	Message string
}

// Error is the message, with the field before it.
func (e *InvalidError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// failure is an error with what follows from it.
type failure struct {
	err     error
	retry   bool // another worker may be tried if the client has nothing yet
	suspect bool // new requests had better go elsewhere
	without bool // it lacks the adapter; others are asked as if it had not been
}

// kind names the error without what the worker said. Before the first try of a call that goes on with a request, the
// loss that it goes on after.
func (f failure) kind() string {
	var on *Error
	if errors.As(f.err, &on) {
		return on.Kind.Error()
	}
	return ErrLost.Error()
}

// attempt is one call of one worker.
type attempt struct {
	caller  context.Context // the request's
	ctx     context.Context // the call's own; its cause is known when the client itself ended it
	pod     string
	started bool // the worker may have worked on it
	shown   bool // a piece of the answer has come: the request waits in no queue
	adapter bool // it names one
}

func (a attempt) as(kind error, retry, suspect bool, detail string) failure {
	return failure{err: &Error{Kind: kind, Worker: a.pod, Detail: detail}, retry: retry, suspect: suspect}
}

// judge is the only place that turns what ended an attempt into an error.
func (a attempt) judge(err error) failure {
	if a.caller.Err() != nil {
		return failure{err: a.caller.Err()}
	}
	for _, kind := range []error{ErrFirstByte, ErrIdle} {
		if errors.Is(context.Cause(a.ctx), kind) {
			return a.as(kind, false, false, "")
		}
	}
	if errors.Is(context.Cause(a.ctx), ErrLost) {
		return a.as(ErrLost, true, true, "its heartbeats ended")
	}
	if errors.Is(err, io.EOF) {
		return a.as(ErrLost, true, false, "the stream ended without an end of the answer")
	}
	s, _ := status.FromError(err)
	switch s.Code() {
	case codes.InvalidArgument:
		return a.invalid(s)
	case codes.ResourceExhausted:
		return a.exhausted(s.Message())
	case codes.FailedPrecondition:
		return a.as(ErrRefused, true, true, s.Message())
	case codes.Unavailable:
		if !a.started {
			return a.as(ErrRefused, true, true, s.Message())
		}
		return a.as(ErrLost, true, true, s.Message())
	case codes.Canceled, codes.DeadlineExceeded:
		return a.as(ErrLost, true, false, s.Message())
	case codes.Internal, codes.Unknown:
		return a.as(ErrFailed, true, false, s.Message())
	}
	return a.as(ErrFailed, false, false, s.Code().String()+": "+s.Message())
}

// exhausted tells apart what has the code of a full queue. gRPC has it, with one text, for an answer over the router's
// limit and for a request over the worker's: only the limit in the text says whose it is.
func (a attempt) exhausted(message string) failure {
	var has, most int
	switch n, _ := fmt.Sscanf(message, tooLarge, &has, &most); {
	case n == 2 && most == maxReceive:
		return failure{err: &InvalidError{Message: fmt.Sprintf("A part of the answer has more than %d MiB.", maxReceive>>20)}}
	case n == 2:
		return a.as(ErrTooLarge, false, false, fmt.Sprintf("%d bytes of %d", has, most))
	case a.shown:
		return a.as(ErrSlowReader, false, false, message)
	}
	return a.as(ErrBusy, false, false, message)
}

// tooLarge is gRPC's refusal of a message over a limit.
const tooLarge = "grpc: received message larger than max (%d vs. %d)"

// codeModelNotFound is the code of a worker that does not have what a request is for.
const codeModelNotFound = "model_not_found"

// invalid tells a request that no worker can run from one that this worker can't. Which model a request is for is the
// router's choice: only an adapter can be one that the client is wrong about.
func (a attempt) invalid(s *status.Status) failure {
	e := invalid(s)
	switch {
	case e.Code != codeModelNotFound:
		return failure{err: e}
	case a.adapter:
		f := a.as(ErrNoAdapter, true, false, e.Message)
		f.without = true
		return f
	}
	return a.as(ErrRefused, true, true, e.Message)
}

// invalid reads the field that the worker objects to.
func invalid(s *status.Status) *InvalidError {
	for _, d := range s.Details() {
		if b, ok := d.(*errdetails.BadRequest); ok && len(b.GetFieldViolations()) > 0 {
			v := b.GetFieldViolations()[0]
			return &InvalidError{Field: v.GetField(), Code: v.GetReason(), Message: v.GetDescription()}
		}
	}
	return &InvalidError{Message: s.Message()}
}
