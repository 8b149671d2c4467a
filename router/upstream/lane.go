package upstream

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ringfleet/ringfleet/api/worker/many"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// How many lanes may rest, waiting for their next request: on one connection, of the 1,024 streams that a worker takes there,
// and in all. Beyond that the one that has rested longest is ended.
const (
	mostLanes    = 64
	mostAllLanes = 1024
)

const (
	// laneRest is how long a lane may rest, about: those that do are looked at so often.
	laneRest = 30 * time.Second
	// laneAge is how old a lane is that takes no request any more, so that a connection that its worker wants to replace ends.
	laneAge = 5 * time.Minute
)

// lane is a stream of GenerateMany: requests follow one another on it, since to open a stream costs more than to use one. It
// belongs to one attempt, or it rests.
type lane struct {
	grpc.BidiStreamingClient[workerv1.GenerateRequest, workerv1.GenerateResponse]

	end    context.CancelFunc
	opened time.Time
	rested time.Time // since when it rests
}

// call is what a worker answers on.
type call interface {
	RecvMsg(m any) error
	// Trailer is what it said besides at the end, once that has been read.
	Trailer() metadata.MD
}

// dispatch sends message to the worker. It says whether it did so on a lane that had rested, which may have ended meanwhile.
func (a *attempt) dispatch(message *workerv1.GenerateRequest) (rested bool, err error) {
	worker := workerv1.NewWorkerClient(a.peer.conn)
	for {
		if err := a.ctx.Err(); err != nil { // a lane's context is not this one
			return false, status.FromContextError(err).Err()
		}
		l, taken := a.client.rouse(a.peer)
		if !taken {
			stream, err := worker.Generate(a.ctx, message, generateOptions...)
			if err == nil {
				a.call = stream
			}
			return false, err
		}
		rested = l != nil
		if rested {
			a.unhook = context.AfterFunc(a.ctx, l.end)
		} else {
			ctx, end := context.WithCancel(context.Background())
			a.unhook = context.AfterFunc(a.ctx, end)
			stream, err := worker.GenerateMany(ctx, generateOptions...)
			if err != nil {
				a.unhook()
				end()
				return false, err
			}
			l = &lane{BidiStreamingClient: stream, end: end, opened: a.client.options.Clock.Now()}
		}
		a.lane, a.call = l, l
		if err = l.Send(message); !errors.Is(err, io.EOF) {
			return rested, err
		}
		if !rested { // why it has ended is what the next reading says
			return false, nil
		}
		a.quit()
	}
}

// unbegun is what a request ends with that the worker has not begun, as it goes away.
var unbegun = status.Error(codes.Unavailable, "it ended the stream before it took the request")

// ask sends message and waits for the first piece of the answer. A worker that goes away ends the lanes that rest: what was
// sent on one at that moment it has not begun, and is sent once more.
func (a *attempt) ask(message *workerv1.GenerateRequest) error {
	for {
		rested, err := a.dispatch(message)
		if err == nil {
			err = a.begin()
		}
		switch {
		case err == nil, a.lane == nil, a.heard:
			return err
		case errors.Is(err, io.EOF) && !rested:
			a.said = true
			return unbegun
		case errors.Is(err, io.EOF):
		case status.Code(err) == codes.Unimplemented: // another program than the one whose reports were heard
			a.client.single(a.peer)
		default:
			return err
		}
		a.quit()
	}
}

// quit ends the lane.
func (a *attempt) quit() {
	a.unhook()
	a.lane.end()
	a.lane, a.call = nil, nil
}

// own holds what comes on a lane to the rule that it is an answer to this very attempt: the first response is an Accepted or an
// Ended, only the first is an Accepted, and both say whom they are for. What breaks it is of another request, maybe of another
// tenant.
func (a *attempt) own(r *workerv1.GenerateResponse) error {
	if a.lane == nil {
		return nil
	}
	ours := a.heard
	switch x := r.GetEvent().(type) {
	case *workerv1.GenerateResponse_Accepted:
		ours = !a.heard && x.Accepted.GetAttemptId() == a.id
	case *workerv1.GenerateResponse_Ended:
		ours = x.Ended.GetAttemptId() == a.id
	}
	if !ours {
		a.started = true // on whatever
		return status.Error(codes.Unknown, "it answers another request than the one that it was sent")
	}
	a.heard = true
	return nil
}

