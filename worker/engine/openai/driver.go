// Package openai is an engine.Engine over a server beside the worker that speaks OpenAI's protocol: vLLM, SGLang,
// llama-server or any other. It decides when that server counts as loaded, lost, stalled or restarted, how a request is
// put to each kind of server and what is refused because the kind can't do it, and what the server's metrics mean. It
// never schedules: which request runs when is the server's own affair. Starting and stopping the server is the kubelet's.
package openai

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// Options say which server it is and how it is watched. BaseURL, MaxSequences, the times and Clock are needed.
type Options struct {
	// BaseURL is the server's, without /v1, such as http://127.0.0.1:8000.
	BaseURL string
	// Kind of the server; OpenAI, the default, finds out whether it is one of the others.
	Kind Kind
	// Model is the model's name at the server; empty takes the first that it lists.
	Model string
	// APIKey is sent as a bearer token where it is not empty.
	APIKey string
	// ContextTokens is the longest request where the server does not say; MaxSequences how many run together.
	ContextTokens, MaxSequences int
	// MaxWaiting is how many requests may be inside beyond MaxSequences; one more is refused with engine.ErrBusy.
	MaxWaiting int
	// Adapters: the server was started so that it loads adapters while it runs. Priorities: so that it heeds priorities.
	Adapters, Priorities bool
	// Interval is the time between two looks at the server's health and metrics, Patience how long one look may take.
	Interval, Patience time.Duration
	// Warmup is how long each step of finding out whether the model is loaded may take: with their first tokens some
	// servers compile.
	Warmup time.Duration
	// Stall is how long requests may run without a token before the server counts as stalled. It must be longer than the
	// longest prompt takes.
	Stall time.Duration
	Clock clock.WithTicker
	Log   logr.Logger
}

func (o *Options) validate() error {
	if o.Kind == "" {
		o.Kind = OpenAI
	}
	switch {
	case servers[o.Kind] == nil:
		return fmt.Errorf("openai driver: the kind is %q, expected %s, %s, %s or %s", o.Kind, VLLM, SGLang, LlamaServer, OpenAI)
	case o.MaxSequences < 1 || o.MaxWaiting < 0:
		return fmt.Errorf("openai driver: %d sequences and %d waiting, expected at least 1 and 0", o.MaxSequences, o.MaxWaiting)
	case o.Interval <= 0 || o.Patience <= 0 || o.Warmup <= 0 || o.Stall <= 0:
		return errors.New("openai driver: interval, patience, warmup and stall must be above 0")
	case o.Clock == nil:
		return errors.New("openai driver: there is no clock")
	}
	return nil
}

// Driver is the engine.Engine.
type Driver struct {
	o      Options
	client *client
	stop   context.CancelCauseFunc
	life   context.Context // ends with Close
	parts  sync.WaitGroup  // the supervisor and all requests
	wake   chan struct{}   // asks the supervisor to look at once

	mu        sync.Mutex // guards the rest; nothing is called with it held
	watch     watch
	changed   chan struct{} // closed and replaced when the state changes
	about     about
	seen      figures
	rates     rates
	running   map[*call]struct{}
	questions map[*question]struct{}
	asked     int           // prompts that the server works at for them
	ended     chan struct{} // closed and replaced when a request ends
	draining  bool
	closed    bool
	adapters  map[string]*adapter
}

// New starts to watch a server, which need not be there yet. Close ends it.
func New(o Options) (*Driver, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	c, err := newClient(o.BaseURL, o.APIKey)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancelCause(context.Background())
	d := &Driver{
		o: o, client: c, stop: stop, life: life, wake: make(chan struct{}, 1),
		watch:   watch{stall: o.Stall, state: State{Reason: Starting, Message: "the engine has not answered yet"}},
		changed: make(chan struct{}), ended: make(chan struct{}),
		about:   about{kind: o.Kind},
		running: map[*call]struct{}{}, questions: map[*question]struct{}{}, adapters: map[string]*adapter{},
	}
	d.parts.Go(d.supervise)
	return d, nil
}

// State says whether the server serves its model, and returns a channel that is closed when that changes.
func (d *Driver) State() (State, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.watch.state, d.changed
}

// Info describes the loaded model; what the server does not say is zero. Before the model is loaded all is.
func (d *Driver) Info() engine.Info {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.about.info(&d.o)
}

// Health returns why the server can't serve, or nil.
func (d *Driver) Health(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return engine.ErrClosed
	}
	return d.watch.state.err()
}

// Drain refuses new requests and returns when none runs or ctx ends.
func (d *Driver) Drain(ctx context.Context) error {
	for {
		d.mu.Lock()
		d.draining = true
		left, ended := len(d.running)+len(d.questions), d.ended
		d.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends what still runs with engine.ErrClosed. The server goes on.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.stop(engine.ErrClosed)
	d.parts.Wait()
	d.client.close()
	return nil
}

// refusal says why no request is taken. d.mu is held.
func (d *Driver) refusal() error {
	switch {
	case d.closed:
		return engine.ErrClosed
	case d.draining:
		return engine.ErrDraining
	case !d.watch.state.Loaded:
		return d.watch.state.err()
	}
	return nil
}

// hasten asks the supervisor to look at once.
func (d *Driver) hasten() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// within returns a context that ends after the clock has moved on by t, and what frees it.
func (d *Driver) within(ctx context.Context, t time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := d.o.Clock.NewTimer(t)
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-timer.C():
			cancel(fmt.Errorf("it did not answer for %s", t))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-over
		timer.Stop()
	}
}
