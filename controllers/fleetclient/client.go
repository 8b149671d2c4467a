// Package fleetclient asks routers what they know of workers, and a worker itself when no router knows it. It answers
// with what was said and since when a router is silent; what follows from that is decided by the controllers.
package fleetclient

import (
	"context"
	"fmt"
	"maps"
	"slices"
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
	// lookTimeout bounds all calls of a look. Who was not asked by then counts as not having answered.
	lookTimeout = 3 * time.Second
	// parallel is how many pods of a namespace are asked at once.
	parallel = 32
)

// Pod is a router pod that Kubernetes calls Ready, or a worker pod.
type Pod struct {
	Name string
	UID  string
	// Address is the host:port of its gRPC server.
	Address string
}

// Pods are whom to ask in a namespace: its Ready routers, and its workers whose container runs.
type Pods struct {
	Routers, Workers []Pod
}

// Find names the pods of a namespace.
type Find func(ctx context.Context, namespace string) (Pods, error)

// Credentials are what the manager shows in a namespace, and whom it accepts there.
type Credentials func(namespace string) (credentials.TransportCredentials, error)

// Router is one Ready router pod of a namespace.
type Router struct {
	Pod string
	// Status is its answer; nil when it did not answer this time.
	Status *routerv1.StatusResponse
	// Silence is how long its calls have failed; 0 when it answered.
	Silence time.Duration
	// Error is why the call failed.
	Error string
}

// View is what the pods of a namespace said at one moment. It is shared: don't change it.
type View struct {
	Routers []Router
	// Workers are the reports of workers that were asked themselves because no router has one, by the UID of their pod.
	// One that did not answer is absent.
	Workers map[string]*workerv1.Report
}

// Client asks the routers and workers of all namespaces. Its zero value is not usable; close it when done.
type Client struct {
	find       Find
	credential Credentials
	clock      clock.PassiveClock

	calls  sync.WaitGroup
	ctx    context.Context // ends with Close, and with it every call
	cancel context.CancelFunc

	mu         sync.Mutex // guards namespaces and closed; never held during a call
	namespaces map[string]*namespace
	closed     bool
}

// New returns a client that asks the pods that find names.
func New(find Find, c Credentials, clk clock.PassiveClock) *Client {
	ctx, cancel := context.WithCancel(context.Background())
	return &Client{
		find: find, credential: c, clock: clk,
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

// Look returns what every Ready router of a namespace says, and what workers say of which no router has a report.
// Callers that come together share one look, and one that is less than 300 ms old is not repeated.
func (c *Client) Look(ctx context.Context, name string) (View, error) {
	l, err := c.join(name)
	if err != nil {
		return View{}, err
	}
	select {
	case <-l.done:
		return l.view, l.err
	case <-ctx.Done():
		return View{}, fmt.Errorf("ask the routers of namespace %s: %w", name, ctx.Err())
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

// Silent counts the Ready routers of all namespaces that have been silent for at least after.
func (c *Client) Silent(after time.Duration) int {
	now := c.clock.Now()
	c.mu.Lock()
	known := slices.Collect(maps.Values(c.namespaces))
	c.mu.Unlock()
	count := 0
	for _, n := range known {
		count += n.silent(now, after)
	}
	return count
}

// look is one round of questions. Its results are written before done is closed, and never after.
type look struct {
	done  chan struct{}
	view  View
	err   error
	ended time.Time
}

// join returns the look that answers a caller of now: the running one, a fresh one, or a new one.
func (c *Client) join(name string) (*look, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.namespace(name)
	if err != nil {
		return nil, err
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
		l.view, l.err = c.ask(n)
		l.ended = c.clock.Now()
	}()
	return l, nil
}

// namespace returns what is kept of a namespace. The caller holds the lock.
func (c *Client) namespace(name string) (*namespace, error) {
	if c.closed {
		return nil, fmt.Errorf("ask the routers of namespace %s: the client is closed", name)
	}
	n, ok := c.namespaces[name]
	if !ok {
		n = &namespace{name: name, credential: c.credential, conns: map[string]*conn{}, failing: map[string]time.Time{}}
		c.namespaces[name] = n
	}
	return n, nil
}

// ask asks every router once, and then the workers that none of them has a report of. One look of a namespace runs at a
// time.
func (c *Client) ask(n *namespace) (View, error) {
	ctx, cancel := context.WithTimeout(c.ctx, lookTimeout)
	defer cancel()
	pods, err := c.find(ctx, n.name)
	if err != nil {
		return View{}, fmt.Errorf("find the pods of namespace %s: %w", n.name, err)
	}
	n.retain(pods.Routers)
	v := View{Routers: make([]Router, len(pods.Routers)), Workers: map[string]*workerv1.Report{}}
	each(pods.Routers, func(i int, pod Pod) {
		v.Routers[i] = c.askRouter(ctx, n, pod)
	})
	unknown := unreported(pods.Workers, v.Routers)
	reports := make([]*workerv1.Report, len(unknown))
	each(unknown, func(i int, pod Pod) {
		reports[i] = c.askWorker(ctx, n, pod)
	})
	for i, r := range reports {
		if r != nil {
			v.Workers[unknown[i].UID] = r
		}
	}
	return v, nil
}

// each calls do for all pods, at most parallel at once.
func each(pods []Pod, do func(i int, pod Pod)) {
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, pod := range pods {
		g.Go(func() error {
			do(i, pod)
			return nil
		})
	}
	_ = g.Wait() // do has no error
}

func (c *Client) askRouter(ctx context.Context, n *namespace, pod Pod) Router {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, err := n.status(ctx, pod)
	r := Router{Pod: pod.Name, Status: status, Silence: n.heard(pod.UID, err == nil, c.clock.Now())}
	if err != nil {
		r.Status, r.Error = nil, err.Error()
	}
	return r
}

// askWorker returns a worker's own report, over a connection of its own, or nil: a worker that does not answer yet is
// nothing to report.
func (c *Client) askWorker(ctx context.Context, n *namespace, pod Pod) *workerv1.Report {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	creds, err := c.credential(n.name)
	if err != nil {
		return nil
	}
	report, err := watchOnce(ctx, pod.Address, creds)
	if err != nil {
		return nil
	}
	return report
}

// unreported returns the workers of which no router has a report.
func unreported(workers []Pod, routers []Router) []Pod {
	known := map[string]bool{}
	for _, r := range routers {
		for _, m := range r.Status.GetModels() {
			for _, w := range m.GetWorkers() {
				if w.GetReport() != nil {
					known[w.GetPodUid()] = true
				}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(workers), func(p Pod) bool { return known[p.UID] })
}
