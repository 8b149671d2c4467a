package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/openai"
)

// Times of the watch over a server beside this process.
const (
	serverInterval = time.Second
	serverPatience = 2 * time.Second
	serverWarmup   = 5 * time.Minute
)

// beside follows a server that runs the model in a container of its own, until ctx ends. Another process of that server is
// another instance: what routers know of the old one is void.
func (a *agent) beside(ctx context.Context) error {
	if link := a.o.Fetch.Link; link != "" {
		if err := a.fetcher.Hold(link); err != nil { // the engine reads them until the pod ends
			return err
		}
	}
	list, err := a.placed()
	if err != nil {
		return err
	}
	a.describeBeside()
	d, err := openai.New(openai.Options{
		BaseURL: a.o.Server.URL, Kind: openai.Kind(a.o.Server.Kind), Model: a.o.Server.Model,
		APIKey:        os.Getenv("RINGFLEET_ENGINE_API_KEY"), // never a flag: other processes see those
		ContextTokens: a.o.ContextTokens, MaxSequences: a.o.MaxSequences, MaxWaiting: a.o.MaxWaiting,
		Adapters: a.o.Server.Adapters, Priorities: a.o.Server.Priorities,
		Interval: serverInterval, Patience: serverPatience, Warmup: serverWarmup, Stall: a.o.Server.Stall,
		Clock: a.clock, Log: a.log,
	})
	if err != nil {
		return fmt.Errorf("agent: watch the engine: %w", err)
	}
	if !a.keep(d) {
		return d.Close()
	}
	f := follower{agent: a, engine: d, adapters: list, pause: firstPause}
	for {
		now, changed := d.State()
		again, err := f.see(ctx, now)
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// follower turns what the driver says of the engine into the worker's own state.
type follower struct {
	agent    *agent
	engine   *openai.Driver
	adapters []engine.Adapter
	epoch    uint64 // of the engine that serves or served last; 0: none yet
	pause    time.Duration
}

// see takes note of a state. Where adapters could not be loaded it returns when they are to be tried again.
func (f *follower) see(ctx context.Context, now openai.State) (again <-chan time.Time, err error) {
	a := f.agent
	switch {
	case now.Loaded && f.epoch != now.Epoch: // started anew; the driver gives one that goes on what it had
		if err := a.preload(ctx, f.engine, f.adapters); err != nil {
			a.besideFailed(err)
			again, f.pause = a.clock.After(f.pause), min(2*f.pause, lastPause)
			return again, nil
		}
		if f.epoch != 0 {
			if err := a.state.renew(); err != nil {
				return nil, err
			}
		}
		fallthrough
	case now.Loaded:
		f.epoch, f.pause = now.Epoch, firstPause
		a.state.loaded(f.engine)
		a.log.Info("The engine has loaded the model", "instance", a.state.Identity().Instance, "engine", f.engine.Info().Model)
	case f.epoch == 0:
		a.state.loading("the engine starts: "+now.Message, nil)
		a.log.Info("The engine does not answer yet", "url", a.o.Server.URL, "message", now.Message)
	default:
		a.state.lost(string(now.Reason), now.Message)
		a.log.Info("The engine does not serve", "reason", string(now.Reason), "message", now.Message)
	}
	return nil, nil
}

// besideFailed reports why the engine beside this process, which has the model, does not serve it yet: an adapter that it
// refuses, or that it could not be told of.
func (a *agent) besideFailed(err error) {
	reason, message := "AdapterNotLoaded", err.Error()
	var bad *engine.LoadError
	if errors.As(err, &bad) {
		reason, message = bad.Reason, bad.Message
	}
	a.state.failed(reason, message)
	a.log.Info("The engine has the model, but not its adapters; they are tried again", "reason", reason, "message", message)
}
