package upstream

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
)

// attempt is one call of one worker for an answer. What it has not handed out when it is given up, nobody sees: another
// attempt has another stream, or this one after its end was read. Its methods are called from one goroutine.
type attempt struct {
	seat
	client   *Client
	ticket   ticket
	caller   context.Context
	ctx      context.Context
	call     call
	lane     *lane       // that it is made on; nil where it is a Generate
	unhook   func() bool // lets the end of ctx no longer end the lane; it says whether it came in time
	patience patience
	id       string // the worker says it back on a lane

	adapter bool // the request names one
	resumed bool // it goes on with an answer
	made    int  // tokens of it, which are computed with the prompt

	event event                        // the first piece, and when that was handed out the later ones
	head  []*workerv1.GenerateResponse // came until the first one that shows something, and are not handed out yet
	open  int                          // choices without a finish

	heard   bool // on a lane: the worker has said that it answers this attempt
	said    bool // on a lane: how it has ended, or that it has not begun
	free    bool // on a lane: nothing more comes, and it takes the next request
	started bool // the worker has accepted it
	shown   bool // a piece that shows something is there
	tokens  int  // in deltas
	pieces  int  // deltas that show something
	first   time.Time
	result  placement.Result
	over    bool
}

// start calls the worker with message and waits for the first piece of the answer.
func (a *attempt) start(r *Request, message *workerv1.GenerateRequest) failure {
	c := a.client
	a.ctx, a.cancel = context.WithCancelCause(a.caller)
	a.patience.start(c.options.Clock, r.FirstByte, r.Idle, a.cancel)
	a.began = a.patience.began
	if err := c.acquire(&a.seat); err != nil {
		a.end()
		return failure{err: err, idle: true, gone: lives}
	}
	a.id = message.GetAttemptId()
	if err := a.ask(message); err != nil {
		f := a.ending().judge(err)
		a.end()
		return f
	}
	a.shown = true
	a.patience.came()
	return failure{}
}

// ending is what is known of a when its call has ended. Where a connection was there and the worker has said nothing, not even
// an error, it may have been at work.
func (a *attempt) ending() ending {
	return ending{
		caller: a.caller, ctx: a.ctx, pod: a.worker.Pod, shown: a.shown, adapter: a.adapter, resumed: a.resumed,
		started: a.started || a.call != nil && !a.said && len(a.call.Trailer()) == 0,
	}
}

// begin takes the first piece that shows a client something, or a finish, with the tokens that came before it: until then
// another worker may be tried.
func (a *attempt) begin() error {
	held := 0
	for e := &a.event; ; e = new(event) {
		piece, err := a.receive(e)
		if err != nil {
			return err
		}
		a.head = append(a.head, piece)
		if shows(piece) {
			return nil
		}
		if held += proto.Size(piece); held > maxHead {
			return status.Errorf(codes.Internal, "it sent %d KiB of tokens that show nothing", held>>10)
		}
	}
}

// shows reports whether a client sees something of e, or its end.
func shows(e *workerv1.GenerateResponse) bool {
	d := e.GetDelta()
	return d == nil || visible(d) || len(d.GetLogprobs()) > 0
}

// visible reports whether d is text, reasoning or a part of a call.
func visible(d *workerv1.Delta) bool {
	return d.GetText() != "" || d.GetReasoning() != "" || len(d.GetToolCalls()) > 0
}

// next returns the next piece, which stays as it is until the next call. It must not be called once a is done.
func (a *attempt) next() (*workerv1.GenerateResponse, error) {
	if len(a.head) > 0 {
		e := a.head[0]
		if a.head = a.head[1:]; len(a.head) == 0 {
			a.head = nil
		}
		return e, nil
	}
	return a.receive(&a.event)
}

// done reports whether all was handed out.
func (a *attempt) done() bool { return a.open <= 0 && len(a.head) == 0 }

// lastWord is how long a finished answer waits for the end of its call. A worker has nothing left to do by then.
const lastWord = time.Second

// receive reads into e the next event that is a piece of the answer. With the last finish it also takes the end of the
// call, so that ending the context afterwards doesn't look like a cancelled request to the worker.
func (a *attempt) receive(e *event) (*workerv1.GenerateResponse, error) {
	for {
		a.patience.wait()
		err := a.call.RecvMsg(e)
		a.patience.rest()
		if err == nil {
			err = a.own(&e.response)
		}
		if err != nil {
			return nil, err
		}
		switch x := e.response.GetEvent().(type) {
		case *workerv1.GenerateResponse_Ended:
			return nil, a.ended(x.Ended)
		case *workerv1.GenerateResponse_Accepted:
			a.accept(x.Accepted)
		case *workerv1.GenerateResponse_Delta:
			if n := len(x.Delta.GetTokens()); n > 0 || shows(&e.response) {
				a.started = true
				if visible(x.Delta) {
					a.pieces++
				}
				a.count(n)
				return &e.response, nil
			}
		case *workerv1.GenerateResponse_Finish:
			a.finish(x.Finish.GetUsage())
			return &e.response, nil
		}
	}
}

func (a *attempt) accept(x *workerv1.Accepted) {
	if a.started {
		return
	}
	a.started = true
	a.result.PromptTokens = x.GetPromptTokens()
	n := x.GetPromptTokens()
	if n > 0 { // 0: it does not know
		n += uint32(a.made)
	}
	a.ticket.Numbered(x.GetPrefixNumber())
	a.ticket.Accepted(n, a.client.options.Clock.Now())
}

// count books n tokens.
func (a *attempt) count(n int) {
	if a.first.IsZero() {
		a.first = a.client.options.Clock.Now()
		a.ticket.FirstToken(a.first)
	}
	a.tokens += n
}

// finish books the end of a choice, and with the last one the end of the call. The prompt is the same for all choices, and
// the first that ends says how much of it was cached: the others begin with what it computed.
func (a *attempt) finish(u *workerv1.Usage) {
	if a.result.CompletionTokens == 0 {
		a.result.PromptTokens = max(u.GetPromptTokens(), a.result.PromptTokens)
		a.result.CachedTokens = min(u.GetCachedTokens(), a.result.PromptTokens)
	}
	a.result.CompletionTokens += u.GetCompletionTokens()
	if a.open--; a.open > 0 {
		return
	}
	enough := a.client.options.Clock.AfterFunc(lastWord, func() { a.cancel(nil) })
	a.last()
	enough.Stop()
	a.result.Answered = true
	a.end()
	a.client.report(&a.seat, Good, false)
}

// end ends the worker's work, unless it is done, and gives everything back. Only its first call does anything.
func (a *attempt) end() {
	if a.over {
		return
	}
	a.over = true
	now := a.client.options.Clock.Now()
	a.patience.stop()
	a.leave()
	a.cancel(nil)
	a.client.release(&a.seat)
	if !a.result.Answered || a.resumed { // the usage of an answer that went on counts what others made of it, too
		a.result.CompletionTokens = uint32(counted(a.tokens, a.pieces))
	}
	a.ticket.Ended(a.result, now)
	a.measure(now)
}

// measure tells how fast the call was.
func (a *attempt) measure(now time.Time) {
	if a.first.IsZero() || a.client.options.Measured == nil {
		return
	}
	m := Measure{FirstToken: a.first.Sub(a.began), Usual: a.ticket.Usual(), Tokens: a.tokens}
	if a.result.Answered && a.tokens > 1 {
		m.BetweenTokens = now.Sub(a.first) / time.Duration(a.tokens-1)
	}
	a.client.options.Measured(a.worker.Pod, a.worker.Instance, m)
}
