package openai

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"
)

// eventBytes bounds one event, but for the prompt: the first one of vLLM repeats its tokens.
const eventBytes = 512 << 10

// maxEvent is how long an event of the answer to a request of so many bytes may be. A token is at least a byte of a text, and
// its number in a list takes at most 8.
func maxEvent(request int) int { return eventBytes + 8*request }

// errEventTooLong is an event that no server means to send.
var errEventTooLong = errors.New("an event is longer than any that its server means to send")

// event is one server-sent event.
type event struct {
	name string // "" unless the server named it
	data []byte // valid until the next event; lines are joined by \n
}

// events reads server-sent events as the WHATWG's standard "Server-sent events" lays them down: lines end in LF, CR or
// CR LF, lines that begin with a colon are comments, the data of an event may have many lines. An event that the end of
// the stream cuts off counts, as some servers forget the last empty line.
type events struct {
	r *bufio.Reader
	*room
	most   int  // bytes of an event
	began  bool // the first line was read
	skipLF bool // the last line ended in CR
}

// room is what a stream's lines and events are read into. Streams hand it on, since the first event of one may fill it.
type room struct{ line, data []byte }

var rooms = sync.Pool{New: func() any { return new(room) }}

// newEvents reads events of at most so many bytes. Close it when done.
func newEvents(r io.Reader, most int) *events {
	return &events{r: bufio.NewReaderSize(r, 16<<10), room: rooms.Get().(*room), most: most}
}

// close hands the room on, unless a long prompt has made it large; the last event is not valid any more.
func (e *events) close() {
	if cap(e.line)+cap(e.data) <= 4*eventBytes {
		rooms.Put(e.room)
	}
	e.room = nil
}

// grown returns b with room for n bytes more. Where it grows it doubles, as the smaller steps of append leave several times as
// much behind, but not beyond what an event may have.
func (e *events) grown(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	return slices.Grow(b, max(n, min(max(len(b), 512), e.most-len(b))))
}

// next returns the next event that has data, or io.EOF.
func (e *events) next() (event, error) {
	out := event{}
	e.data = e.data[:0]
	has := false
	for {
		line, err := e.readLine()
		if err != nil && !errors.Is(err, io.EOF) {
			return event{}, err
		}
		if len(line) > 0 {
			name, value := field(line)
			switch name {
			case "event":
				out.name = string(value)
			case "data":
				e.data = e.grown(e.data, len(value)+1)
				if has {
					e.data = append(e.data, '\n')
				}
				has = true
				e.data = append(e.data, value...)
			}
			if len(e.data) > e.most {
				return event{}, errEventTooLong
			}
		}
		switch {
		case has && (err != nil || len(line) == 0):
			out.data = e.data
			return out, nil //nolint:nilerr // the end of the stream is the end of the event, and comes again
		case err != nil:
			return event{}, io.EOF
		case len(line) == 0:
			out.name = "" // an event without data is none
		}
	}
}

// field splits a line; a comment has no name.
func field(line []byte) (name string, value []byte) {
	n, v, _ := bytes.Cut(line, []byte(":"))
	return string(n), bytes.TrimPrefix(v, []byte(" "))
}

// readLine returns the next line without its end, as soon as that end is there. At the end of the stream it returns what
// is left with io.EOF.
func (e *events) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		c, err := e.r.ReadByte()
		if err != nil {
			return e.unmarked(), err
		}
		skip := e.skipLF
		e.skipLF = false
		switch {
		case c == '\n' && skip:
		case c == '\n', c == '\r':
			e.skipLF = c == '\r'
			return e.unmarked(), nil
		case len(e.line) >= e.most:
			return nil, errEventTooLong
		default:
			e.line = append(e.grown(e.line, 1), c)
		}
	}
}

// unmarked is the line that was read, without the byte order mark where it is the first.
func (e *events) unmarked() []byte {
	if e.began {
		return e.line
	}
	e.began = true
	return bytes.TrimPrefix(e.line, bom)
}

// bom is the byte order mark that may begin a stream.
var bom = []byte("\uFEFF")
