package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// maxChoices bounds the requests that one request becomes, each with the prompt in it.
const maxChoices = 16

// call is one request inside the server: a request of its own there for each choice, because only so does every server
// count the tokens of each.
type call struct {
	id        string
	adapter   string
	request   *engine.Request
	joint     joint
	out       *output
	cancel    context.CancelCauseFunc
	open      int  // choices that have not ended; guarded by Driver.mu, as is answering
	answering bool // some token has come
}

// Generate sends a request to the server and returns when that has begun to answer, so that what it refuses is an error
// here. Ending ctx closes the connections, which is how these servers are told to stop.
func (d *Driver) Generate(ctx context.Context, r *engine.Request) (engine.Stream, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	choices := max(r.Choices, 1)
	if choices > maxChoices {
		return nil, invalid("n", "%d choices are asked for; at most %d are allowed", choices, maxChoices)
	}
	d.mu.Lock()
	err, t, epoch := d.refusal(), d.about.target(&d.o), d.watch.state.Epoch
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	put, joint, err := d.resume(ctx, t, r)
	if err != nil {
		return nil, err
	}
	if joint.made > 0 && joint.made == r.MaxTokens {
		return d.finished(ctx, r), nil
	}
	bodies := make([][]byte, choices)
	path := ""
	for i := range bodies {
		var b body
		if path, b, err = translate(t, put, i); err != nil {
			return nil, err
		}
		if bodies[i], err = json.Marshal(b); err != nil {
			return nil, invalid("request", "it can't be written as JSON: %v", err)
		}
	}
	c, life, err := d.enter(ctx, r, epoch)
	if err != nil {
		return nil, err
	}
	c.joint = joint
	go func() {
		defer d.parts.Done()
		d.run(life, c, t, path, bodies)
	}()
	return d.begun(c, t)
}

// begun waits until the server has begun to answer c.
func (d *Driver) begun(c *call, t target) (engine.Stream, error) {
	<-c.out.begun
	if err := c.out.failed(); err != nil {
		return nil, lost(err)
	}
	if prompt, most := c.out.PromptTokens(), c.request.MaxTokens; t.context > 0 && prompt > 0 && prompt+max(most, 1) > t.context {
		c.cancel(engine.ErrClosed)
		return nil, tooLong(fieldOf(&c.request.Prompt), prompt, most, t.context)
	}
	return c.out, nil
}

// enter books a request, which is to be run, and with it a part of the driver, which is to be done.
func (d *Driver) enter(ctx context.Context, r *engine.Request, epoch uint64) (*call, context.Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.refusal(); err != nil {
		return nil, nil, err
	}
	if d.watch.state.Epoch != epoch {
		return nil, nil, fmt.Errorf("%w: the engine beside the worker was restarted in this moment", engine.ErrNotLoaded)
	}
	if len(d.running) >= d.about.sequences(&d.o)+d.o.MaxWaiting {
		return nil, nil, engine.ErrBusy
	}
	if r.Adapter != "" {
		if a := d.adapters[r.Adapter]; a == nil || a.leaving {
			return nil, nil, noAdapter(r.Adapter)
		}
	}
	life, cancel := context.WithCancelCause(ctx)
	c := &call{id: r.ID, adapter: r.Adapter, request: r, cancel: cancel, open: max(r.Choices, 1)}
	c.out = newOutput(func(err error) { cancel(err) })
	if len(d.running) == 0 {
		d.watch.progressed(d.o.Clock.Now()) // silence counts from here on
	}
	d.running[c] = struct{}{}
	d.parts.Add(1) // under the lock: Close has not begun to wait
	return c, life, nil
}

// leave forgets a request.
func (d *Driver) leave(c *call) {
	d.mu.Lock()
	delete(d.running, c)
	close(d.ended)
	d.ended = make(chan struct{})
	d.mu.Unlock()
}

