package upstream

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/ringfleet/ringfleet/router/placement"
)

// peerKey names a connection. A restarted worker has another instance and gets another connection: the old one leads
// to a process that is gone.
type peerKey struct{ pod, instance, address string }

// peer is the connection to one instance. Its fields but conn are guarded by Client.mu.
type peer struct {
	conn *grpc.ClientConn

	seats    map[*seat]struct{}
	lanes    []*lane // that rest, the one that came last at the end
	over     []*lane // that rested when it was dropped
	many     bool    // its worker serves GenerateMany
	single   bool    // its worker said that it doesn't, whatever its reports say
	unknown  bool    // the last Sync did not name it
	draining bool    // some Sync said so
	broke    time.Time
}

// drop takes a peer out; end must follow, once. The caller holds the lock, so that Close, which empties peers, waits for
// all that were dropped before.
func (c *Client) drop(key peerKey) {
	p := c.peers[key]
	p.over = c.shed(p, len(p.lanes))
	delete(c.peers, key)
	c.closing.Add(1)
}

// end ends the calls of a peer that was dropped with cause, and lets its connection close: gRPC waits up to 5 s for the
// last words to a host that is silent.
func (c *Client) end(p *peer, cause error, seats []*seat) {
	end(p.over)
	for _, s := range seats {
		s.cancel(cause)
	}
	go func() {
		defer c.closing.Done()
		_ = p.conn.Close()
	}()
}

// seat is one call's place on a connection.
type seat struct {
	worker placement.Worker
	began  time.Time
	cancel context.CancelCauseFunc // ends the call
	extra  bool                    // it is a retry that the budget pays for
	peer   *peer                   // nil before acquire and after its error
}

func (s *seat) key() peerKey { return peerKey{s.worker.Pod, s.worker.Instance, s.worker.Address} }

// acquire gives s a seat on the connection to its worker. Give it back with release.
func (c *Client) acquire(s *seat) error {
	key := s.key()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &Error{Kind: ErrRefused, Worker: s.worker.Pod, Detail: "the router stops"}
	}
	p := c.peers[key]
	if p == nil {
		conn, err := c.dial(s.worker)
		if err != nil {
			return &Error{Kind: ErrRefused, Worker: s.worker.Pod, Detail: err.Error()}
		}
		w := c.workers[s.worker.Pod]
		p = &peer{conn: conn, seats: map[*seat]struct{}{}, draining: w.Draining, many: w.Many && w.Instance == s.worker.Instance}
		c.peers[key] = p
	}
	s.peer = p
	p.seats[s] = struct{}{}
	c.inFlight[s.worker.Pod]++
	c.budget.active++
	return nil
}

// release takes it back, and what the budget has paid for it.
func (c *Client) release(s *seat) {
	c.mu.Lock()
	if s.extra {
		c.budget.refund()
	}
	p := s.peer
	if p == nil {
		c.mu.Unlock()
		return
	}
	delete(p.seats, s)
	c.budget.active--
	if c.inFlight[s.worker.Pod]--; c.inFlight[s.worker.Pod] == 0 {
		delete(c.inFlight, s.worker.Pod)
	}
	last := p.unknown && len(p.seats) == 0 && c.peers[s.key()] == p
	if last {
		c.drop(s.key())
	}
	c.mu.Unlock()
	if last {
		c.end(p, ErrLost, nil)
	}
}
