// Package server is the wiring of the router: its settings, its three listeners, how what the cluster says reaches the
// ring and the gateway, and how the process ends. It decides only whether this router is ready, and when it stops.
package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/identity"
	routerv1 "github.com/ringfleet/ringfleet/api/router/v1"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/lines"
	"github.com/ringfleet/ringfleet/router/metrics"
	"github.com/ringfleet/ringfleet/router/openai"
	"github.com/ringfleet/ringfleet/router/tracing"
)

// Source tells what the cluster says; *discovery.Watcher is one.
type Source interface {
	// Run tells every state until ctx ends, and returns ctx's error then.
	Run(ctx context.Context, tell func(discovery.State)) error
}

// router is one process.
type router struct {
	options Options
	clock   clock.WithDelayedExecution // of the drain
	log     *slog.Logger
	fleet   *fleet
	gateway *gateway.Handler
	ops     *ops

	http, probes *http.Server
	grpc         *grpc.Server
	running      *running                // requests of the clients
	endRequests  context.CancelCauseFunc // of them
	listeners    []net.Listener          // http, grpc, ops
}

// Run serves until ctx ends, then drains. It returns nil after a drain, and an error where it could not start or a
// listener broke.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	giveRoom()
	defer followLoad()()
	return logging(os.Stderr, func(log *slog.Logger) error {
		watcher, err := discovery.New(discovery.Options{Kubeconfig: o.Kubeconfig, Namespace: o.Namespace, Router: o.RouterName,
			Log: logr.FromSlogHandler(log.Handler())})
		if err != nil {
			return err
		}
		return run(ctx, o, log, surroundings{source: watcher})
	})
}

// RunFrom is Run with what the cluster says told by from.
func RunFrom(ctx context.Context, o Options, from Source) error {
	if err := o.Validate(); err != nil {
		return err
	}
	giveRoom()
	defer followLoad()()
	return logging(os.Stderr, func(log *slog.Logger) error { return run(ctx, o, log, surroundings{source: from}) })
}

// logging calls f with a log to file. However f ends, no line of it waits then.
func logging(file io.Writer, f func(log *slog.Logger) error) error {
	w := lines.New(file, clock.RealClock{})
	defer w.Close()
	return f(slog.New(w.Handler()))
}

// surroundings are what a process is told by.
type surroundings struct {
	source  Source
	heart   clock.Clock   // of the heartbeats; nil: the real one
	started func(*router) // where it is not nil, called when all listeners are open
}

// run is Run with its surroundings.
func run(ctx context.Context, o Options, log *slog.Logger, around surroundings) error {
	k, err := openKeys(ctx, clock.RealClock{}, logr.FromSlogHandler(log.Handler()), o.TLSDir, o.Namespace)
	if err != nil {
		return err
	}
	defer k.Close()
	cert, err := openCertificate(clock.RealClock{}, logr.FromSlogHandler(log.Handler()), o.ClientTLSDir)
	if err != nil {
		return err
	}
	defer cert.Close()
	traces, err := tracing.New(ctx, tracing.Options{Endpoint: o.OTLPEndpoint, Version: o.Version, Namespace: o.Namespace, Pod: o.PodName})
	if err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	defer closeTraces(traces, log)
	if around.heart == nil {
		around.heart = clock.RealClock{}
	}
	r, err := newRouter(o, log, k, cert, traces, around.heart)
	if err != nil {
		return err
	}
	defer r.fleet.Close()
	if around.started != nil {
		around.started(r)
	}
	watching, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	broken := make(chan error, 4)
	r.serve(&group, broken)
	group.Go(func() {
		err := around.source.Run(watching, func(s discovery.State) {
			r.gateway.SetState(r.fleet.apply(s))
			r.fleet.told.Store(true)
		})
		if watching.Err() == nil {
			broken <- fmt.Errorf("watch namespace %s: %w", o.Namespace, err)
		}
	})
	log.Info("the router serves", "version", o.Version, "http", r.listeners[0].Addr().String(), "grpc", r.listeners[1].Addr().String(),
		"ops", r.listeners[2].Addr().String(), "namespace", o.Namespace, "router", o.RouterName)
	select {
	case <-ctx.Done():
		r.drain()
	case err = <-broken:
	}
	r.close()
	stop()
	group.Wait()
	return err
}

