package upstream

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"time"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
)

// ErrAgain is what Next returns once when an answer begins again: all that it returned before is void.
var ErrAgain = errors.New("the answer begins again on another worker")

// mostMoves is how often an answer may move to another worker. Workers that drain are not lost, and a rollout may cut an
// answer that lasts longer than they wait.
const mostMoves = 8

// mostStalls is at how many workers an answer may stand still. The second one ends it: its client has waited twice by then.
const mostStalls = 2

// Request is one request of a client. Nothing in it may change before its Stream is closed.
type Request struct {
	// Place is what a worker is chosen by.
	Place placement.Request
	// First is the place that a queue has taken for the first try. Nil: Place decides about the first one, too. Its Ended is
	// called whatever happens.
	First *placement.Ticket
	// Proto is what to run. Expectations and ids are filled in on a copy.
	Proto *workerv1.GenerateRequest
	// FirstByte is how long each worker may take until the first token; Idle how long it may take from one to the next.
	// 0 means without limit.
	FirstByte, Idle time.Duration
	// Lost is how many workers were lost at work on it before: the Lost of the error that its last try ended with.
	Lost int
	// Resume lets an answer go on at another worker when its own is lost in the middle.
	Resume bool
	// Restart lets an answer that can't go on begin again, for callers that show nothing of it before its end: see ErrAgain.
	Restart bool
}

// Generate runs r and returns its answer when the first piece of it is there. Until then it tries the next worker, once, when
// the first refused the request or was lost, or its engine failed; workers that lack what it needs don't count. An error
// means that nothing has been answered. Ending ctx ends the worker's work. Close the stream when done.
func (c *Client) Generate(ctx context.Context, r Request) (*Stream, error) {
	s := &Stream{client: c, caller: ctx, request: r, search: newSearch(&r.Place, r.First, r.Proto, r.Lost), stays: bound(r.Proto), kept: kept{memory: &c.memory}}
	if err := s.seek(); err != nil {
		return nil, err
	}
	return s, nil
}

// Stream is an answer on its way. Its methods are called from one goroutine; what ends an answer from elsewhere is its
// context.
type Stream struct {
	client  *Client
	caller  context.Context
	request Request
	search  search
	stays   string // why it can't go on elsewhere, whatever comes of it
	kept    kept   // what was handed out, where it may

	at      *attempt // the present call, or the last one
	prompt  uint32   // tokens, as the first worker counted them; 0: it did not
	moves   int      // how often it left a worker
	stalls  int      // how often because it stood still there
	resumes int      // how often it went on at another
	failed  error    // what Next returns from now on
}

// Worker is the pod that answers now.
func (s *Stream) Worker() string { return s.at.worker.Pod }

// Reason is why that worker was chosen, in one line.
func (s *Stream) Reason() string { return s.at.ticket.Reason() }

// Attempts is how many workers were tried, the one that answers included.
func (s *Stream) Attempts() int { return s.search.asked }

// Resumes is how often the answer went on at another worker.
func (s *Stream) Resumes() int { return s.resumes }

// PromptTokens is the length of the prompt as the first worker that answered counted it; 0 where it told none.
func (s *Stream) PromptTokens() uint32 { return s.prompt }

// Next returns the next delta or finish, which stays as it is until the next call; after the finish of every choice it
// returns io.EOF. When the worker is lost, Next goes on with the answer at another one: it returns ErrAgain where that one
// begins it again. Any other error means that the answer ends here, unfinished, and it stays the same.
func (s *Stream) Next() (*workerv1.GenerateResponse, error) {
	for {
		switch {
		case s.failed != nil:
			return nil, s.failed
		case s.at.done():
			return nil, io.EOF
		}
		e, err := s.at.next()
		if err == nil {
			s.book(e)
			return e, nil
		}
		if err = s.move(err); err != nil {
			if !errors.Is(err, ErrAgain) {
				s.failed = err
			}
			return nil, err
		}
	}
}

// Close ends the worker's work on the request, unless it is done, and gives its place back.
func (s *Stream) Close() {
	s.at.end()
	s.kept.drop()
}

// book takes what is handed out.
func (s *Stream) book(e *workerv1.GenerateResponse) {
	switch x := e.GetEvent().(type) {
	case *workerv1.GenerateResponse_Delta:
		if s.request.Resume && s.stays == "" {
			s.keep(x.Delta)
		}
	case *workerv1.GenerateResponse_Finish:
		if s.at.resumed {
			own := s.at.tokens
			if !s.search.named {
				own = s.at.pieces
			}
			x.Finish.Usage = joined(x.Finish.Usage, s.prompt, s.search.made, s.search.named, own)
		}
		if s.at.done() {
			s.client.acquit(&s.search)
		}
	}
}

// keep takes a piece into what the answer could go on with.
func (s *Stream) keep(d *workerv1.Delta) {
	before := s.kept.gone
	s.kept.add(d)
	if told := s.client.options.Forgot; told != nil && before == "" && s.kept.gone == crowded {
		told(s.request.Place.ModelUID)
	}
}

