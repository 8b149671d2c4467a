// Package upstream carries requests to workers: it asks package placement where a request goes, calls Generate or Embed
// there, tries the next worker of the ring's walk once when nothing was answered yet, and turns what can go wrong into a
// few errors. It decides neither who is alive (it only says whom it could not reach) nor what a client is told.
package upstream

import (
	"context"
	"errors"
	"maps"
	"net"
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
	Place(modelUID string, key []byte, exclude ...string) (placement.Worker, error)
}

// Options of a Client.
type Options struct {
	// Credentials for the workers.
	Credentials credentials.TransportCredentials
	Placer      Placer
	// Suspect is told of an instance that could not be reached or refused a call before any work. May be nil.
	Suspect func(pod, instance string)
	// Retried is told of each try on a further worker when it begins. May be nil.
	Retried func(Retry)
	Clock   clock.WithDelayedExecution
}

// Retry is one request's way from a worker to another.
type Retry struct {
	ModelUID, RequestID string
	From, To            string // pods
	// Why is the kind of error that From ended with, in words that hold nothing of the request or of what From said.
	Why string
}

// Client calls workers over one connection to each. All methods may be called from any goroutine.
type Client struct {
	options Options

	mu       sync.Mutex // guards what follows; never held while calling another package
	peers    map[peerKey]*peer
	inFlight map[string]uint32 // by pod
	closed   bool
}

// New returns a client without connections; they are made when a request needs one. Close it when done.
func New(o Options) *Client {
	return &Client{options: o, peers: map[peerKey]*peer{}, inFlight: map[string]uint32{}}
}

// Worker is one that the client is told of by Sync.
type Worker struct {
	Pod, Instance, Address string
	// Lost says that nothing which runs there can be expected to end: its streams end with ErrLost at once.
	Lost bool
}

// Sync tells which workers there are. The connection to one that is not named is closed when its last stream has
// ended, the connection to one that is lost at once.
func (c *Client) Sync(workers []Worker) {
	named := make(map[peerKey]bool, len(workers))
	for _, w := range workers {
		named[peerKey{w.Pod, w.Instance, w.Address}] = !w.Lost
	}
	var gone []*peer
	c.mu.Lock()
	for key, p := range c.peers {
		alive, known := named[key]
		p.unknown = !known
		if known && !alive || p.unknown && p.streams == 0 {
			delete(c.peers, key)
			gone = append(gone, p)
		}
	}
	c.mu.Unlock()
	for _, p := range gone {
		p.end(ErrLost)
	}
}

// InFlight is the number of requests that run on each pod now; pods without any are left out.
func (c *Client) InFlight() map[string]uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.inFlight)
}

// Close ends every stream with ErrLost and closes the connections. Requests that come later are refused.
func (c *Client) Close() {
	c.mu.Lock()
	peers := c.peers
	c.peers, c.closed = map[peerKey]*peer{}, true
	c.mu.Unlock()
	for _, p := range peers {
		p.end(ErrLost)
	}
}

// peerKey names a connection. A restarted worker has another instance and gets another connection: the old one leads
// to a process that is gone.
type peerKey struct{ pod, instance, address string }

// peer is the connection to one instance.
type peer struct {
	conn *grpc.ClientConn
	ctx  context.Context // ends, with a cause, when its streams must
	stop context.CancelCauseFunc

	streams int  // guarded by Client.mu
	unknown bool // guarded by Client.mu; the last Sync did not name it
}

// end ends all streams with cause and closes the connection.
func (p *peer) end(cause error) {
	p.stop(cause)
	_ = p.conn.Close()
}

// acquire returns the connection to w with one more stream on it. Give it back with release.
func (c *Client) acquire(w placement.Worker) (*peer, error) {
	key := peerKey{w.Pod, w.Instance, w.Address}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, &Error{Kind: ErrRefused, Worker: w.Pod, Detail: "the router stops"}
	}
	p := c.peers[key]
	if p == nil {
		conn, err := c.dial(w)
		if err != nil {
			return nil, &Error{Kind: ErrRefused, Worker: w.Pod, Detail: err.Error()}
		}
		p = &peer{conn: conn}
		p.ctx, p.stop = context.WithCancelCause(context.Background())
		c.peers[key] = p
	}
	p.streams++
	c.inFlight[w.Pod]++
	return p, nil
}

// release ends a stream's hold on p.
func (c *Client) release(w placement.Worker, p *peer) {
	key := peerKey{w.Pod, w.Instance, w.Address}
	c.mu.Lock()
	p.streams--
	if c.inFlight[w.Pod]--; c.inFlight[w.Pod] == 0 {
		delete(c.inFlight, w.Pod)
	}
	last := p.unknown && p.streams == 0 && c.peers[key] == p
	if last {
		delete(c.peers, key)
	}
	c.mu.Unlock()
	if last {
		p.end(ErrLost)
	}
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