// newRouter opens the listeners and builds what serves them.
func newRouter(o Options, log *slog.Logger, k *keys, cert *certificate, traces *tracing.Tracer, heart clock.Clock) (*router, error) {
	r := &router{options: o, clock: clock.RealClock{}, log: log}
	for _, l := range []struct{ flag, address string }{
		{"http-address", o.HTTPAddress}, {"grpc-address", o.GRPCAddress}, {"ops-address", o.OpsAddress},
	} {
		config := net.ListenConfig{KeepAlive: 15 * time.Second}
		listener, err := config.Listen(context.Background(), "tcp", l.address)
		if err != nil {
			r.closeListeners()
			return nil, fmt.Errorf("--%s %s: %w", l.flag, l.address, err)
		}
		r.listeners = append(r.listeners, listener)
	}
	set := metrics.New()
	r.fleet = newFleet(fleetOptions{clock: r.clock, heart: heart, creds: k.toWorkers,
		log: logr.FromSlogHandler(log.Handler()), set: set, indexBytes: o.PrefixIndexBytes, waitBytes: o.MaxBodyBytesTotal / 2,
		keptBytes: o.MaxKeptBytes, rand: mathrand.Float64})
	r.gateway = gateway.New(gateway.Config{
		Clock: r.clock, Rand: rand.Reader, Log: log, MaxBodyBytes: o.MaxBodyBytes, MaxBodyBytesTotal: o.MaxBodyBytesTotal,
		Measure:   func(model string) gateway.Measure { return measure{set.Begin(model)} },
		Generator: &generator{r.fleet}, Trace: traces.Begin,
	})
	r.ops = newOps(r.fleet, set)
	warn := slog.NewLogLogger(log.Handler(), slog.LevelWarn) // what the servers themselves have to say
	requests, end := context.WithCancelCause(context.Background())
	r.endRequests = end
	r.running = newRunning()
	r.http = newFront(requests, r.running.counted(r.gateway), cert, warn)
	r.probes = &http.Server{Handler: r.ops.mux, ErrorLog: warn,
		ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 120 * time.Second, MaxHeaderBytes: 32 << 10}
	r.grpc = grpc.NewServer(grpc.Creds(k.fromManager), grpc.MaxConcurrentStreams(100), grpc.KeepaliveParams(identity.Keepalive()),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))
	routerv1.RegisterRouterServer(r.grpc, &statusServer{fleet: r.fleet, clock: clock.RealClock{}, name: o.PodName})
	return r, nil
}

// lastSpans is how long the last spans may take to their collector.
const lastSpans = 5 * time.Second

func closeTraces(t *tracing.Tracer, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), lastSpans)
	defer cancel()
	if err := t.Close(ctx); err != nil {
		log.Warn("the last traces did not reach their collector", "error", err.Error())
	}
}

// serve starts the three servers. What breaks one of them is sent to broken.
func (r *router) serve(group *sync.WaitGroup, broken chan<- error) {
	clients := func(l net.Listener) error { return serveFront(r.http, l, r.options.MaxConnections) }
	for i, serve := range []func(net.Listener) error{clients, r.grpc.Serve, r.probes.Serve} {
		group.Go(func() {
			err := serve(r.listeners[i])
			drained := i == 0 && r.ops.draining.Load() // drain closes the clients' listener
			if err != nil && !drained && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
				broken <- fmt.Errorf("serve %s: %w", r.listeners[i].Addr(), err)
			}
		})
	}
}

func (r *router) closeListeners() {
	for _, l := range r.listeners {
		_ = io.Closer(l).Close()
	}
}

// close ends what drain has left.
func (r *router) close() {
	r.endRequests(gateway.ErrShutdown)
	_ = r.http.Close()
	r.grpc.Stop()
	_ = r.probes.Close()
}

// measure is gateway.Measure on the router's metrics.
type measure struct{ *metrics.Request }

// Finished ends the request's figures.
func (m measure) Finished(outcome gateway.Outcome, took time.Duration, u openai.Usage) {
	m.End(string(outcome), took, u.Prompt, u.Cached, u.Completion)
}