// run sends a request's choices and ends its stream.
func (d *Driver) run(ctx context.Context, c *call, t target, path string, bodies [][]byte) {
	unhook := context.AfterFunc(d.life, func() { c.cancel(context.Cause(d.life)) })
	defer unhook()
	defer c.cancel(nil)
	var all sync.WaitGroup
	for i, b := range bodies {
		all.Go(func() {
			err := d.choice(ctx, c, t, i, path, b)
			d.mu.Lock()
			c.open--
			d.mu.Unlock()
			if err == nil {
				return
			}
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			} else if closed(err) || refused(err) {
				d.hasten()
			}
			c.cancel(err) // the other choices are of no use
		})
	}
	all.Wait()
	err := io.EOF
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	d.leave(c) // before the caller learns of the end
	c.out.end(err)
}

// choice reads the stream of one choice to its end.
func (d *Driver) choice(ctx context.Context, c *call, t target, n int, path string, content []byte) error {
	r, err := d.client.do(ctx, http.MethodPost, path, content) //nolint:bodyclose // settle closes it
	if err != nil {
		return broken(err)
	}
	defer d.settle(ctx, r)
	if r.StatusCode != http.StatusOK {
		return broken(refusal(r, fieldOf(&c.request.Prompt), c.adapter))
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "text/event-stream" {
		return broken(errGarbage)
	}
	a := &assembler{request: c.id, choice: n, field: fieldOf(&c.request.Prompt), adapter: c.adapter, vocab: t.vocab,
		most: cmp.Or(c.request.MaxTokens, t.context), joint: c.joint}
	in := newEvents(r.Body, maxEvent(len(content)))
	defer in.close()
	if err := d.read(ctx, c, a, in); err != nil {
		return err
	}
	last, err := a.end()
	if err != nil {
		return broken(err)
	}
	c.out.push(last)
	return nil
}

// read hands on what the server sends until it says that it is done.
func (d *Driver) read(ctx context.Context, c *call, a *assembler, in *events) error {
	for {
		e, err := in.next()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return nil // whether too early is the assembler's to say
		case err != nil && a.finish != "":
			return nil // all that matters was there
		case err != nil:
			return broken(err)
		case string(e.data) == "[DONE]":
			return nil
		}
		if e.name == "error" {
			return broken(a.failed(e.data))
		}
		chunk, alive, err := a.push(e.data)
		if err != nil {
			return broken(err)
		}
		if alive {
			d.moved(c, worth(&chunk))
		}
		chunk.Logprobs = trim(chunk.Logprobs, c.request.Logprobs, c.request.TopLogprobs)
		if worth(&chunk) && !c.out.push(chunk) {
			return errSlowReader
		}
		c.out.begin(a.prompt)
	}
}

// worth says whether a chunk holds anything.
func worth(c *engine.Chunk) bool {
	return c.Text != "" || c.Reasoning != "" || len(c.ToolCalls) > 0 || len(c.Tokens) > 0
}

// moved books that the server has got on with a request.
func (d *Driver) moved(c *call, token bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watch.progressed(d.o.Clock.Now())
	c.answering = c.answering || token
}

// settleTime is how long a server may take to close a stream that it has ended.
const settleTime = 250 * time.Millisecond

// settle reads the little that follows the end of an answer, without which its connection can't serve another request.
func (d *Driver) settle(ctx context.Context, r *http.Response) {
	ctx, done := d.within(ctx, settleTime)
	unhook := context.AfterFunc(ctx, func() { _ = r.Body.Close() })
	drop(r)
	unhook()
	done()
}

// broken says whose fault an error is. It never holds text of a request. A server that is busy, or refuses what it was
// sent, has not failed. One whose connection breaks, or at which nobody listens, is lost: what fails and lives says so.
func broken(err error) error {
	switch {
	case errors.Is(err, engine.ErrBusy), isInvalid(err):
		return err
	case closed(err), refused(err):
		return fmt.Errorf("%w: %w", engine.ErrLost, err)
	}
	return fmt.Errorf("the engine failed: %w", err)
}

// lost is err, and engine.ErrNotLoaded where the server's process was found gone before it got the request.
func lost(err error) error {
	if unsent(err) {
		return fmt.Errorf("%w: nobody listens at the engine's address", engine.ErrNotLoaded)
	}
	return err
}

// fieldOf is what OpenAI calls the prompt.
func fieldOf(p *engine.Prompt) string {
	if p.Chat != nil {
		return "messages"
	}
	return "prompt"
}