// ended takes the end of a request on a lane: what it ended with, where no finish came before.
func (a *attempt) ended(e *workerv1.Ended) error {
	if a.lane == nil {
		a.started = true
		return status.Error(codes.Unknown, "it ends a request on a stream that has no other")
	}
	a.said, a.free = true, true
	if err := many.Err(e); err != nil {
		return err
	}
	return io.EOF
}

// last reads what follows the last finish: the end of the call, or on a lane that of the request. Errors no longer matter.
func (a *attempt) last() {
	if a.lane == nil {
		_ = a.call.RecvMsg(unread{}) // io.EOF
		return
	}
	var r workerv1.GenerateResponse
	a.free = a.call.RecvMsg(&r) == nil && r.GetEnded().GetAttemptId() == a.id
}

// leave gives the lane back where the request on it has ended, and ends it otherwise.
func (a *attempt) leave() {
	l := a.lane
	if l == nil {
		return
	}
	a.lane, a.call = nil, nil // it may be another attempt's at once
	if !a.unhook() || !a.free || !a.client.rest(&a.seat, l) {
		l.end()
	}
}

// rest keeps a lane for the next request. It returns false where it does not.
func (c *Client) rest(s *seat, l *lane) bool {
	now := c.options.Clock.Now()
	if now.Sub(l.opened) >= laneAge {
		return false
	}
	c.mu.Lock()
	p := s.peer
	if c.peers[s.key()] != p || p.unknown || p.draining || !p.many {
		c.mu.Unlock()
		return false
	}
	var over []*lane
	switch {
	case len(p.lanes) >= mostLanes:
		over = c.shed(p, 1)
	case c.lanes >= mostAllLanes:
		over = c.shed(c.stalest(), 1)
	}
	l.rested = now
	p.lanes = append(p.lanes, l)
	c.lanes++
	c.watch()
	c.mu.Unlock()
	end(over)
	return true
}

// rouse returns the lane that came to rest last, nil where none rests, and whether the worker takes lanes.
func (c *Client) rouse(p *peer) (l *lane, taken bool) {
	now := c.options.Clock.Now()
	c.mu.Lock()
	over := c.shed(p, p.stale(now))
	if n := len(p.lanes); n > 0 {
		l = p.lanes[n-1]
		p.lanes[n-1] = nil
		p.lanes = p.lanes[:n-1]
		c.lanes--
	}
	taken = p.many
	c.mu.Unlock()
	end(over)
	return l, taken
}

// single has a worker asked by calls of Generate from now on.
func (c *Client) single(p *peer) {
	c.mu.Lock()
	p.many, p.single = false, true
	over := c.shed(p, len(p.lanes))
	c.mu.Unlock()
	end(over)
}

// watch sees to it that the lanes that rest are looked at. The caller holds the lock.
func (c *Client) watch() {
	if c.lanes > 0 && c.sweeper == nil && !c.closed {
		c.sweeper = c.options.Clock.AfterFunc(laneRest, func() { go c.sweep() })
	}
}

// sweep ends the lanes that have rested for long, or are old.
func (c *Client) sweep() {
	now := c.options.Clock.Now()
	c.mu.Lock()
	var over []*lane
	for _, p := range c.peers {
		over = append(over, c.shed(p, p.stale(now))...)
	}
	c.sweeper = nil
	c.watch()
	c.mu.Unlock()
	end(over)
}

// stale is how many lanes of p, from the one that has rested longest on, go up to the last that takes no request any more.
func (p *peer) stale(now time.Time) int {
	for n := len(p.lanes); n > 0; n-- {
		if l := p.lanes[n-1]; now.Sub(l.rested) >= laneRest || now.Sub(l.opened) >= laneAge {
			return n
		}
	}
	return 0
}

// stalest is the peer with the lane that has rested longest. The caller holds the lock, and there is one.
func (c *Client) stalest() *peer {
	var found *peer
	for _, p := range c.peers {
		if len(p.lanes) > 0 && (found == nil || p.lanes[0].rested.Before(found.lanes[0].rested)) {
			found = p
		}
	}
	return found
}

// shed takes the n lanes of p that have rested longest out; the caller holds the lock, and ends them without it.
func (c *Client) shed(p *peer, n int) []*lane {
	if n == 0 {
		return nil
	}
	over := slices.Clone(p.lanes[:n])
	p.lanes = slices.Delete(p.lanes, 0, n)
	c.lanes -= n
	return over
}

// end ends lanes.
func end(lanes []*lane) {
	for _, l := range lanes {
		l.end()
	}
}
