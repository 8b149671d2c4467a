package agent

import (
	"context"
	"fmt"
	"os"
	"time"

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
	for {
		now, changed := d.State()
		switch {
		case now.Loaded:
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
		case <-ctx.Done():
			return nil
		}
	}
}
