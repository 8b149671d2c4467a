package openai

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// adapter is one that the server has loaded, or should have again after a restart.
type adapter struct {
	engine.Adapter
	leaving bool // no new requests
}

// loaded returns the names of the adapters that requests may ask for, sorted. d.mu is held.
func (d *Driver) loaded() []string {
	var names []string
	for name, a := range d.adapters {
		if !a.leaving {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// LoadAdapter makes the server load an adapter. One of the same name is let go first, when its requests have ended.
func (d *Driver) LoadAdapter(ctx context.Context, a engine.Adapter) error {
	kind, err := d.adapting()
	if err != nil {
		return err
	}
	if a.Name == "" || a.Path == "" {
		return invalid("adapter", "it needs a name and a path")
	}
	if err := d.makeRoom(ctx, kind, a.Name); err != nil {
		return err
	}
	if err := d.loadAdapter(ctx, kind, a); err != nil {
		return err
	}
	d.mu.Lock()
	d.adapters[a.Name] = &adapter{Adapter: a}
	d.mu.Unlock()
	return nil
}

// makeRoom lets an adapter of that name go, since a server refuses a second one.
func (d *Driver) makeRoom(ctx context.Context, kind Kind, name string) error {
	d.mu.Lock()
	ours := d.adapters[name] != nil
	d.mu.Unlock()
	if !ours { // the server outlives this process, and may have one of a process before it
		_ = d.unload(ctx, kind, name)
		return nil
	}
	if err := d.UnloadAdapter(ctx, name); err != nil && !isInvalid(err) {
		return err
	}
	return nil
}

// UnloadAdapter lets an adapter go when its requests have ended.
func (d *Driver) UnloadAdapter(ctx context.Context, name string) error {
	kind, err := d.adapting()
	if err != nil {
		return err
	}
	d.mu.Lock()
	a := d.adapters[name]
	if a == nil || a.leaving {
		d.mu.Unlock()
		return invalid("adapter", "%q is not loaded", name)
	}
	a.leaving = true
	d.mu.Unlock()
	if err := d.idle(ctx, name); err != nil {
		d.mu.Lock()
		a.leaving = false
		d.mu.Unlock()
		return err
	}
	err = d.unload(ctx, kind, name)
	if err != nil && !isInvalid(err) { // one that the server does not know is gone as well
		d.mu.Lock()
		a.leaving = false
		d.mu.Unlock()
		return fmt.Errorf("unload adapter %q: %w", name, broken(err))
	}
	d.mu.Lock()
	delete(d.adapters, name)
	d.mu.Unlock()
	return nil
}

// adapting returns the kind of the server, or why it has no adapters.
func (d *Driver) adapting() (Kind, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.refusal(); err != nil {
		return "", err
	}
	if !d.about.info(&d.o).Caps.Adapters {
		return "", invalid("adapter", "this engine, of kind %s, loads none while it runs", d.about.kind)
	}
	return d.about.kind, nil
}

// unload makes the server forget an adapter.
func (d *Driver) unload(ctx context.Context, kind Kind, name string) error {
	ctx, done := d.within(ctx, d.o.Warmup)
	defer done()
	return d.client.ask(ctx, http.MethodPost, servers[kind].dropAdapter, map[string]any{"lora_name": name}, nil, "adapter", name)
}

func (d *Driver) loadAdapter(ctx context.Context, kind Kind, a engine.Adapter) error {
	ctx, done := d.within(ctx, d.o.Warmup)
	defer done()
	in := map[string]any{"lora_name": a.Name, "lora_path": a.Path}
	err := d.client.ask(ctx, http.MethodPost, servers[kind].loadAdapter, in, nil, "adapter", "")
	switch {
	case isMissing(err):
		return invalid("adapter", "the engine finds no adapter %q there", a.Name)
	case isInvalid(err), err == nil:
		return err
	}
	return fmt.Errorf("load adapter %q: %w", a.Name, broken(err))
}

// idle waits until no request of an adapter runs.
func (d *Driver) idle(ctx context.Context, name string) error {
	for {
		d.mu.Lock()
		busy, ended := false, d.ended
		for c := range d.running {
			busy = busy || c.adapter == name
		}
		d.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reload gives a server that was started anew its adapters back. Without them it does not serve.
func (d *Driver) reload(ctx context.Context, kind Kind) error {
	d.mu.Lock()
	var all []engine.Adapter
	for _, a := range d.adapters {
		all = append(all, a.Adapter)
	}
	d.mu.Unlock()
	for _, a := range all {
		// The same process may have it still, and refuses it a second time.
		_ = d.unload(ctx, kind, a.Name)
		if err := d.loadAdapter(ctx, kind, a); err != nil {
			return fmt.Errorf("adapter %q: %w", a.Name, err)
		}
	}
	return nil
}
