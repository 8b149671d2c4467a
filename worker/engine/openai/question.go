package openai

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// question is what the server is asked that is no stream: for embeddings or tokens.
type question struct {
	id string // of the request; "" where it is none
}

// question books one, which a drain waits for and Close ends, and returns its context and what ends it.
func (d *Driver) question(ctx context.Context, id string) (context.Context, func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.refusal(); err != nil {
		return nil, nil, err
	}
	if len(d.questions) >= d.about.sequences(&d.o)+d.o.MaxWaiting {
		return nil, nil, engine.ErrBusy
	}
	q := &question{id}
	d.questions[q] = struct{}{}
	d.parts.Add(1) // under the lock: Close has not begun to wait
	life, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(d.life, func() { cancel(context.Cause(d.life)) })
	return life, func() {
		unhook()
		cancel(nil)
		d.mu.Lock()
		delete(d.questions, q)
		close(d.ended)
		d.ended = make(chan struct{})
		d.mu.Unlock()
		d.parts.Done()
	}, nil
}

// answer asks and reads the answer into out. The server may take the stall time for each of so many prompts, and for each that
// it was asked for before and still works at.
func (d *Driver) answer(ctx context.Context, prompts int, path string, in, out any, field string) error {
	d.mu.Lock()
	d.asked += prompts
	limit := time.Duration(d.asked) * d.o.Stall
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.asked -= prompts
	}()
	patient, done := d.within(ctx, limit)
	defer done()
	err := d.client.ask(patient, http.MethodPost, path, in, out, field, "")
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case patient.Err() != nil:
		return fmt.Errorf("%w: it did not answer for %s", ErrStalled, limit)
	}
	return lost(broken(err))
}
