// Package upstream carries requests to workers: it takes a place at a worker from package placement and sends the
// request there, by GenerateMany, Generate or Embed. While nothing was answered yet it tries the next worker; when a worker is lost in the middle of an answer, it
// goes on with that answer at another one. It turns what can go wrong into a few errors, and refuses for a while what was
// lost with two workers. It decides neither who is alive (it only says how calls ended) nor what a client is told, and it
// never makes or changes a token.
package upstream

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/placement"
)

// Placer chooses a worker; *placement.Board is one. Its error for want of workers is placement.ErrNoWorker.
type Placer interface {
	Place(q *placement.Request, now time.Time) (*placement.Ticket, error)
}

// ticket is what a call does with a *placement.Ticket.
type ticket interface {
	Worker() placement.Worker
	Reason() string
	Usual() time.Duration
	Numbered(prefixNumber uint64)
	Accepted(promptTokens uint32, now time.Time)
	FirstToken(now time.Time)
	Ended(r placement.Result, now time.Time)
}

// Options of a Client. Its functions are called from any goroutine, with no lock of this package held, and must return soon.
type Options struct {
	// Credentials for the workers.
	Credentials credentials.TransportCredentials
	Placer      Placer
	// Suspect is told of an instance that could not be reached or refused a call before any work. May be nil.
	Suspect func(pod, instance string)
	// Outcome is told of each call that says something about its instance. May be nil.
	Outcome func(pod, instance string, o Outcome)
	// Measured is told of each call that made a token, at its end. May be nil.
	Measured func(pod, instance string, m Measure)
	// Retried is told of each try on a further worker when it begins. May be nil.
	Retried func(Retry)
	// Resumed is told of each answer that goes on at another worker, when it does. May be nil.
	Resumed func(Retry)
	// KeptBytes bounds what is kept of all answers together so that they can go on at another worker; 0 is 128 MiB. Where
	// it is used up, the longest answers are no longer kept, and stay with their workers.
	KeptBytes int64
	// Forgot is told the model's UID of each of these. May be nil.
	Forgot func(modelUID string)
	// Quarantined is told of each request that is refused because workers died of it. May be nil.
	Quarantined func(Quarantine)
	Clock       clock.WithDelayedExecution
}

// Retry is one request's way from a worker to another.
type Retry struct {
	ModelUID, RequestID string
	From, To            string // pods
	// Why is the kind of error that From ended with, in words that hold nothing of the request or of what From said.
	Why string
	// Tokens is how many tokens the answer had that To goes on with; 0 where it begins.
	Tokens int
}

// Quarantine is a request that is not run.
type Quarantine struct {
	ModelUID, RequestID string
	Pods                []string // that died at work on it
	Until               time.Time
}

// Outcome is what the end of a call says about its instance. Calls that a client ended, that can run nowhere, or that found a
// full queue or no adapter, say nothing, nor do those that the end of heartbeats ended: that is known already. Where one
// connection breaks under many calls, that is one failure.
type Outcome int

// The outcomes.
const (
	// Good: every choice came to its finish.
	Good Outcome = iota + 1
	// Failed: the call was refused, failed, broke, or stood still for too long.
	Failed
	// NoFirstByte: no token came in the time that is allowed for it.
	NoFirstByte
)

// Measure is how fast a call was.
type Measure struct {
	// FirstToken is the time from the call to the first token.
	FirstToken time.Duration
	// Usual is what that was expected to be at a worker as fast as the mean of the model's.
	Usual time.Duration
	// BetweenTokens is the mean time between two tokens; 0 where there were less than two, or the answer did not come to
	// its finish. A client that reads more slowly than the worker makes it longer.
	BetweenTokens time.Duration
	Tokens        int
}

// Client calls workers over one connection to each. All methods may be called from any goroutine.
type Client struct {
	options Options
	place   func(q *placement.Request, now time.Time) (ticket, error)
	seed    maphash.Seed // of the hashes that requests are known by
	closing sync.WaitGroup
	memory  memory // of what answers keep

	mu       sync.Mutex // guards what follows; never held while calling another package
	peers    map[peerKey]*peer
	workers  map[string]Worker // of the last Sync, by pod
	inFlight map[string]uint32 // by pod
	budget   budget
	suspects quarantine
	lanes    int         // that rest, of all peers
	sweeper  clock.Timer // looks at those; nil where none rests
	closed   bool
}

