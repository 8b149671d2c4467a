package upstream

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
)

// attempts is how many workers a request may be tried on. A request that killed two is not tried on a third.
const attempts = 2

// Request is one request of a client.
type Request struct {
	ModelUID string
	// Key decides which worker: equal keys go to the same one while it is there.
	Key []byte
	// RequestID is the same on every attempt.
	RequestID string
	// Tried are pods that were lost at work on this request: they are not asked again, and count as attempts.
	Tried []string
	// Proto is what to run. Expectations and ids are filled in on a copy.
	Proto *workerv1.GenerateRequest
	// FirstByte is how long each worker may take until the first token; Idle how long it may take from one to the next.
	// 0 means without limit.
	FirstByte, Idle time.Duration
}

// Generate runs r and returns its answer when the first piece of it is there. Until then it tries the next worker of
// the ring's walk, once, when the first refused the request or was lost, or its engine failed. An error means that
// nothing has been answered. Ending ctx ends the worker's work. Close the stream when done.
func (c *Client) Generate(ctx context.Context, r Request) (*Stream, error) {
	tried := slices.Clone(r.Tried)
	if n := len(tried); n >= attempts {
		return nil, &Error{Kind: ErrLost, Worker: tried[n-1], Detail: "no further worker is tried"}
	}
	var last failure
	for len(tried) < attempts {
		w, err := c.options.Placer.Place(r.ModelUID, r.Key, tried...)
		if err != nil {
			switch {
			case len(r.Tried) > 0:
				return nil, &Error{Kind: ErrLost, Worker: r.Tried[len(r.Tried)-1], Detail: "there is no other worker"}
			case last.err == nil || errors.Is(last.err, ErrRefused):
				return nil, err // nobody did any work: the placer knows best why
			}
			return nil, last.err
		}
		if n := len(tried); n > 0 {
			c.retried(Retry{ModelUID: r.ModelUID, RequestID: r.RequestID, From: tried[n-1], To: w.Pod, Why: last.kind()})
		}
		tried = append(tried, w.Pod)
		s := &Stream{client: c, caller: ctx, request: r, worker: w, attempts: len(tried), open: max(int(r.Proto.GetChoices()), 1)}
		if last = s.start(); last.err == nil {
			return s, nil
		}
		if last.suspect {
			c.suspect(w)
		}
		if !last.retry {
			break
		}
	}
	return nil, last.err
}

// prepare returns r's message for w. It shares everything below the top level with r.Proto.
func prepare(r Request, w placement.Worker) *workerv1.GenerateRequest {
	out := &workerv1.GenerateRequest{}
	to := out.ProtoReflect()
	r.Proto.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(f, v)
		return true
	})
	out.ExpectedInstanceId, out.ExpectedRevision, out.ExpectedModelUid = w.Instance, w.Revision, r.ModelUID
	out.RequestId, out.AttemptId = r.RequestID, rand.Text()
	return out
}
