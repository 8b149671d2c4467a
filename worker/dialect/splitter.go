package dialect

import (
	"strings"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// maxSpace is the most space before a marker that ends reasoning that belongs to the marker, in bytes.
const maxSpace = 64

// splitter is the Splitter of all families but those of channels. It is a state machine over what is held; each state
// decides by the fewest bytes that it can, so how the text is cut into pieces makes no difference.
type splitter struct {
	think   marks
	calls   calls // nil: no tools
	openers []string
	bare    string // see family
	within  bool   // calls may begin within reasoning, and end it

	state func(s *splitter, final bool) (more bool)
	held  string
	out   output
	// fresh: nothing but space was written since the beginning, or since markup if touched. opened: the prompt opened the
	// reasoning, and nothing was written.
	fresh, touched, opened bool
	object                 jsonArguments // the answer that is being read within it

	// Of the call that may begin or is being read: the marker, and the space before it; whether it is within reasoning.
	opener, lead string
	thinking     bool
	last         head
}

// Push implements engine.Splitter.
func (s *splitter) Push(text string) []engine.Part {
	s.held += text
	return s.run(false)
}

// Flush implements engine.Splitter.
func (s *splitter) Flush() ([]engine.Part, bool) {
	return s.run(true), s.out.calls > 0
}

func (s *splitter) run(final bool) []engine.Part {
	for s.state(s, final) {
	}
	return s.out.take()
}

// text is the state of plain text.
func (s *splitter) text(final bool) bool {
	if s.fresh {
		return s.beginning(final)
	}
	at, opener := first(s.held, s.openers)
	if at >= 0 {
		s.out.text(s.held[:at])
		s.toHead(opener, "", s.held[at:], false)
		return true
	}
	s.out.text(s.release(s.openers, 0, final))
	return false
}

// beginning is the state of text of which only space came. Here reasoning may begin, and calls without a marker.
func (s *splitter) beginning(final bool) bool {
	rest := strings.TrimLeft(s.held, spaces)
	lead := s.held[:len(s.held)-len(rest)]
	if s.touched {
		s.held, lead = rest, ""
	}
	if rest == "" && len(lead) < MaxHeld {
		if final {
			s.out.text(lead)
			s.held = ""
		}
		return false
	}
	wait := false
	for _, m := range s.markers() {
		if len(lead) >= MaxHeld {
			break
		}
		if strings.HasPrefix(rest, m) {
			if m == s.think.open {
				s.toReasoning(rest[len(m):])
			} else {
				s.toHead(m, lead, rest, false)
			}
			return true
		}
		wait = wait || strings.HasPrefix(m, rest)
	}
	if wait && !final {
		return false
	}
	s.fresh = false
	return true
}

// markers are those that count where nothing was written yet.
func (s *splitter) markers() []string {
	out := s.openers
	if s.think.open != "" {
		out = append(out[:len(out):len(out)], s.think.open)
	}
	if s.bare != "" {
		out = append(out[:len(out):len(out)], s.bare)
	}
	return out
}

// reasoning is the state within reasoning.
func (s *splitter) reasoning(final bool) bool {
	if s.fresh {
		s.held = strings.TrimLeft(s.held, spaces)
		if rest, again := strings.CutPrefix(s.held, s.think.open); again { // the prompt has it, and the model repeats it
			s.held, s.opened = rest, false
			return true
		}
		if strings.HasPrefix(s.think.open, s.held) && !final {
			return false
		}
		if s.opened {
			c := newCursor(s.held, false)
			if c.object() || c.short && final && s.held != "" {
				s.toObject()
				return true
			}
			if c.short && !final {
				return false
			}
		}
		s.fresh, s.opened = false, false
	}
	markers := []string{s.think.closing}
	if s.within {
		markers = append(markers, s.openers...)
	}
	at, marker := first(s.held, markers)
	if at < 0 {
		s.out.reasoning(s.release(markers, maxSpace, final))
		return false
	}
	end := at - spaceAtEnd(s.held[:at], maxSpace)
	s.out.reasoning(s.held[:end])
	if marker == s.think.closing {
		s.toText(s.held[at+len(marker):])
	} else {
		s.toHead(marker, s.held[end:at], s.held[at:], true)
	}
	return true
}

// answer is the state within an object that is the answer where the prompt left reasoning open. Behind it is reasoning
// again.
func (s *splitter) answer(final bool) bool {
	n, done := s.object.scan(s.held, final)
	s.out.text(s.held[:n])
	s.held = s.held[n:]
	if done {
		s.toReasoning(s.held)
	}
	return done
}

// head is the state at a marker by which a call may begin.
func (s *splitter) head(final bool) bool {
	c := newCursor(s.held, final)
	h, ok := s.calls.head(c)
	switch {
	case c.short:
		return false
	case ok:
		s.held = s.held[c.at:]
		s.start(h)
	case s.thinking:
		s.out.reasoning(s.lead + s.opener)
		s.held, s.state = s.held[len(s.opener):], (*splitter).reasoning
	default:
		s.out.text(s.lead + s.opener)
		s.held, s.state, s.fresh = s.held[len(s.opener):], (*splitter).text, false
	}
	return true
}

// arguments is the state within a call's arguments.
func (s *splitter) arguments(final bool) bool {
	n, json, done := s.last.reader.read(s.held, final)
	s.held = s.held[n:]
	s.out.arguments(json)
	if done {
		s.state = (*splitter).tail
	}
	return done
}

// tail is the state after a call's arguments.
func (s *splitter) tail(final bool) bool {
	c := newCursor(s.held, final)
	another, ok := s.calls.next(c, s.last)
	if c.short {
		return false
	}
	s.held = s.held[c.at:]
	if ok {
		s.start(another)
	} else {
		s.toText(s.held)
	}
	return true
}

func (s *splitter) start(h head) {
	s.last = h
	s.out.call(h.name)
	s.state = (*splitter).arguments
	if h.reader == nil {
		s.out.arguments(h.arguments)
		s.state = (*splitter).tail
	}
}

func (s *splitter) toText(held string) {
	s.held, s.state, s.fresh, s.touched = held, (*splitter).text, true, true
}

func (s *splitter) toReasoning(held string) {
	s.held, s.state, s.fresh = held, (*splitter).reasoning, true
}

func (s *splitter) toObject() {
	s.opened, s.object, s.state = false, jsonArguments{ends: []string{s.think.closing}}, (*splitter).answer
	if s.bare != "" {
		s.toHead(s.bare, "", s.held, false)
	}
}

func (s *splitter) toHead(opener, lead, held string, thinking bool) {
	s.held, s.state, s.opener, s.lead, s.thinking = held, (*splitter).head, opener, lead, thinking
}

// release takes from what is held all that can't be the beginning of a marker, or of at most space bytes before one.
func (s *splitter) release(markers []string, space int, final bool) string {
	n := len(s.held)
	if !final {
		n -= partial(s.held, markers)
		n -= spaceAtEnd(s.held[:n], space)
	}
	out := s.held[:n]
	s.held = s.held[n:]
	return out
}

// spaceAtEnd returns the length of the space that s ends with, or most if that is less.
func spaceAtEnd(s string, most int) int {
	return min(most, len(s)-len(strings.TrimRight(s, spaces)))
}
