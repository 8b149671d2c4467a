package dialect

import (
	"slices"
	"strings"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// channels is the Splitter of models that write messages with headers, as OpenAI's harmony format has them: reasoning to
// the channel analysis, text to final and commentary, and calls as messages to functions.name. What is no such header is
// text, or reasoning within reasoning. The format: https://cookbook.openai.com/articles/openai-harmony.
type channels struct {
	tools tools
	held  string
	out   output

	body      bool           // a message is being read; else its header
	reasoning bool           // the message is
	call      *jsonArguments // the message is a call whose arguments are being read
	called    bool           // the message is a call whose arguments have just ended
}

var (
	headerMarkers  = []string{"<|start|>", "<|channel|>"}
	endMarkers     = []string{"<|end|>", "<|call|>", "<|return|>"}
	messageMarkers = slices.Concat(headerMarkers, endMarkers)
)

// Push implements engine.Splitter.
func (h *channels) Push(text string) []engine.Part {
	h.held += text
	return h.run(false)
}

// Flush implements engine.Splitter.
func (h *channels) Flush() ([]engine.Part, bool) {
	return h.run(true), h.out.calls > 0
}

func (h *channels) run(final bool) []engine.Part {
	for more := true; more; {
		switch {
		case h.call != nil:
			more = h.arguments(final)
		case h.body:
			more = h.message(final)
		default:
			more = h.header(final)
		}
	}
	return h.out.take()
}

// header is the state before a message.
func (h *channels) header(final bool) bool {
	c := newCursor(h.held, final)
	recipient, reasoning, ok := h.read(c)
	if c.short {
		return false
	}
	h.body = true
	if !ok {
		_, marker := first(h.held, headerMarkers)
		if strings.HasPrefix(h.held, marker) {
			h.write(marker)
			h.held = h.held[len(marker):]
		}
		return true
	}
	h.held, h.reasoning = h.held[c.at:], reasoning
	if recipient != "" {
		h.out.call(recipient)
		h.call = &jsonArguments{ends: messageMarkers}
	}
	return true
}

// read reads a header: <|start|>assistant, which the prompt may end with; a recipient; <|channel|> with a name, a recipient
// and a content type; <|message|>. Only the last must be there. recipient is the tool that the message is for, "" for the
// user.
func (h *channels) read(c *cursor) (recipient string, reasoning, ok bool) {
	if c.takes("<|start|>") && !c.takes("assistant") {
		return "", false, false
	}
	to := c.recipient()
	channel := ""
	if c.takes("<|channel|>") {
		if channel, ok = c.word("<"); !ok {
			return "", false, false
		}
		if to == "" {
			to = c.recipient()
		}
		c.space()
		c.takes("<|constrain|>")
		if !c.sees("<|message|>") {
			c.word("<")
			c.space()
		}
	}
	if !c.takes("<|message|>") {
		return "", false, false
	}
	if to == "" {
		return "", channel == "analysis", true
	}
	name, function := strings.CutPrefix(to, "functions.")
	if !function || !named(name) || h.tools == nil {
		return "", false, false
	}
	c.space()
	return name, false, c.sees("{")
}

// recipient reads `to=name`.
func (c *cursor) recipient() string {
	c.space()
	if !c.takes("to=") {
		return ""
	}
	name, _ := c.word("<")
	return name
}

// message is the state within a message for the user.
func (h *channels) message(final bool) bool {
	if h.called {
		if h.held = strings.TrimLeft(h.held, spaces); h.held == "" {
			return false
		}
		h.called = false
	}
	at, marker := first(h.held, messageMarkers)
	if at < 0 {
		at = len(h.held)
		if !final {
			at -= partial(h.held, messageMarkers)
		}
	}
	h.write(h.held[:at])
	h.held = h.held[at:]
	if slices.Contains(endMarkers, marker) {
		h.held, h.reasoning = h.held[len(marker):], false
	}
	h.body = marker == ""
	return marker != ""
}

// arguments is the state within a call.
func (h *channels) arguments(final bool) bool {
	n, json, done := h.call.read(h.held, final)
	h.held = h.held[n:]
	h.out.arguments(json)
	if done {
		h.call, h.called, h.reasoning = nil, true, false
	}
	return done
}

func (h *channels) write(s string) {
	if h.reasoning {
		h.out.reasoning(s)
	} else {
		h.out.text(s)
	}
}
