package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
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
	// ErrQuarantined: workers died at work on the same request, so it was not run.
	ErrQuarantined = errors.New("the request is not run, because workers died at work on it")
)

// errStops ends the streams of a client that is closed.
var errStops = fmt.Errorf("%w: the router stops", ErrLost)

// Error is one of the errors above with the worker that it happened on.
type Error struct {
	Kind   error  // one of the variables above
	Worker string // the pod's name
	Detail string // what the worker or the connection said; may be empty
	// Stays is why an answer that had begun could not go on at another worker, in words for clients, such as "it has
	// several choices". It is empty where another worker was looked for, or where none would help.
	Stays string
	// Alone says that nothing was answered when one worker was lost, and that there was no other to ask.
	Alone bool
	// Lost is how many workers had been lost at work on the request by then, those of its Lost included.
	Lost int
}

// Error names the kind, the worker and the details.
func (e *Error) Error() string {
	s := fmt.Sprintf("call %s: %s", e.Worker, e.Kind)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Stays != "" {
		s += "; the answer does not go on elsewhere: " + e.Stays
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

// again says whether another worker may be tried.
type again int

const (
	never  again = iota
	always       // the worker was lost, or has done no work
	paid         // it failed: only where the budget pays for it
)

// failure is an error with what follows from it.
type failure struct {
	err     error
	again   again
	suspect bool    // new requests had better go elsewhere
	without bool    // it lacks what the request needs and did no work: others are asked as if it had not been
	idle    bool    // it did no work
	outcome Outcome // what is told of the instance
	broken  bool    // with many other calls, maybe
	gone    verdict // of an instance that was at work: died, answered or undecided; lives where nothing says that it may be gone
}

// kind names the error without what the worker said.
func (f failure) kind() string {
	var on *Error
	if errors.As(f.err, &on) {
		return on.Kind.Error()
	}
	return ErrLost.Error()
}

// ending is what is known of a call when it ends.
type ending struct {
	caller  context.Context // the request's
	ctx     context.Context // the call's own; its cause is known when the client itself ended it
	pod     string
	started bool // the worker may have worked on it
	shown   bool // a piece of the answer has come: the request waits in no queue
	adapter bool // it names one
	resumed bool // it goes on with an answer
}

func (e ending) as(kind error, f failure, detail string) failure {
	f.err = &Error{Kind: kind, Worker: e.pod, Detail: detail}
	return f
}

// What follows from the ways in which a call ends.
var (
	refused = failure{again: always, suspect: true, idle: true, outcome: Failed, broken: true, gone: lives}
	busy    = failure{idle: true, gone: lives}
	lacking = failure{again: always, without: true, idle: true, gone: lives}
	late    = failure{outcome: NoFirstByte, gone: lives}
	stalled = failure{again: always, outcome: Failed, gone: lives}
	unheard = failure{again: always, suspect: true, gone: died} // its heartbeats have ended, and are known to
	cut     = failure{again: always, suspect: true, outcome: Failed, broken: true}
	odd     = failure{again: always, outcome: Failed}
	failing = failure{again: paid, outcome: Failed, gone: answered}
	wrong   = failure{outcome: Failed, gone: lives}
	nothing = failure{gone: lives}
)

// judge is the only place that turns what ended a call into an error.
func (e ending) judge(err error) failure {
	if f := e.ours(); f.err != nil {
		return f
	}
	if errors.Is(err, io.EOF) {
		return e.as(ErrLost, odd, "the stream ended without an end of the answer")
	}
	s, _ := status.FromError(err)
	switch s.Code() {
	case codes.InvalidArgument:
		return e.invalid(s)
	case codes.ResourceExhausted:
		return e.exhausted(s.Message())
	case codes.FailedPrecondition:
		return e.as(ErrRefused, refused, s.Message())
	case codes.Unavailable:
		if !e.started && !engineLost(s) {
			return e.as(ErrRefused, refused, s.Message())
		}
		return e.as(ErrLost, cut, s.Message())
	case codes.Canceled, codes.DeadlineExceeded:
		return e.as(ErrLost, odd, s.Message())
	case codes.Internal, codes.Unknown:
		return e.as(ErrFailed, failing, s.Message())
	case codes.Unimplemented:
		if e.resumed && !e.started {
			return e.as(ErrRefused, lacking, s.Message())
		}
	}
	return e.as(ErrFailed, wrong, s.Code().String()+": "+s.Message())
}

// engineLost reports whether s says that the engine beside a worker was lost at work.
func engineLost(s *status.Status) bool {
	return slices.ContainsFunc(s.Details(), func(d any) bool {
		i, ok := d.(*errdetails.ErrorInfo)
		return ok && i.GetReason() == workerv1.ReasonEngineLost
	})
}

// ours is the failure of a call that the client or its caller ended.
func (e ending) ours() failure {
	if e.caller.Err() != nil {
		return failure{err: e.caller.Err(), gone: lives}
	}
	switch cause := context.Cause(e.ctx); {
	case errors.Is(cause, ErrFirstByte):
		return e.as(ErrFirstByte, late, "")
	case errors.Is(cause, ErrIdle):
		return e.as(ErrIdle, stalled, "")
	case errors.Is(cause, errStops):
		return e.as(ErrLost, nothing, "the router stops")
	case errors.Is(cause, ErrLost):
		return e.as(ErrLost, unheard, "its heartbeats ended")
	}
	return failure{}
}

// exhausted tells apart what has the code of a full queue. gRPC has it, with one text, for an answer over the router's
// limit and for a request over the worker's: only the limit in the text says whose it is. An answer that has begun asks
// further workers when one is full: its client can't come back later for the rest.
func (e ending) exhausted(message string) failure {
	var has, most int
	switch n, _ := fmt.Sscanf(message, tooLarge, &has, &most); {
	case n == 2 && (most == maxEvent || most == maxReceive):
		f := nothing
		f.err = &InvalidError{Message: fmt.Sprintf("A part of the answer has more than %d KiB.", most>>10)}
		return f
	case n == 2:
		return e.as(ErrTooLarge, nothing, fmt.Sprintf("%d bytes of %d", has, most))
	case e.shown:
		return e.as(ErrSlowReader, nothing, message)
	}
	f := busy
	if e.resumed {
		f.again = always
	}
	return e.as(ErrBusy, f, message)
}

// tooLarge is gRPC's refusal of a message over a limit.
const tooLarge = "grpc: received message larger than max (%d vs. %d)"

// codeModelNotFound is the code of a worker that does not have what a request is for.
const codeModelNotFound = "model_not_found"

// invalid tells a request that no worker can run from one that this worker can't. Which model a request is for is the
// router's choice: only an adapter can be one that the client is wrong about. A request that another worker has begun to
// answer is not wrong.
func (e ending) invalid(s *status.Status) failure {
	v := invalid(s)
	switch {
	case v.Code == codeModelNotFound && e.adapter:
		return e.as(ErrNoAdapter, lacking, v.Message)
	case v.Code == codeModelNotFound:
		return e.as(ErrRefused, refused, v.Message)
	case e.resumed:
		return e.as(ErrRefused, lacking, v.Error())
	}
	f := nothing
	f.err = v
	return f
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
