package openai

import (
	"context"
	"fmt"
	"net/http"
)

// healthPath is where all known servers tell their health. One that does not know it is asked for its models.
const healthPath = "/health"

// supervise watches the server until Close.
func (d *Driver) supervise() {
	tick := d.o.Clock.NewTicker(d.o.Interval)
	defer tick.Stop()
	for {
		if s, _ := d.State(); s.Loaded {
			d.check(d.life)
		} else {
			d.load(d.life)
		}
		select {
		case <-tick.C():
		case <-d.wake:
		case <-d.life.Done():
			return
		}
	}
}

// load finds out whether the server serves its model.
func (d *Driver) load(ctx context.Context) {
	err := d.health(ctx)
	var a about
	if err == nil {
		a, err = d.describe(ctx)
	}
	if err == nil {
		err = d.reload(ctx, a.kind)
	}
	if err == nil {
		err = d.prove(ctx, &a)
	}
	var seen figures
	if err == nil {
		seen = d.look(ctx)
		a.loaded = true
	}
	if ctx.Err() != nil {
		return
	}
	d.judge(func() {
		if err != nil {
			d.watch.failed(err)
			return
		}
		now := d.o.Clock.Now()
		d.about, d.seen, d.rates = a, seen, rates{}
		d.rates.add(now, seen)
		d.watch.loaded(now, &seen)
	})
}

// check looks at a server that serves.
func (d *Driver) check(ctx context.Context) {
	err := d.health(ctx)
	var seen figures
	if err == nil {
		seen = d.look(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	d.judge(func() {
		if err != nil {
			d.seen = figures{}
			d.watch.unhealthy(err)
			return
		}
		now := d.o.Clock.Now()
		d.seen = seen
		d.rates.add(now, seen)
		d.watch.healthy(now, &seen, len(d.running))
	})
}

// look reads the metrics. What can't be read is unknown: a server without any serves as well.
func (d *Driver) look(ctx context.Context) figures {
	ctx, done := d.within(ctx, d.o.Patience)
	defer done()
	seen, err := d.scrape(ctx)
	if err != nil {
		d.o.Log.V(1).Info("The engine's metrics can't be read", "message", err.Error())
	}
	return seen
}

// judge books what was seen, tells of a change, and ends the requests of a server that has stalled: their connections
// would never end by themselves.
func (d *Driver) judge(book func()) {
	d.mu.Lock()
	before := d.watch.state
	book()
	after := d.watch.state
	if before != after {
		close(d.changed)
		d.changed = make(chan struct{})
	}
	var lost []*call
	if before.Loaded && after.Reason == Stalled {
		for c := range d.running {
			lost = append(lost, c)
		}
	}
	d.mu.Unlock()
	for _, c := range lost {
		c.cancel(ErrStalled)
	}
	if before.Loaded != after.Loaded {
		d.o.Log.Info("The engine beside the worker has changed", "loaded", after.Loaded, "epoch", after.Epoch,
			"reason", after.Reason, "message", after.Message)
	}
}

// health asks for the server's health. Where the connection breaks it asks again, over another one: of a process that has gone
// a connection may be left, and what breaks on it does not tell that nobody listens any more.
func (d *Driver) health(ctx context.Context) error {
	ctx, done := d.within(ctx, d.o.Patience)
	defer done()
	err := d.client.ask(ctx, http.MethodGet, healthPath, nil, nil, "", "")
	if err != nil && closed(err) {
		err = d.client.ask(ctx, http.MethodGet, healthPath, nil, nil, "", "")
	}
	if isMissing(err) {
		err = d.client.ask(ctx, http.MethodGet, modelsPath, nil, nil, "", "")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", healthPath, err)
	}
	return nil
}