// seek makes the next worker that takes the request the present one.
func (s *Stream) seek() error {
	err := s.client.seek(&s.search, func(t ticket, extra bool) (*seat, failure) {
		s.at = &attempt{
			client: s.client, ticket: t, caller: s.caller, open: max(int(s.request.Proto.GetChoices()), 1),
			adapter: s.request.Proto.GetAdapter() != "", resumed: s.search.resumes, made: s.search.made,
		}
		s.at.seat = seat{worker: t.Worker(), extra: extra}
		return &s.at.seat, s.at.start(&s.request, s.message())
	})
	if err == nil && s.prompt == 0 {
		s.prompt = s.at.result.PromptTokens
	}
	return err
}

// move goes on with the answer at another worker after the present call has ended with err. Its error is what the answer
// ends with, or ErrAgain.
func (s *Stream) move(err error) error {
	f := s.at.ending().judge(err)
	s.at.end()
	defer s.client.repay(&s.search)
	if errors.Is(f.err, ErrIdle) {
		s.stalls++
	}
	if !s.client.account(&s.search, &s.at.seat, f) || s.moves >= mostMoves || s.stalls >= mostStalls {
		return f.err
	}
	s.moves++
	why := s.obstacle()
	if why == "" {
		from := s.search.from
		s.aim(f, true)
		if err = s.seek(); err == nil {
			s.resumed(from, f)
			return nil
		}
		if s.search.tries > 0 {
			return err
		}
	}
	if s.request.Restart {
		s.aim(f, false)
		if err = s.seek(); err == nil {
			s.kept.drop()
			err = ErrAgain
		}
		return err
	}
	var on *Error
	if errors.As(f.err, &on) && on.Stays == "" {
		on.Stays = why
	}
	return f.err
}

// obstacle says why the answer can't go on at another worker; "" if it may.
func (s *Stream) obstacle() string {
	switch {
	case s.search.lost >= mostLost:
		return "two workers were lost with it"
	case !s.request.Resume:
		return "that is switched off"
	case s.stays != "":
		return s.stays
	}
	return s.kept.obstacle()
}

// aim prepares the search for a worker that goes on with the answer, or begins it again, after lost.
func (s *Stream) aim(lost failure, resume bool) {
	q := &s.search
	q.tries, q.without, q.held = 0, 0, lost
	q.resumes, q.revision, q.made, q.named = resume, "", 0, false
	q.place.Resume, q.place.PromptTokens, q.place.MaxTokens = resume, s.request.Place.PromptTokens, s.request.Place.MaxTokens
	if !resume {
		return
	}
	q.revision, q.made, q.named = s.at.worker.Revision, s.kept.made(), len(s.kept.tokens) > 0
	made := uint32(q.made)
	if s.prompt > 0 {
		q.place.PromptTokens = s.prompt + made
	}
	if most := q.place.MaxTokens; most > 0 {
		q.place.MaxTokens = max(most, made+1) - made // 0 would be without limit
	}
}

// resumed counts and tells that the answer goes on.
func (s *Stream) resumed(from string, lost failure) {
	s.resumes++
	if told := s.client.options.Resumed; told != nil {
		q := &s.search
		told(Retry{ModelUID: q.place.ModelUID, RequestID: q.place.RequestID, From: from, To: s.at.worker.Pod, Why: lost.kind(), Tokens: q.made})
	}
}

// shallow is a copy of r which shares everything below the top level with it.
func shallow(r *workerv1.GenerateRequest) *workerv1.GenerateRequest {
	return &workerv1.GenerateRequest{
		ExpectedInstanceId: r.ExpectedInstanceId, ExpectedRevision: r.ExpectedRevision, ExpectedModelUid: r.ExpectedModelUid,
		RequestId: r.RequestId, AttemptId: r.AttemptId, Prompt: r.Prompt, Sampling: r.Sampling, MaxTokens: r.MaxTokens,
		Stop: r.Stop, Choices: r.Choices, MinTokens: r.MinTokens, IgnoreEos: r.IgnoreEos, Logprobs: r.Logprobs,
		TopLogprobs: r.TopLogprobs, ResponseFormat: r.ResponseFormat, Priority: r.Priority, CacheSalt: r.CacheSalt,
		Adapter: r.Adapter, JsonSchema: r.JsonSchema, ResumeTokens: r.ResumeTokens, ResumeText: r.ResumeText,
		ResumeReasoning: r.ResumeReasoning, PrefixHash: r.PrefixHash, PrefixBlocks: r.PrefixBlocks, PrefixBytes: r.PrefixBytes,
	}
}

// message is the request for the present worker. It shares everything below the top level with the caller's.
func (s *Stream) message() *workerv1.GenerateRequest {
	out := shallow(s.request.Proto)
	w := &s.at.worker
	out.ExpectedInstanceId, out.ExpectedRevision, out.ExpectedModelUid = w.Instance, w.Revision, s.request.Place.ModelUID
	out.RequestId, out.AttemptId = s.request.Place.RequestID, rand.Text()
	if c := s.request.Place.Chain; len(c) > 0 { // so that other routers hear where the prompt is
		out.PrefixHash, out.PrefixBlocks = c[len(c)-1], uint32(len(c))
		out.PrefixBytes = uint64(s.request.Place.PromptBytes)
	}
	if s.search.resumes {
		s.kept.put(out)
	}
	return out
}
