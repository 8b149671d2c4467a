package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// controls are what the goroutine does between steps besides. The scheduler's mu guards them.
type controls struct {
	changes []*change // of adapters, first come first
	embeds  []*embedding
	held    int    // Generate calls that wait for a change
	loads   uint64 // adapters loaded since the start
}

// change is a call of LoadAdapter or UnloadAdapter.
type change struct {
	adapter engine.Adapter
	unload  bool
	begun   bool
	done    chan error // has room for the one answer
}

// embedding is a call of Embed.
type embedding struct {
	id      string
	inputs  [][]engine.Token
	vectors [][]float32        // of the first inputs
	abort   context.CancelFunc // of the part under way
	gone    bool               // its caller went away
	done    chan error
}

// changing reports whether an adapter is waiting to be changed.
func (c *controls) changing(name string) bool {
	return slices.ContainsFunc(c.changes, func(x *change) bool { return x.adapter.Name == name })
}

// begun reports whether an adapter is being changed.
func (c *controls) begun(name string) bool {
	return slices.ContainsFunc(c.changes, func(x *change) bool { return x.begun && x.adapter.Name == name })
}

// LoadAdapter makes requests for an adapter possible, or replaces it when the requests that use it have ended. Later ones
// wait for that.
func (s *scheduler) LoadAdapter(ctx context.Context, a engine.Adapter) error {
	return s.change(ctx, &change{adapter: a, done: make(chan error, 1)})
}

// UnloadAdapter forgets an adapter when the requests that use it have ended.
func (s *scheduler) UnloadAdapter(ctx context.Context, name string) error {
	return s.change(ctx, &change{adapter: engine.Adapter{Name: name}, unload: true, done: make(chan error, 1)})
}

func (s *scheduler) change(ctx context.Context, c *change) error {
	if err := s.order(c); err != nil {
		return err
	}
	s.nudge()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
	}
	s.mu.Lock()
	if !c.begun {
		s.controls.changes = slices.DeleteFunc(s.controls.changes, func(x *change) bool { return x == c })
		s.announce()
	}
	s.mu.Unlock()
	return context.Cause(ctx)
}

// order queues a change, or says why it is none.
func (s *scheduler) order(c *change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, able := s.loaded.Executor.(engine.Adapting)
	name := c.adapter.Name
	switch {
	case !able || !s.caps.Adapters:
		return &engine.InvalidError{Field: "adapter", Message: "this engine has no adapters"}
	case name == "":
		return &engine.InvalidError{Field: "adapter", Message: "the adapter has no name"}
	case s.closed != nil:
		return s.closed
	case c.unload && s.state.adapters[name] == nil && !s.controls.changing(name):
		return unknown(name)
	case len(s.controls.changes) >= s.limits.waiting:
		return engine.ErrBusy
	}
	s.controls.changes = append(s.controls.changes, c)
	return nil
}

func unknown(adapter string) error {
	return &engine.InvalidError{Field: "model", Code: "model_not_found", Message: fmt.Sprintf("adapter %q is not loaded", adapter)}
}

// changeAdapter makes the first change whose adapter nobody uses. It returns false where there is none, and an error only
// where the executor can't go on.
func (s *scheduler) changeAdapter() (bool, error) {
	s.mu.Lock()
	i := slices.IndexFunc(s.controls.changes, func(c *change) bool {
		old := s.state.adapters[c.adapter.Name]
		return old == nil || old.inside == 0
	})
	if i < 0 {
		s.mu.Unlock()
		return false, nil
	}
	c := s.controls.changes[i]
	c.begun = true
	loaded := s.state.adapters[c.adapter.Name] != nil
	s.mu.Unlock()

	device := s.loaded.Executor.(engine.Adapting)
	var err error
	s.opts.Progress.begin(s.opts.Clock.Now(), 1)
	switch {
	case !c.unload:
		err = device.LoadAdapter(c.adapter)
	case loaded:
		err = device.UnloadAdapter(c.adapter.Name)
	default:
		err = unknown(c.adapter.Name) // the load that it came after did not succeed
	}
	s.opts.Progress.end()

	s.mu.Lock()
	if err == nil {
		s.registerAdapter(c)
	}
	s.controls.changes = slices.DeleteFunc(s.controls.changes, func(x *change) bool { return x == c })
	s.announce()
	s.mu.Unlock()
	c.done <- err
	if errors.Is(err, engine.ErrFatal) {
		return true, err
	}
	return true, nil
}

// registerAdapter books a change that was made. What was computed with the old adapter isn't found any more. s.mu is held.
func (s *scheduler) registerAdapter(c *change) {
	name := c.adapter.Name
	if old := s.state.adapters[name]; old != nil {
		s.state.ledger.void(old.key)
	}
	if c.unload {
		delete(s.state.adapters, name)
		return
	}
	s.controls.loads++
	s.state.adapters[name] = &adapter{name: name, key: fmt.Sprintf("%s\x00%d", name, s.controls.loads)}
}
