package fleetclient

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	routerv1 "github.com/ringfleet/ringfleet/api/router/v1"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// maxMessage bounds an answer: 10 000 workers with their reports.
const maxMessage = 64 << 20

// namespace is what the client keeps of one namespace: connections to its routers, and since when which one fails.
type namespace struct {
	name       string
	credential Credentials

	last *look // guarded by Client.mu

	mu      sync.Mutex           // guards the rest; never held during a call
	conns   map[string]*conn     // by pod UID
	failing map[string]time.Time // by pod UID: the first failure since the last answer
	closed  bool
}

type conn struct {
	address string
	grpc    *grpc.ClientConn
}

// status asks one router. A connection that didn't answer in time is given up: it may lead to nobody.
func (n *namespace) status(ctx context.Context, pod Pod) (*routerv1.StatusResponse, error) {
	cc, err := n.conn(pod)
	if err != nil {
		return nil, err
	}
	answer, err := routerv1.NewRouterClient(cc).Status(ctx, &routerv1.StatusRequest{})
	if status.Code(err) == codes.DeadlineExceeded || status.Code(err) == codes.Unavailable {
		n.drop(pod.UID)
	}
	return answer, err
}

func (n *namespace) conn(pod Pod) (*grpc.ClientConn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fmt.Errorf("connect to router %s: the namespace is forgotten", pod.Name)
	}
	if c, ok := n.conns[pod.UID]; ok && c.address == pod.Address {
		return c.grpc, nil
	}
	n.dropLocked(pod.UID)
	creds, err := n.credential(n.name)
	if err != nil {
		return nil, fmt.Errorf("connect to router %s: %w", pod.Name, err)
	}
	cc, err := dial(pod.Address, creds)
	if err != nil {
		return nil, fmt.Errorf("connect to router %s at %s: %w", pod.Name, pod.Address, err)
	}
	n.conns[pod.UID] = &conn{address: pod.Address, grpc: cc}
	return cc, nil
}

// heard notes whether a router answered at now, and returns how long it has been silent.
func (n *namespace) heard(uid string, answered bool, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if answered {
		delete(n.failing, uid)
		return 0
	}
	since, ok := n.failing[uid]
	if !ok {
		n.failing[uid] = now
		return 0
	}
	return now.Sub(since)
}

// silent counts the routers that have been silent for at least after at now.
func (n *namespace) silent(now time.Time, after time.Duration) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, since := range n.failing {
		if now.Sub(since) >= after {
			count++
		}
	}
	return count
}

// retain forgets every router that is not among pods.
func (n *namespace) retain(pods []Pod) {
	there := make(map[string]bool, len(pods))
	for _, p := range pods {
		there[p.UID] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid := range n.conns {
		if !there[uid] {
			n.dropLocked(uid)
		}
	}
	for uid := range n.failing {
		if !there[uid] {
			delete(n.failing, uid)
		}
	}
}

func (n *namespace) drop(uid string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropLocked(uid)
}

func (n *namespace) dropLocked(uid string) {
	if c, ok := n.conns[uid]; ok {
		_ = c.grpc.Close() // fails only when closed already
		delete(n.conns, uid)
	}
}

func (n *namespace) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for uid := range n.conns {
		n.dropLocked(uid)
	}
}

func dial(address string, creds credentials.TransportCredentials) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: callTimeout},
			MinConnectTimeout: callTimeout,
		}),
	)
}

// watchOnce returns the first report of the worker at address.
func watchOnce(ctx context.Context, address string, creds credentials.TransportCredentials) (*workerv1.Report, error) {
	cc, err := dial(address, creds)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cc.Close() }()
	stream, err := workerv1.NewWorkerClient(cc).Watch(ctx, &workerv1.WatchRequest{})
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}
