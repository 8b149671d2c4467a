package upstream

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
)

// Stream is an answer on its way. Next may be called from one goroutine at a time; Close from any.
type Stream struct {
	client   *Client
	caller   context.Context
	request  Request
	worker   placement.Worker
	attempts int

	ctx      context.Context
	cancel   context.CancelCauseFunc
	call     grpc.ServerStreamingClient[workerv1.GenerateResponse]
	accepted *workerv1.Accepted
	head     []*workerv1.GenerateResponse // not handed out yet
	open     int                          // choices without a finish
	failed   error                        // what Next returns from now on
	idle     clock.Timer
	ended    func() // gives everything back; only its first call does
}

// Worker is the pod that answers.
func (s *Stream) Worker() string { return s.worker.Pod }

// Attempts is how many workers were tried, the one that answers included.
func (s *Stream) Attempts() int { return s.attempts }

// PromptTokens is the length of the prompt as the worker counted it.
func (s *Stream) PromptTokens() uint32 { return s.accepted.GetPromptTokens() }

// Next returns the next delta or finish; after the finish of every choice it returns io.EOF. Any other error means that the answer
// ends here, unfinished, and it stays the same.
func (s *Stream) Next() (*workerv1.GenerateResponse, error) {
	if len(s.head) > 0 {
		e := s.head[0]
		s.head = s.head[1:]
		return e, nil
	}
	if s.failed != nil {
		return nil, s.failed
	}
	if s.open == 0 {
		return nil, io.EOF
	}
	s.watch()
	e, err := s.receive()
	if s.idle != nil {
		s.idle.Stop()
	}
	if err != nil {
		f := s.attempt(true, true).judge(err)
		s.failed = f.err
		s.ended()
		if f.suspect {
			s.client.suspect(s.worker)
		}
		return nil, f.err
	}
	return e, nil
}

// Close ends the worker's work on the request, unless it is done, and gives its place back.
func (s *Stream) Close() { s.ended() }

// start calls the worker and waits for the first piece of the answer.
func (s *Stream) start() failure {
	p, err := s.client.acquire(s.worker)
	if err != nil {
		return failure{err: err}
	}
	s.ctx, s.cancel = context.WithCancelCause(s.caller)
	unlink := context.AfterFunc(p.ctx, func() { s.cancel(context.Cause(p.ctx)) })
	s.ended = sync.OnceFunc(func() {
		unlink()
		s.cancel(nil)
		s.client.release(s.worker, p)
	})
	if d := s.request.FirstByte; d > 0 {
		timer := s.client.options.Clock.AfterFunc(d, func() { s.cancel(ErrFirstByte) })
		defer timer.Stop()
	}
	s.call, err = workerv1.NewWorkerClient(p.conn).Generate(s.ctx, prepare(s.request, s.worker))
	if err == nil {
		err = s.begin()
	}
	if err != nil {
		f := s.attempt(s.accepted != nil, false).judge(err)
		s.ended()
		return f
	}
	return failure{}
}

func (s *Stream) attempt(started, shown bool) attempt {
	return attempt{caller: s.caller, ctx: s.ctx, pod: s.worker.Pod, started: started, shown: shown, adapter: s.request.Proto.GetAdapter() != ""}
}

// begin takes the first event that shows a client something, or a finish, with the tokens that came before it: until then
// another worker may be tried.
func (s *Stream) begin() error {
	for {
		e, err := s.receive()
		if err != nil {
			return err
		}
		s.head = append(s.head, e)
		if d := e.GetDelta(); d == nil || d.GetText() != "" || d.GetReasoning() != "" || len(d.GetToolCalls()) > 0 || len(d.GetLogprobs()) > 0 {
			return nil
		}
	}
}

// receive returns the next event that is a piece of the answer. With the last finish it also takes the end of the call,
// so that ending the context afterwards doesn't look like a cancelled request to the worker.
func (s *Stream) receive() (*workerv1.GenerateResponse, error) {
	for {
		e, err := s.call.Recv()
		if err != nil {
			return nil, err
		}
		switch x := e.GetEvent().(type) {
		case *workerv1.GenerateResponse_Accepted:
			s.accepted = x.Accepted
		case *workerv1.GenerateResponse_Delta:
			return e, nil
		case *workerv1.GenerateResponse_Finish:
			if s.open--; s.open == 0 {
				_, _ = s.call.Recv() // io.EOF, or an error that no longer matters
				s.ended()
			}
			return e, nil
		}
	}
}

// watch starts the time in which the next event must come.
func (s *Stream) watch() {
	switch d := s.request.Idle; {
	case d <= 0:
	case s.idle == nil:
		s.idle = s.client.options.Clock.AfterFunc(d, func() { s.cancel(ErrIdle) })
	default:
		s.idle.Reset(d)
	}
}
