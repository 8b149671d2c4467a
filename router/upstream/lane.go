package upstream

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ringfleet/ringfleet/api/worker/many"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// How many lanes may rest, waiting for their next request: on one connection, and in all.
const (
	mostLanes    = 64
	mostAllLanes = 1024
)

const (
	// laneRest is how long a lane may rest. What no traffic needs any more is seen when the next lane comes to rest.
	laneRest = 30 * time.Second
	// laneAge is how old a lane may become, so that a connection that its worker wants to replace can end.
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
}

// dispatch sends message to the worker. It says whether it did so on a lane that had rested, which may have ended meanwhile.
func (a *attempt) dispatch(message *workerv1.GenerateRequest) (rested bool, err error) {
	worker := workerv1.NewWorkerClient(a.peer.conn)
	for {
		l, taken := a.client.rouse(a.peer)
		if !taken {
			stream, err := worker.Generate(a.ctx, message, generateOptions...)
			if err == nil {
				a.call, a.trailer = stream, stream.Trailer
			}
			return false, err
		}
		rested = l != nil
		if l == nil {
			ctx, end := context.WithCancel(context.Background())
			a.unhook = context.AfterFunc(a.ctx, end)
			stream, err := worker.GenerateMany(ctx, generateOptions...)
			if err != nil {
				end()
				return false, err
			}
			l = &lane{BidiStreamingClient: stream, end: end, opened: a.client.options.Clock.Now()}
		} else {
			a.unhook = context.AfterFunc(a.ctx, l.end)
		}
		a.lane, a.call, a.trailer = l, l, l.Trailer
		if err = l.Send(message); !errors.Is(err, io.EOF) {
			return rested, err
		}
		if !rested { // why it has ended is what the next reading says
			return false, nil
		}
		a.quit()
	}
}

// quit ends the lane.
func (a *attempt) quit() {
	a.unhook()
	a.lane.end()
	a.lane, a.call, a.trailer = nil, nil, nil
}

// greeted holds what comes on a lane to the rule that it is an answer to this very attempt: its first response says so. What
// isn't is of another request, maybe of another tenant.
func (a *attempt) greeted(r *workerv1.GenerateResponse) error {
	if a.lane == nil || a.heard {
		return nil
	}
	id := r.GetAccepted().GetAttemptId()
	if e := r.GetEnded(); e != nil {
		id = e.GetAttemptId()
	}
	if id != a.id {
		a.started = true // on whatever
		return status.Error(codes.Unknown, "it answers another request than the one that it was sent")
	}
	a.heard = true
	return nil
}

// ended takes the end of a request on a lane: what it ended with, where no finish came before.
func (a *attempt) ended(e *workerv1.Ended) error {
	if a.lane == nil || e.GetAttemptId() != a.id {
		a.started = true
		return status.Error(codes.Unknown, "it ends another request than the one that it was sent")
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
	var e end
	if a.call.RecvMsg(&e) == nil {
		a.free = string(e.attempt) == a.id
	}
}

// leave gives the lane back where the request on it has ended, and ends it otherwise.
func (a *attempt) leave() {
	l := a.lane
	if l == nil {
		return
	}
	a.lane = nil
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
	defer c.mu.Unlock()
	p := s.peer
	if c.peers[s.key()] != p || p.unknown || p.draining {
		return false
	}
	if now.Sub(c.swept) >= laneRest {
		c.sweep(now)
	}
	if len(p.lanes) >= mostLanes || c.lanes >= mostAllLanes {
		return false
	}
	l.rested = now
	p.lanes = append(p.lanes, l)
	c.lanes++
	return true
}

// rouse returns the lane that came to rest last, nil where none rests, and whether the worker takes lanes.
func (c *Client) rouse(p *peer) (l *lane, taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(p.lanes); n > 0 {
		l = p.lanes[n-1]
		p.lanes[n-1] = nil
		p.lanes = p.lanes[:n-1]
		c.lanes--
	}
	return l, p.many
}

// sweep ends the lanes that have rested for long. The caller holds the lock.
func (c *Client) sweep(now time.Time) {
	c.swept = now
	for _, p := range c.peers {
		n := 0
		for n < len(p.lanes) && now.Sub(p.lanes[n].rested) >= laneRest {
			n++
		}
		c.close(p, n)
	}
}

// close ends the n lanes of p that have rested longest. The caller holds the lock.
func (c *Client) close(p *peer, n int) {
	for _, l := range p.lanes[:n] {
		l.end()
	}
	c.lanes -= n
	left := copy(p.lanes, p.lanes[n:])
	clear(p.lanes[left:])
	p.lanes = p.lanes[:left]
}

// end is an Ended that is read where all else has come: only whose it is matters.
type end struct{ attempt []byte }

// The fields of a GenerateResponse and of an Ended.
const (
	fieldEnded   protowire.Number = 4
	fieldAttempt protowire.Number = 1
)

// read takes the id out of a message; it stays empty where the message is something else.
func (e *end) read(b []byte) error {
	num, typ, n := protowire.ConsumeTag(b)
	if n > 0 && num == fieldEnded && typ == protowire.BytesType {
		body, m := protowire.ConsumeBytes(b[n:])
		if num, typ, k := protowire.ConsumeTag(body); m > 0 && n+m == len(b) && k > 0 && num == fieldAttempt && typ == protowire.BytesType {
			if id, m := protowire.ConsumeBytes(body[k:]); m > 0 && k+m == len(body) {
				e.attempt = append(e.attempt[:0], id...)
				return nil
			}
		}
	}
	var r workerv1.GenerateResponse
	if err := proto.Unmarshal(b, &r); err != nil {
		return err
	}
	e.attempt = append(e.attempt[:0], r.GetEnded().GetAttemptId()...)
	return nil
}
