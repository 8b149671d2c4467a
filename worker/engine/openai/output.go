package openai

import (
	"sync"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// maxUnread is how much output may lie unread before a request is cancelled, in bytes. A token counts 4.
const maxUnread = 1 << 20

// output is the stream of one request. Its choices push into it and never wait.
type output struct {
	cancel func(error) // ends the request
	ready  chan struct{}
	begun  chan struct{} // closed with the first event or the end

	mu     sync.Mutex // guards the rest; nothing is called with it held
	prompt int
	unread []engine.Chunk
	bytes  int
	err    error // what Next returns once everything is read
	once   bool  // begun is closed
}

func newOutput(cancel func(error)) *output {
	return &output{cancel: cancel, ready: make(chan struct{}, 1), begun: make(chan struct{})}
}

// PromptTokens is the length of the prompt, or 0 where the server tells it only at the end.
func (o *output) PromptTokens() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.prompt
}

// Next waits for the next chunk.
func (o *output) Next() (engine.Chunk, error) {
	for {
		if c, ok, err := o.take(); ok {
			return c, err
		}
		<-o.ready
	}
}

// take returns false while there is neither output nor an end.
func (o *output) take() (engine.Chunk, bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.unread) > 0 {
		c := o.unread[0]
		o.unread = o.unread[1:]
		o.bytes -= size(c)
		o.signal() // there may be more
		return c, true, nil
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

// begin says that the server has begun to answer.
func (o *output) begin(prompt int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.prompt = max(o.prompt, prompt)
	o.started()
}

func (o *output) started() {
	if !o.once {
		o.once = true
		close(o.begun)
	}
}

// push adds a chunk. It returns false where too much lies unread.
func (o *output) push(c engine.Chunk) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return true
	}
	o.unread = append(o.unread, c)
	o.bytes += size(c)
	o.signal()
	return o.bytes <= maxUnread
}

// end makes Next return err once everything is read. Only the first end counts.
func (o *output) end(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	o.started()
	o.signal()
}

// failed returns the error of a request that ended before it gave anything.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.unread) > 0 {
		return nil
	}
	return o.err
}

func (o *output) signal() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

func size(c engine.Chunk) int {
	n := 64 + len(c.Text) + len(c.Reasoning) + 4*len(c.Tokens)
	for _, t := range c.ToolCalls {
		n += len(t.Arguments) + len(t.Name) + len(t.ID)
	}
	for _, l := range c.Logprobs {
		n += 32 * (1 + len(l.Top))
	}
	return n
}
