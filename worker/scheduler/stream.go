package scheduler

import (
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// maxUnread is how much output may lie unread before a request is cancelled, in bytes. A token counts 4, a log probability
// what it takes.
const maxUnread = 1 << 20

// errSlowReader ends a request of whose output more than maxUnread lies unread.
var errSlowReader = fmt.Errorf("%w: more than %d KiB of its output lay unread", engine.ErrSlowReader, maxUnread>>10)

// output is the stream of one request. The loop pushes into it and never waits; chunks of one choice that were not read yet
// become one.
type output struct {
	prompt int
	number uint64      // of the news that the prompt came; set before anybody reads
	cancel func(error) // ends the request in the scheduler
	ready  chan struct{}

	mu     sync.Mutex // guards the rest; nothing is called with it held
	unread []engine.Chunk
	bytes  int
	open   int   // choices that have not finished
	err    error // what Next returns once everything is read; io.EOF after the last finish
}

func newOutput(prompt, choices int) *output {
	return &output{prompt: prompt, open: choices, ready: make(chan struct{}, 1)}
}

// PromptTokens is the length of the prompt.
func (o *output) PromptTokens() int { return o.prompt }

// Next waits for output and returns all there is of one choice.
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
	if len(o.unread) > 0 {
		chunk := o.unread[0]
		o.unread = slices.Delete(o.unread, 0, 1)
		if o.bytes -= weight(&chunk); len(o.unread) > 0 {
			o.signal() // for another reader
		} else {
			o.bytes = 0
		}
		return chunk, true, nil
	}
	if o.err != nil {
		o.signal()
		return engine.Chunk{}, true, o.err
	}
	return engine.Chunk{}, false, nil
}

// Close cancels the request if it still runs.
func (o *output) Close() error {
	o.cancel(engine.ErrClosed)
	return nil
}

// push adds output, of which it keeps copies. It returns false where too much lies unread.
func (o *output) push(c *engine.Chunk) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return true
	}
	o.bytes += weight(c)
	if c.Finish != "" {
		if o.open--; o.open == 0 {
			o.err = io.EOF
		}
	}
	o.add(c)
	o.signal()
	return o.bytes <= maxUnread
}

// add joins c to the last chunk of its choice, or appends it.
func (o *output) add(c *engine.Chunk) {
	for i := len(o.unread) - 1; i >= 0; i-- {
		if o.unread[i].Choice == c.Choice {
			if join(&o.unread[i], c) {
				return
			}
			break
		}
	}
	kept := *c
	kept.Tokens, kept.Logprobs, kept.ToolCalls = slices.Clone(c.Tokens), slices.Clone(c.Logprobs), slices.Clone(c.ToolCalls)
	o.unread = append(o.unread, kept)
}

// weight is about how many bytes a chunk takes.
func weight(c *engine.Chunk) int {
	n := len(c.Text) + len(c.Reasoning) + 4*len(c.Tokens)
	for _, call := range c.ToolCalls {
		n += len(call.ID) + len(call.Name) + len(call.Arguments)
	}
	for _, l := range c.Logprobs {
		n += 64 + len(l.Bytes)
		for _, top := range l.Top {
			n += 64 + len(top.Bytes)
		}
	}
	return n
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