// New returns a client without connections; they are made when a request needs one. Close it when done.
func New(o Options) *Client {
	c := &Client{
		options: o, seed: maphash.MakeSeed(),
		place: func(q *placement.Request, now time.Time) (ticket, error) {
			t, err := o.Placer.Place(q, now)
			if err != nil {
				return nil, err
			}
			return t, nil
		},
		peers: map[peerKey]*peer{}, workers: map[string]Worker{}, inFlight: map[string]uint32{},
		suspects: quarantine{requests: map[uint64]*suspicion{}},
	}
	if c.memory.most = o.KeptBytes; c.memory.most <= 0 {
		c.memory.most = defaultKept
	}
	return c
}

// Kept is how many bytes are kept now so that answers can go on at another worker.
func (c *Client) Kept() int64 { return c.memory.used.Load() }

// Resting is how many streams to workers wait for their next request now.
func (c *Client) Resting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lanes
}

// Worker is one that the client is told of by Sync.
type Worker struct {
	Pod, Instance, Address string
	// Lost says that nothing which runs there can be expected to end: its streams end with ErrLost at once.
	Lost bool
	// Draining says that it goes away because it was told to.
	Draining bool
	// Many says that it serves GenerateMany.
	Many bool
}

// Sync tells which workers there are. The connection to one that is not named is closed when its last stream has
// ended, the connection to one that is lost at once. Sync does not wait for that: a worker's host may have gone silent.
func (c *Client) Sync(workers []Worker) {
	now := c.options.Clock.Now()
	known := make(map[string]Worker, len(workers))
	for _, w := range workers {
		known[w.Pod] = w
	}
	type going struct {
		*peer
		seats []*seat
	}
	var gone []going
	c.mu.Lock()
	c.workers = known
	for key, p := range c.peers {
		w, named := known[key.pod]
		named = named && w.Instance == key.instance && w.Address == key.address
		p.unknown = !named
		p.draining = p.draining || named && w.Draining
		p.many = !p.single && (p.many || named && w.Many)
		if named && w.Lost || !named && len(p.seats) == 0 {
			c.drop(key)
			gone = append(gone, going{p, slices.Collect(maps.Keys(p.seats))})
		}
	}
	c.suspects.settle(now, c.verdict)
	c.mu.Unlock()
	for _, p := range gone {
		c.end(p.peer, ErrLost, p.seats)
	}
}

// verdict is what the last Sync says about an instance that was lost at work. The caller holds the lock.
func (c *Client) verdict(pod, instance string) verdict {
	w, known := c.workers[pod]
	switch {
	case !known, w.Draining, w.Instance == "": // deleted, told to go, or made again
		return lives
	case w.Lost, w.Instance != instance:
		return died
	}
	return undecided
}

// InFlight is the number of requests that run on each pod now; pods without any are left out.
func (c *Client) InFlight() map[string]uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.inFlight)
}

// Close ends every stream with ErrLost, closes the connections and waits until all are closed, which takes some seconds
// where a worker's host has gone silent. Requests that come later are refused.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	if c.sweeper != nil {
		c.sweeper.Stop()
	}
	seats := map[*peer][]*seat{}
	for key, p := range c.peers {
		c.drop(key)
		seats[p] = slices.Collect(maps.Keys(p.seats))
	}
	c.mu.Unlock()
	for p, list := range seats {
		c.end(p, errStops, list)
	}
	c.closing.Wait()
}

// maxReceive is the most bytes of a worker's message: 2048 vectors of 4096 numbers, and what is around them.
const maxReceive = 32<<20 + 64<<10

// How many bytes a worker may send ahead on a stream and on a connection. Sizes that gRPC does not adapt: to adapt them it
// asks for an echo of each message, and a stream has a message for each token.
const (
	streamWindow     = 64 << 10
	connectionWindow = 1 << 20
)

// dial makes a connection, which opens with its first call. A worker that is back is tried within a second.
func (c *Client) dial(w placement.Worker) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+w.Address,
		grpc.WithTransportCredentials(c.options.Credentials),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connectionWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
				c.suspect(w)
			}
			return conn, err
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 3 * time.Second, PermitWithoutStream: true,
		}))
}

func (c *Client) retried(r Retry) {
	if c.options.Retried != nil {
		c.options.Retried(r)
	}
}

func (c *Client) suspect(w placement.Worker) {
	if c.options.Suspect != nil {
		c.options.Suspect(w.Pod, w.Instance)
	}
}

// report tells what the end of a call says about its instance. Calls that began before a connection was seen to break went
// down with it, and are not told again.
func (c *Client) report(s *seat, o Outcome, broken bool) {
	if o == 0 || c.options.Outcome == nil {
		return
	}
	now := c.options.Clock.Now()
	c.mu.Lock()
	told := s.peer == nil || s.peer.draining || broken && !s.began.After(s.peer.broke)
	if broken && !told {
		s.peer.broke = now
	}
	c.mu.Unlock()
	if !told {
		c.options.Outcome(s.worker.Pod, s.worker.Instance, o)
	}
}
