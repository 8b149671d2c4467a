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
	var epoch uint64
	pause := firstPause
	for {
		now, changed := d.State()
		var again <-chan time.Time // when adapters are tried again
		switch {
		case now.Loaded:
			var err error
			if epoch != now.Epoch { // started anew; the driver gives one that goes on what it had
				err = a.preload(ctx, d, list)
			}
			if err != nil {
				a.besideFailed(err)
				again, pause = a.clock.After(pause), min(2*pause, lastPause)
				break
			}
			pause = firstPause
			if epoch != 0 && epoch != now.Epoch {
				if err := a.state.renew(); err != nil {
					return err
				}
			}
			epoch = now.Epoch
			a.state.loaded(d)
			a.log.Info("The engine has loaded the model", "instance", a.state.Identity().Instance, "engine", d.Info().Model)
		case epoch == 0:
			a.state.loading("the engine starts: "+now.Message, nil)
			a.log.Info("The engine does not answer yet", "url", a.o.Server.URL, "message", now.Message)
		default:
			a.state.lost(string(now.Reason), now.Message)
			a.log.Info("The engine does not serve", "reason", string(now.Reason), "message", now.Message)
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
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
