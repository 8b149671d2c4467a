package scheduler

import (
	"errors"
	"io"
	"sync"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// maxUnread is how much output may lie unread before a request is cancelled, in bytes. A token counts 4.
const maxUnread = 1 << 20

// ErrSlowReader ends a request whose output was not read: 1 MiB of it lay unread.
var ErrSlowReader = errors.New("request was cancelled: 1 MiB of its output lay unread")

// output is the stream of one request. The loop pushes into it and never waits; chunks that were not read yet become
// one.
type output struct {
	prompt int
	cancel func(error) // ends the request in the scheduler
	ready  chan struct{}

	mu     sync.Mutex // guards the rest; nothing is called with it held
	unread engine.Chunk
	bytes  int
	err    error // what Next returns once everything is read; io.EOF after a finish
}

func newOutput(prompt int) *output {
	return &output{prompt: prompt, ready: make(chan struct{}, 1)}
}

// PromptTokens is the length of the prompt.
func (o *output) PromptTokens() int { return o.prompt }

// Next waits for output and returns all there is.
func (o *output) Next() (engine.Chunk, error) {
	for {
		if chunk, ok, err := o.take(); ok {
			return chunk, err
		}
		<-o.ready
	}
}

// take returns false while there is neither output nor an end.
func (o *output) take() (engine.Chunk, bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unread.Text != "" || len(o.unread.Tokens) > 0 || o.unread.Finish != "" {
		chunk := o.unread
		o.unread, o.bytes = engine.Chunk{}, 0
		return chunk, true, nil
	}
	if o.err != nil {
		o.signal() // for another reader
		return engine.Chunk{}, true, o.err
	}
	return engine.Chunk{}, false, nil
}

// Close cancels the request if it still runs.
func (o *output) Close() error {
	o.cancel(engine.ErrClosed)
	return nil
}

// push adds output. It returns false where too much lies unread.
func (o *output) push(c engine.Chunk) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return true
	}
	o.unread.Text += c.Text
	o.unread.Tokens = append(o.unread.Tokens, c.Tokens...)
	o.bytes += len(c.Text) + 4*len(c.Tokens)
	if c.Finish != "" {
		o.unread.Finish, o.unread.Usage = c.Finish, c.Usage
		o.err = io.EOF
	}
	o.signal()
	return o.bytes <= maxUnread
}

// end makes Next return err once everything is read. Only the first end counts.
func (o *output) end(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
		o.signal()
	}
}

func (o *output) signal() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}
