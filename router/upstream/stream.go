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
	first    *workerv1.GenerateResponse // not handed out yet
	finished bool
	failed   error // what Next returns from now on
	idle     clock.Timer
	ended    func() // gives everything back; only its first call does
}

// Worker is the pod that answers.
func (s *Stream) Worker() string { return s.worker.Pod }

// Attempts is how many workers were tried, the one that answers included.
func (s *Stream) Attempts() int { return s.attempts }

// PromptTokens is the length of the prompt as the worker counted it.
func (s *Stream) PromptTokens() uint32 { return s.accepted.GetPromptTokens() }

// Next returns the next delta or the finish; after the finish it returns io.EOF. Any other error means that the answer
// ends here, unfinished, and it stays the same.
func (s *Stream) Next() (*workerv1.GenerateResponse, error) {
	if e := s.first; e != nil {
		s.first = nil
		return e, nil
	}
	if s.failed != nil {
		return nil, s.failed
	}
	if s.finished {
		return nil, io.EOF
	}
	s.watch()
	e, err := s.receive()
	if s.idle != nil {
		s.idle.Stop()
	}
	if err != nil {
		f := judge(s.caller, s.ctx, s.worker.Pod, true, err)
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
		s.first, err = s.begin()
	}
	if err != nil {
		f := judge(s.caller, s.ctx, s.worker.Pod, s.accepted != nil, err)
		s.ended()
		return f
	}
	return failure{}
}

// begin returns the first event with text or a finish, with the tokens that came before it: tokens without text show a
// client nothing, so that until then another worker may be tried.
func (s *Stream) begin() (*workerv1.GenerateResponse, error) {
	var silent []uint32
	for {
		e, err := s.receive()
		if err != nil {
			return nil, err
		}
		d := e.GetDelta()
		if d != nil && d.GetText() == "" {
			silent = append(silent, d.GetTokens()...)
			continue
		}
		if d != nil && silent != nil {
			d.Tokens = append(silent, d.GetTokens()...)
		}
		return e, nil
	}
}

// receive returns the next event that is a piece of the answer. With the finish it also takes the end of the call, so
// that ending the context afterwards doesn't look like a cancelled request to the worker.
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
			s.finished = true
			_, _ = s.call.Recv() // io.EOF, or an error that no longer matters
			s.ended()
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
