package life

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
)

// service does what a Service of a cluster does for its routers: a new connection goes to one of those that are ready, by
// chance, and stays with it. A router is ready while its probe says so, and no longer when that has failed twice.
type service struct {
	r *rig.Rig

	mu    sync.Mutex // guards ready
	ready map[string]string
	// closing counts the responses after which a router wanted no more on that connection.
	closing int
}

// probeEach is how often a router is probed.
const probeEach = 500 * time.Millisecond

// open starts the probes, which end with ctx, and waits until all routers are ready.
func open(ctx context.Context, r *rig.Rig) (*service, error) {
	s := &service{r: r, ready: map[string]string{}}
	for _, x := range r.Routers {
		go s.probe(ctx, x)
	}
	return s, rig.Until(ctx, 10*time.Millisecond, func(context.Context) error {
		if s.count() < len(r.Routers) {
			return errors.New("not all routers are ready")
		}
		return nil
	})
}

func (s *service) probe(ctx context.Context, x *rig.Router) {
	tick := time.NewTicker(probeEach)
	defer tick.Stop()
	for failed := 0; ; {
		if x.Ready(ctx) {
			failed = 0
			s.set(x, true)
		} else if failed++; failed >= 2 {
			s.set(x, false)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *service) set(x *rig.Router, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ready, x.Name)
	if is {
		s.ready[x.Name] = strings.TrimPrefix(x.URL, "http://")
	}
}

func (s *service) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ready)
}

// has reports whether new connections may go to a router.
func (s *service) has(x *rig.Router) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready[x.Name] != ""
}

var errNobody = errors.New("no router is ready")

// dial connects to one of the routers.
func (s *service) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.mu.Lock()
	var to []string
	for _, address := range s.ready {
		to = append(to, address)
	}
	s.mu.Unlock()
	if len(to) == 0 {
		return nil, errNobody
	}
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", to[rand.IntN(len(to))])
}

// routerHeader is put on responses: the address that they came from.
const routerHeader = "X-Rig-Router"

// traced remembers which router a response came from.
type traced struct {
	s *service
	t *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *traced) RoundTrip(q *http.Request) (*http.Response, error) {
	var mu sync.Mutex // guards address
	address := ""
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		mu.Lock()
		defer mu.Unlock()
		if i.Conn != nil {
			address = i.Conn.RemoteAddr().String()
		}
	}}
	a, err := t.t.RoundTrip(q.WithContext(httptrace.WithClientTrace(q.Context(), trace)))
	if err != nil {
		return nil, err
	}
	mu.Lock()
	defer mu.Unlock()
	a.Header.Set(routerHeader, address)
	if a.Close || a.Header.Get("Connection") == "close" {
		t.s.mu.Lock()
		t.s.closing++
		t.s.mu.Unlock()
	}
	return a, nil
}

// CloseIdleConnections is what http.Client calls.
func (t *traced) CloseIdleConnections() { t.t.CloseIdleConnections() }

// client returns one that asks the service, by HTTP/1.1 or by HTTP/2. Its connections are its own.
func (s *service) client(http2 bool) *client.Client {
	p := new(http.Protocols)
	p.SetHTTP1(!http2)
	p.SetUnencryptedHTTP2(http2)
	t := &http.Transport{Protocols: p, DialContext: s.dial, MaxIdleConns: 1 << 10, MaxIdleConnsPerHost: 1 << 10, IdleConnTimeout: time.Minute, DisableCompression: true}
	names := map[string]string{}
	for _, x := range s.r.Routers {
		names[strings.TrimPrefix(x.URL, "http://")] = x.Name
	}
	met := func(a *http.Response) string { return names[a.Header.Get(routerHeader)] }
	return client.Over(&traced{s, t}, met, "http://service", s.r.Log)
}

// clients are how many ask the service at once: some for long streams, one after the other, and some at a rate for short
// answers. Half of them speak HTTP/2.
const (
	clients       = 6
	streamsEach   = 3
	shortsASecond = 5
)

// load asks the service until stop is closed, with streams of so many words.
func (s *service) load(ctx context.Context, words int, stop <-chan struct{}) (all []history.Client) {
	var mu sync.Mutex // guards all
	var group sync.WaitGroup
	add := func(some []history.Client) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, some...)
	}
	for i := range clients {
		c := s.client(i%2 == 1)
		defer c.Close()
		group.Go(func() {
			add(c.Closed(ctx, streamsEach, stop, func(int) client.Request { return chat(words, true) }))
		})
		group.Go(func() {
			add(c.Open(ctx, shortsASecond, stop, func(n int) client.Request { return chat(2, n%2 == 0) }))
		})
	}
	group.Wait()
	return all
}

// beside runs the load beside do.
func (s *service) beside(ctx context.Context, words int, do func() error) ([]history.Client, error) {
	stop := make(chan struct{})
	var all []history.Client
	var group sync.WaitGroup
	group.Go(func() { all = s.load(ctx, words, stop) })
	err := do()
	close(stop)
	group.Wait()
	return all, err
}
