package grpcserver

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/metrics"
)

// errNoEmbeddings: the engine makes no embeddings.
var errNoEmbeddings = errors.New("the model's engine makes no embeddings")

// mismatchError is a call that was meant for another worker.
type mismatchError struct{ what, expected, actual string }

func (e *mismatchError) Error() string {
	return fmt.Sprintf("the call is for %s %q; this worker's is %q", e.what, e.expected, e.actual)
}

// expect compares what a caller believes with what is; an empty belief is not checked.
func expect(what, expected, actual string) error {
	if expected == "" || expected == actual {
		return nil
	}
	return &mismatchError{what, clip(expected), actual}
}

// code is the only place where an error becomes a code. Routers read codes so: FAILED_PRECONDITION, and UNAVAILABLE before a
// request was accepted, mean that no work was done, and another worker is asked; UNAVAILABLE after that, and CANCELLED, mean
// that the worker was lost, and the request goes on elsewhere; UNIMPLEMENTED means that no work was done, and that another
// worker's engine may be able to; RESOURCE_EXHAUSTED means that nothing is wrong with the worker
// and that the request is tried nowhere else; INTERNAL counts as the worker's failure. An engine that was lost beside the
// worker is UNAVAILABLE with workerv1.ReasonEngineLost, before a request was accepted, too: it may have been at work on it.
//
// So a reader that is too slow gets RESOURCE_EXHAUSTED: it would be so on another worker, too. An engine that is closed under a
// request gets UNAVAILABLE: the process ends, and has not failed.
func code(err error) codes.Code {
	var mismatch *mismatchError
	var invalid *engine.InvalidError
	switch {
	case err == nil:
		return codes.OK
	case errors.As(err, &mismatch), errors.Is(err, engine.ErrNotLoaded):
		return codes.FailedPrecondition
	case errors.As(err, &invalid):
		return codes.InvalidArgument
	case errors.Is(err, errNoEmbeddings), errors.Is(err, engine.ErrNoResume):
		return codes.Unimplemented
	case errors.Is(err, engine.ErrDraining), errors.Is(err, engine.ErrClosed), errors.Is(err, engine.ErrLost):
		return codes.Unavailable
	case errors.Is(err, engine.ErrBusy), errors.Is(err, engine.ErrSlowReader):
		return codes.ResourceExhausted
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	}
	return codes.Internal
}

// late is an error of a stream: an engine that refuses a request after it has accepted it has failed. Routers must not take
// that for a refusal, so the error is not wrapped.
func late(err error) error {
	for _, refusal := range []error{engine.ErrBusy, engine.ErrDraining, engine.ErrNotLoaded} {
		if errors.Is(err, refusal) {
			return fmt.Errorf("the engine gave up a request that it had accepted: %s", err.Error())
		}
	}
	return err
}

// outcome is what the metrics call an error that ended a request. One that was accepted was not refused.
func outcome(err error, accepted bool) metrics.Outcome {
	if errors.Is(err, engine.ErrSlowReader) {
		return metrics.Cancelled
	}
	if errors.Is(err, engine.ErrLost) {
		return metrics.Failed
	}
	switch code(err) {
	case codes.FailedPrecondition, codes.Unavailable, codes.ResourceExhausted, codes.Unimplemented:
		if !accepted {
			return metrics.Refused
		}
	case codes.InvalidArgument:
		return metrics.Invalid
	case codes.Canceled, codes.DeadlineExceeded:
		return metrics.Cancelled
	}
	return metrics.Failed
}

// status is err as the caller sees it: an invalid request names its field and, as the violation's reason, its code, and an
// engine that was lost is told apart from a worker that takes no requests.
func status(err error) error {
	st := grpcstatus.New(code(err), err.Error())
	if errors.Is(err, engine.ErrLost) {
		if with, e := st.WithDetails(&errdetails.ErrorInfo{Reason: workerv1.ReasonEngineLost}); e == nil {
			st = with
		}
	}
	if invalid := (*engine.InvalidError)(nil); errors.As(err, &invalid) {
		st = grpcstatus.New(code(err), invalid.Message)
		with, e := st.WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: invalid.Field, Reason: invalid.Code, Description: invalid.Message},
		}})
		if e == nil {
			st = with
		}
	}
	return st.Err()
}
