// Package dialect tells a model's reasoning and its calls of tools from the rest of what it writes. Each family of models
// marks them in its own way, which its chat template shows: Detect recognises the family by the template's text, and a
// Splitter reads the output while it comes. The package only parses: it renders no prompt, forces no format, knows no
// tokens and gives calls no ids. Package llamacpp finds the template, package scheduler feeds the splitters.
//
// # What is markup
//
// Text is handed out at once, but for the longest end of it that may still begin markup, and never more than MaxHeld
// bytes are held. Reasoning is recognised where nothing but space was written since the beginning, since other reasoning or
// since a call: further on, a word such as <think> is somebody's text about it. Space that touches a marker belongs to it.
//
// # Calls
//
// A call begins with a head: all up to its name and the first byte of its arguments. Until the head is complete nothing of
// it is handed out. A head that breaks its family's form is no call: its marker is given back as text, or as reasoning
// within reasoning, and what follows the marker is read as if it stood alone, so nothing is lost. Once a head is complete
// its call stands, because clients have seen its name. What follows goes into its arguments up to their end: of families
// that write JSON every byte as it is, right or wrong; of the others translated to JSON by the schema of the tool. Where
// the end of the call stands in the place of an argument, or the text ends within one, the arguments stay unclosed: nobody
// can take half a call for a whole one. A name need not be that of a tool, since a model that invents one is helped by
// being told so; only of a call without any marker it must.
//
// Without tools the markup of calls is text.
package dialect

import (
	"bytes"
	"strings"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// MaxHeld is the most bytes of output that a Splitter holds back before it decides that they are no markup.
const MaxHeld = 16 << 10

// Dialect is how a model marks its reasoning and calls tools. The zero Dialect marks nothing.
type Dialect struct {
	family *family
	think  marks
	opened bool // the prompt ends within reasoning
}

// marks are what reasoning stands between.
type marks struct{ open, closing string }

// Name is the family's name, "reasoning" for a model of which only reasoning is told apart, and "" for the zero Dialect.
func (d Dialect) Name() string {
	switch {
	case d.family != nil:
		return d.family.name
	case d.think != marks{}:
		return "reasoning"
	}
	return ""
}

// Markup lists the texts of the tokens that a Splitter must see. In some vocabularies they are special tokens, which are
// not rendered otherwise.
func (d Dialect) Markup() []string {
	var out []string
	if d.think != (marks{}) {
		out = append(out, d.think.open, d.think.closing)
	}
	if d.family != nil {
		out = append(out, d.family.markup...)
	}
	return out
}

// Stops lists the texts of the tokens by which a model ends its turn to wait for what its tools return. What it writes after
// one is what it thinks that they do.
func (d Dialect) Stops() []string {
	if d.family == nil {
		return nil
	}
	return d.family.stops
}

// After is the Dialect of output that follows prompt, a chat as the model's template has rendered it. Many templates let
// the prompt end within reasoning, some of them for some chats only.
func (d Dialect) After(prompt string) Dialect {
	if d.think != (marks{}) {
		at := strings.LastIndex(prompt, d.think.open)
		d.opened = at >= 0 && strings.TrimSpace(prompt[at+len(d.think.open):]) == ""
	}
	return d
}

// Splitter returns the splitter of one choice. tools is the request's JSON array of tools; where it is empty the markup of
// calls is text. Reasoning is told apart either way.
func (d Dialect) Splitter(tools []byte) engine.Splitter {
	t := readTools(tools)
	if d.family != nil && d.family.channels {
		return &channels{tools: t}
	}
	s := &splitter{think: d.think, state: (*splitter).text}
	if d.opened {
		s.state, s.opened = (*splitter).reasoning, true
	}
	if d.family != nil && t != nil {
		s.calls, s.bare, s.within = d.family.calls(t), d.family.bare, d.family.within
		s.openers = s.calls.openers()
	}
	s.fresh = len(s.markers()) > 0
	return s
}

// empty reports whether a request brings no tools.
func empty(tools []byte) bool {
	switch string(bytes.TrimSpace(tools)) {
	case "", "[]", "null":
		return true
	}
	return false
}
