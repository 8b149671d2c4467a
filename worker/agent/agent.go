// Package agent wires a worker: it starts the servers at once, loads the model behind them, and ends them in order. What a
// request goes through is in grpcserver and scheduler; what the model runs on is in engine's drivers. The agent decides
// only when the process is loading, loaded, failed, draining and done.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/identity"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/llamacpp"
	"github.com/ringfleet/ringfleet/worker/gpu"
	"github.com/ringfleet/ringfleet/worker/grpcserver"
	"github.com/ringfleet/ringfleet/worker/metrics"
	"github.com/ringfleet/ringfleet/worker/scheduler"
	"github.com/ringfleet/ringfleet/worker/weights/fetch"
)

// agent is a worker process.
type agent struct {
	o       Options
	log     logr.Logger
	clock   clock.WithTicker
	open    func(path string, progress func(int)) (*engine.Loaded, error)
	fetcher *fetch.Fetcher
	state   *state
	set     *metrics.Set
	started time.Time
	failure chan error // the first error that ends the process; the rest are dropped

	progress scheduler.Progress // what the device in this process is at
	stalled  chan struct{}      // closed when it does not come back from there

	memory memory // set before the load

	mu     sync.Mutex // guards the rest
	engine engine.Engine
	ending bool
}

// Run is a worker until ctx ends, and then until it has drained. Its log goes to standard error as JSON.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	lines := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	log := logr.FromSlogHandler(lines.Handler())
	a, err := newAgent(o, log, clock.RealClock{})
	if err != nil {
		return err
	}
	a.open = func(path string, progress func(int)) (*engine.Loaded, error) {
		return llamacpp.Open(llamacpp.Options{
			LibraryDir: o.LibraryDir, WeightsPath: path, ContextTokens: o.ContextTokens, MaxSequences: o.sequences(),
			KVType: llamacpp.KVType(o.KVCacheType), Threads: o.threads(), GPU: o.GPU.driver(),
			FlashAttention: llamacpp.Attention(o.GPU.FlashAttention), Logger: lines, Progress: progress,
		})
	}
	devices, err := gpu.Open(gpu.Options{Clock: clock.RealClock{}, Log: lines})
	if err != nil {
		log.Info("The GPUs can't be watched", "message", err.Error())
		return a.run(ctx)
	}
	err = a.runOn(ctx, devices)
	return errors.Join(err, devices.Close())
}

// runOn is run while g is watched, to the end of a drain.
func (a *agent) runOn(ctx context.Context, g gpus) error {
	live, end := context.WithCancel(context.WithoutCancel(ctx))
	a.memory.gpus = g
	var watching sync.WaitGroup
	watching.Go(func() { a.watchGPUs(live, g) })
	err := a.run(ctx)
	end()
	watching.Wait()
	return err
}

func newAgent(o Options, log logr.Logger, c clock.WithTicker) (*agent, error) {
	instance, err := newInstance()
	if err != nil {
		return nil, err
	}
	o.Fetch.VolumeDir = o.WeightsDir
	fetcher, err := fetch.New(o.Fetch, c)
	if err != nil {
		return nil, err
	}
	a := &agent{o: o, log: log, clock: c, fetcher: fetcher, started: c.Now(), failure: make(chan error, 1), stalled: make(chan struct{})}
	a.state = newState(grpcserver.Identity{
		Instance: instance, Model: o.Model, ModelUID: o.ModelUID, Revision: o.Revision, PodName: o.PodName, PodUID: o.PodUID,
		RingWeightPercent: uint32(o.RingWeightPercent),
	})
	a.set = metrics.New(o.Model, a.state.metrics)
	return a, nil
}

