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

// attempts is how many workers may work on a request. One that killed two is not tried on a third.
const attempts = 2

// mostWithout is how many workers are asked that turn out not to have loaded the request's adapter. They do no work for
// it, and while a rollout brings an adapter only some workers have it.
const mostWithout = 8

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
// the ring's walk, once, when the first refused the request or was lost, or its engine failed; workers that have not
// loaded its adapter don't count. An error means that nothing has been answered. Ending ctx ends the worker's work. Close
// the stream when done.
func (c *Client) Generate(ctx context.Context, r Request) (*Stream, error) {
	var s *Stream
	err := c.seek(search{r.ModelUID, r.RequestID, r.Key, r.Tried}, func(w placement.Worker, n int) failure {
		s = &Stream{client: c, caller: ctx, request: r, worker: w, attempts: n, open: max(int(r.Proto.GetChoices()), 1)}
		return s.start()
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// search is what decides which workers are asked.
type search struct {
	modelUID, requestID string
	key                 []byte
	tried               []string // at work on this request before
}

// seek calls try with one worker after the other, and with the number of those that have worked on the request, until one
// takes it or no further one may be asked.
func (c *Client) seek(q search, try func(w placement.Worker, n int) failure) error {
	if n := len(q.tried); n >= attempts {
		return &Error{Kind: ErrLost, Worker: q.tried[n-1], Detail: "no further worker is tried"}
	}
	asked := slices.Clone(q.tried)
	without := 0           // of those asked, the ones that lack the adapter
	var last, held failure // the latest, and the latest of a worker that does not lack it
	for len(asked)-without < attempts && without < mostWithout {
		w, err := c.options.Placer.Place(q.modelUID, q.key, asked...)
		if err != nil {
			switch {
			case len(q.tried) > 0:
				return &Error{Kind: ErrLost, Worker: q.tried[len(q.tried)-1], Detail: "there is no other worker"}
			case last.err == nil || errors.Is(held.err, ErrRefused):
				return err // nobody did any work: the placer knows best why
			}
			break
		}
		if n := len(asked); n > 0 {
			c.retried(Retry{ModelUID: q.modelUID, RequestID: q.requestID, From: asked[n-1], To: w.Pod, Why: last.kind()})
		}
		asked = append(asked, w.Pod)
		if last = try(w, len(asked)-without); last.err == nil {
			return nil
		}
		if last.without {
			without++
			continue
		}
		held = last
		if last.suspect {
			c.suspect(w)
		}
		if !last.retry {
			break
		}
	}
	if held.err != nil {
		return held.err
	}
	return last.err
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
