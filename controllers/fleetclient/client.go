// Package fleetclient asks routers what they know of workers, and a worker itself when no router knows it. It answers
// with what was said and since when a router is silent; what follows from that is decided by the controllers.
package fleetclient

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"
	"k8s.io/utils/clock"

	routerv1 "github.com/ringfleet/ringfleet/api/router/v1"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// Limits of the asking.
const (
	// callTimeout bounds one call, the connection it may need included.
	callTimeout = time.Second
	// keep is how long a look at a namespace's routers answers further callers.
	keep = 300 * time.Millisecond
	// parallel is how many routers of a namespace are asked at once.
	parallel = 32
	// SilentAfter is how long a Ready router may leave calls unanswered before it is left out.
	SilentAfter = 10 * time.Second
)

// Pod is a router pod that Kubernetes calls Ready, or a worker pod.
type Pod struct {
	Name string
	UID  string
	// Address is the host:port of its gRPC server.
	Address string
}

// routerPods names the Ready router pods of a namespace.
type routerPods func(ctx context.Context, namespace string) ([]Pod, error)

// Credentials are what the manager shows in a namespace, and whom it accepts there.
type Credentials func(namespace string) (credentials.TransportCredentials, error)

// Router is one Ready router pod of a namespace.
type Router struct {
	Pod string
	// Status is its answer; nil when it did not answer this time.
	Status *routerv1.StatusResponse
	// Silence is how long its calls have failed; 0 when it answered. From SilentAfter on, leave it out and say so.
	Silence time.Duration
	// Error is why the call failed.
	Error string
}

// Silent reports whether r has been silent for so long that it is left out.
func (r Router) Silent() bool { return r.Status == nil && r.Silence >= SilentAfter }

// Client asks the routers and workers of all namespaces. Its zero value is not usable; close it when done.
type Client struct {
	pods       routerPods
	credential Credentials
	clock      clock.PassiveClock

	calls  sync.WaitGroup
	ctx    context.Context // ends with Close, and with it every call
	cancel context.CancelFunc

	mu         sync.Mutex // guards namespaces and closed; never held during a call
	namespaces map[string]*namespace
	closed     bool
}

// New returns a client that asks the routers that pods names.
func New(pods func(ctx context.Context, namespace string) ([]Pod, error), c Credentials, clk clock.PassiveClock) *Client {
	ctx, cancel := context.WithCancel(context.Background())
	return &Client{
		pods: pods, credential: c, clock: clk,
		ctx: ctx, cancel: cancel, namespaces: map[string]*namespace{},
	}
}

// Close ends running calls and all connections. Later calls fail.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.calls.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, n := range c.namespaces {
		n.close()
		delete(c.namespaces, name)
	}
}

// Routers returns what every Ready router of a namespace says. Callers that come together share one look, and one that
// is less than 300 ms old is not repeated. The result is shared: don't change it.
func (c *Client) Routers(ctx context.Context, name string) ([]Router, error) {
	l, err := c.join(name)
	if err != nil {
		return nil, err
	}
	select {
	case <-l.done:
		return l.routers, l.err
	case <-ctx.Done():
		return nil, fmt.Errorf("ask the routers of namespace %s: %w", name, ctx.Err())
	}
}

// Forget drops what is kept of a namespace, and its connections.
func (c *Client) Forget(name string) {
	c.mu.Lock()
	n := c.namespaces[name]
	delete(c.namespaces, name)
	c.mu.Unlock()
	if n != nil {
		n.close()
	}
}

// look is one round of questions. Its results are written before done is closed, and never after.
type look struct {
	done    chan struct{}
	routers []Router
	err     error
	ended   time.Time
}

// join returns the look that answers a caller of now: the running one, a fresh one, or a new one.
func (c *Client) join(name string) (*look, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("ask the routers of namespace %s: the client is closed", name)
	}
	n, ok := c.namespaces[name]
	if !ok {
		n = &namespace{name: name, credential: c.credential, conns: map[string]*conn{}, failing: map[string]time.Time{}}
		c.namespaces[name] = n
	}
	if l := n.last; l != nil {
		select {
		case <-l.done:
			if l.err == nil && c.clock.Since(l.ended) < keep {
				return l, nil
			}
		default:
			return l, nil
		}
	}
	l := &look{done: make(chan struct{})}
	n.last = l
	c.calls.Add(1)
	go func() {
		defer c.calls.Done()
		defer close(l.done)
		l.routers, l.err = c.ask(n)
		l.ended = c.clock.Now()
	}()
	return l, nil
}

// ask asks every router once. One look of a namespace runs at a time, so n is its own meanwhile.
func (c *Client) ask(n *namespace) ([]Router, error) {
	pods, err := c.pods(c.ctx, n.name)
	if err != nil {
		return nil, fmt.Errorf("find the routers of namespace %s: %w", n.name, err)
	}
	n.retain(pods)
	routers := make([]Router, len(pods))
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, pod := range pods {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
			defer cancel()
			status, err := n.status(ctx, pod)
			routers[i] = Router{Pod: pod.Name, Status: status, Silence: n.heard(pod.UID, err == nil, c.clock.Now())}
			if err != nil {
				routers[i].Error = err.Error()
			}
			return nil
		})
	}
	return routers, g.Wait()
}

// Worker returns a worker's own report, over a connection of its own.
func (c *Client) Worker(ctx context.Context, name string, pod Pod) (*workerv1.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	creds, err := c.credential(name)
	if err != nil {
		return nil, fmt.Errorf("ask worker %s: %w", pod.Name, err)
	}
	report, err := watchOnce(ctx, pod.Address, creds)
	if err != nil {
		return nil, fmt.Errorf("ask worker %s at %s: %w", pod.Name, pod.Address, err)
	}
	return report, nil
}