// newInstance returns 128 random bits in hexadecimal.
func newInstance() (string, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("agent: make an instance id: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// run serves until ctx ends or something breaks.
func (a *agent) run(ctx context.Context) error {
	plain, err := net.Listen("tcp", a.o.HTTPAddress)
	if err != nil {
		return fmt.Errorf("agent: --http-address: %w", err)
	}
	secure, err := net.Listen("tcp", a.o.GRPCAddress)
	if err != nil {
		return errors.Join(fmt.Errorf("agent: --grpc-address: %w", err), plain.Close())
	}
	a.log.Info("The worker starts", "version", a.o.Version, "instance", a.state.Identity().Instance, "model", a.o.Model, "revision", a.o.Revision,
		"http", plain.Addr().String(), "grpc", secure.Addr().String(), "threads", a.o.threads())

	live, end := context.WithCancel(ctx)
	defer end()
	web := &http.Server{Handler: a.handler(), ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10}
	var parts sync.WaitGroup
	parts.Go(func() { a.fail(web.Serve(plain)) })
	loading := make(chan struct{})
	go func() {
		defer close(loading)
		a.fail(a.load(live))
	}()
	over := make(chan struct{})
	parts.Go(func() { a.fail(a.serveGRPC(live, over, secure)) })
	awake, sleep := context.WithCancel(context.Background()) // until the engine is closed
	parts.Go(func() { a.watchSteps(awake) })

	select {
	case <-ctx.Done():
		err = a.drain()
	case err = <-a.failure:
	}
	if err != nil && !errors.Is(err, errFetched) {
		a.log.Error(err, "The worker can't go on")
	}
	end()
	if errors.Is(err, errFetched) {
		err = nil // the weights stay in use: the next container of the pod holds them
	} else {
		err = errors.Join(err, a.leaveEngine(), a.fetcher.Close())
	}
	sleep()
	close(over)
	stop, cancel := context.WithTimeout(context.Background(), flush)
	defer cancel()
	_ = web.Shutdown(stop) // what is left after the time has no reader
	_ = web.Close()
	parts.Wait()
	select { // a driver in the middle of a load can't be stopped; the end of the process does it
	case <-loading:
	case <-a.clock.After(flush):
	}
	a.log.Info("The worker ends", "instance", a.state.Identity().Instance)
	return err
}

// serveGRPC serves once the credentials are there, until over is closed. It owns l.
func (a *agent) serveGRPC(ctx context.Context, over <-chan struct{}, l net.Listener) error {
	defer l.Close() //nolint:errcheck // the server closes it too
	files, err := identity.Await(ctx, a.clock, a.log, a.o.TLSDir, identity.ID{Namespace: a.o.Namespace, Role: identity.Worker})
	if ctx.Err() != nil && err != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("agent: --tls-dir: %w", err)
	}
	defer files.Close()
	creds, err := identity.ServerCredentials(files, identity.In(a.o.Namespace, identity.Router, identity.Manager))
	if err != nil {
		return fmt.Errorf("agent: --tls-dir %s: %w", a.o.TLSDir, err)
	}
	service := grpcserver.New(a.state, a.set, a.log, a.clock)
	server := grpc.NewServer(grpcserver.Options(creds)...)
	workerv1.RegisterWorkerServer(server, service)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("agent: serve gRPC: %w", err)
	case <-over:
		a.stopGRPC(server, service)
		return <-served
	}
}

// fail ends the process with err, unless it is nil or comes of ending it.
func (a *agent) fail(err error) {
	if err == nil || errors.Is(err, http.ErrServerClosed) {
		return
	}
	select {
	case a.failure <- err:
	default:
	}
}

// engineLost ends the process: what the engine's library left behind can't be trusted.
func (a *agent) engineLost(err error) {
	a.state.failed("EngineFailed", err.Error())
	a.fail(err)
}

// keep remembers e, to be closed at the end. It returns false when the end has come already.
func (a *agent) keep(e engine.Engine) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ending {
		a.engine = e
	}
	return !a.ending
}

// holds reports whether there is an engine that has been loaded.
func (a *agent) holds() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.engine != nil
}

// leaveEngine closes the engine, or leaves it to the end of the process where its device does not come back.
func (a *agent) leaveEngine() error {
	closed := make(chan error, 1)
	go func() { closed <- a.closeEngine() }()
	select {
	case err := <-closed:
		return err
	case <-a.stalled:
		return a.trouble()
	}
}

// trouble returns an error that has come to end the process, if any.
func (a *agent) trouble() error {
	select {
	case err := <-a.failure:
		return err
	default:
		return nil
	}
}

func (a *agent) closeEngine() error {
	a.mu.Lock()
	e := a.engine
	a.ending = true
	a.mu.Unlock()
	if e == nil {
		return nil
	}
	return e.Close()
}
