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
	s := fmt.Sprintf("generate on %s: %s", e.Worker, e.Kind)
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

// judge is the only place that turns what ended an attempt into an error. caller is the request's context, attempt the
// call's own (its cause is known when the client itself ended it), started whether the worker had accepted.
func judge(caller, attempt context.Context, pod string, started bool, err error) failure {
	as := func(kind error, retry, suspect bool, detail string) failure {
		return failure{&Error{Kind: kind, Worker: pod, Detail: detail}, retry, suspect}
	}
	if caller.Err() != nil {
		return failure{err: caller.Err()}
	}
	for _, kind := range []error{ErrFirstByte, ErrIdle} {
		if errors.Is(context.Cause(attempt), kind) {
			return as(kind, false, false, "")
		}
	}
	if errors.Is(context.Cause(attempt), ErrLost) {
		return as(ErrLost, true, true, "its heartbeats ended")
	}
	if errors.Is(err, io.EOF) {
		return as(ErrLost, true, false, "the stream ended without an end of the answer")
	}
	s, _ := status.FromError(err)
	switch s.Code() {
	case codes.InvalidArgument:
		return failure{err: invalid(s)}
	case codes.ResourceExhausted:
		return as(ErrBusy, false, false, s.Message())
	case codes.FailedPrecondition:
		return as(ErrRefused, true, true, s.Message())
	case codes.Unavailable:
		if !started {
			return as(ErrRefused, true, true, s.Message())
		}
		return as(ErrLost, true, true, s.Message())
	case codes.Canceled, codes.DeadlineExceeded:
		return as(ErrLost, true, false, s.Message())
	case codes.Internal, codes.Unknown:
		return as(ErrFailed, true, false, s.Message())
	}
	return as(ErrFailed, false, false, s.Code().String()+": "+s.Message())
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
