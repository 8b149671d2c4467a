package relay

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// meant is what an engine answers.
type meant struct {
	thought, text string
	calls         []called
}

// called is a tool call.
type called struct{ name, arguments string }

// form is how a server writes its stream; each bit is a habit of some.
type form uint16

const (
	carriageReturns form = 1 << iota // lines end in CR; with lineFeeds too, in CR LF
	lineFeeds
	comments   // between events
	mark       // a byte order mark begins the stream
	spread     // the JSON of an event has many lines
	noSpace    // behind the colon
	named      // events have a name and an id
	noDone     // no [DONE]
	unfinished // no empty line behind the last event
	halves     // characters are cut in two
	together   // text and the end of the output are in one event
)

// writer writes a stream in a form.
type writer struct {
	strings.Builder
	form
}

func (w *writer) has(f form) bool { return w.form&f != 0 }

// end is what ends a line.
func (w *writer) end() string {
	switch {
	case !w.has(carriageReturns):
		return "\n"
	case w.has(lineFeeds):
		return "\r\n"
	}
	return "\r"
}

// event writes an event.
func (w *writer) event(data string) {
	if w.has(comments) {
		w.WriteString(": still here" + w.end() + w.end())
	}
	if w.has(named) {
		w.WriteString("event: message" + w.end() + "id: 7" + w.end())
	}
	for line := range strings.SplitSeq(data, "\n") {
		w.WriteString("data:")
		if !w.has(noSpace) {
			w.WriteString(" ")
		}
		w.WriteString(line + w.end())
	}
	w.WriteString(w.end())
}

// chunk writes an event with one choice, whose finish may be "".
func (w *writer) chunk(delta map[string]any, finish string) {
	choice := map[string]any{"index": 0, "delta": delta}
	if finish != "" {
		choice["finish_reason"] = finish
	}
	event := map[string]any{"object": "chat.completion.chunk", "choices": []any{choice}}
	text, _ := json.Marshal(event) // strings and numbers always are JSON
	if w.has(spread) {
		text, _ = json.MarshalIndent(event, "", " ")
	}
	w.event(raw(string(text)))
}

// stray stands for a byte that is half a character, as long as JSON is written.
const stray = 0x10FF00

// raw puts the halves of characters into JSON.
func raw(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r >= stray && r <= stray+0xFF {
			b.WriteByte(byte(r - stray))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// halved writes each byte that is no whole character as a stray one.
func halved(piece string) string {
	var b strings.Builder
	for len(piece) > 0 {
		r, n := utf8.DecodeRuneInString(piece)
		if r == utf8.RuneError && n == 1 {
			r = stray + rune(piece[0])
		}
		b.WriteRune(r)
		piece = piece[n:]
	}
	return b.String()
}

// mostDeltas bounds the pieces of one text.
const mostDeltas = 24

// cut cuts a text into pieces by lengths that take turns.
func (w *writer) cut(text string, cuts []byte) []string {
	var out []string
	for n := 0; len(text) > 0; n++ {
		size := len(text)
		if len(cuts) > 0 && n < mostDeltas {
			size = min(int(cuts[n%len(cuts)])%9+1, len(text))
		}
		for !w.has(halves) && size < len(text) && !utf8.RuneStart(text[size]) {
			size++
		}
		out, text = append(out, halved(text[:size])), text[size:]
	}
	return out
}

// write is the stream of a server that answers m in a form, and in pieces by cuts.
func write(m meant, f form, cuts []byte) string {
	w := &writer{form: f}
	if w.has(mark) {
		w.WriteString("\uFEFF")
	}
	w.chunk(map[string]any{"role": "assistant", "content": ""}, "")
	for _, piece := range w.cut(m.thought, cuts) {
		w.chunk(map[string]any{"reasoning_content": piece}, "")
	}
	pieces := w.cut(m.text, cuts)
	last := map[string]any{}
	if n := len(pieces); n > 0 && w.has(together) && len(m.calls) == 0 {
		last["content"], pieces = pieces[n-1], pieces[:n-1]
	}
	for _, piece := range pieces {
		w.chunk(map[string]any{"content": piece}, "")
	}
	finish := "stop"
	for i, c := range m.calls {
		finish = "tool_calls"
		w.chunk(map[string]any{"tool_calls": []any{map[string]any{"index": i, "id": callID(i), "type": "function",
			"function": map[string]any{"name": c.name, "arguments": ""}}}}, "")
		for _, piece := range w.cut(c.arguments, cuts) {
			w.chunk(map[string]any{"tool_calls": []any{map[string]any{"index": i, "function": map[string]any{"arguments": piece}}}}, "")
		}
	}
	w.chunk(last, finish)
	w.event(`{"object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}`)
	if !w.has(noDone) {
		w.event("[DONE]")
	}
	if w.has(unfinished) {
		return strings.TrimRight(w.String(), "\r\n")
	}
	return w.String()
}

func callID(i int) string { return "call-" + string(rune('a'+i)) }
