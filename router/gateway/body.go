package gateway

import (
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"time"
)

// A body may take bodyWindow for each windowBytes of it.
const (
	bodyWindow  = 30 * time.Second
	windowBytes = 30 << 10
)

// firstBytes is the most memory that is taken for a body before any of it has come.
const firstBytes = 64 << 10

// body reads the request's body: JSON, not compressed, not too large and not too slowly.
func (x *exchange) body() ([]byte, error) {
	if err := jsonPlain(x.r.Header); err != nil {
		return nil, err
	}
	most := x.h.cfg.MaxBodyBytes
	if x.r.ContentLength > most {
		return nil, &tooLargeError{most}
	}
	in := http.MaxBytesReader(x.w, x.r.Body, most)
	// The length that a client claims costs it nothing, so only a part of it is taken at its word; one byte more than
	// the length, so that the end is seen without growing.
	first := min(max(x.r.ContentLength, 511), firstBytes) + 1
	if err := x.hold(first); err != nil {
		return nil, err
	}
	buf := make([]byte, 0, first)
	rolled := 0
	for {
		if len(buf)-rolled >= windowBytes {
			x.windowForBody()
			rolled = len(buf)
		}
		if len(buf) == cap(buf) {
			next := room(int64(len(buf)), x.r.ContentLength, most)
			if err := x.hold(next); err != nil {
				return nil, err
			}
			buf = append(make([]byte, 0, next), buf...)
		}
		n, err := in.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			// From here on a read only waits for the client's going, and may take as long as it likes.
			_ = x.rc.SetReadDeadline(time.Time{})
			return buf, nil
		}
		if err != nil {
			return nil, bodyError(err)
		}
	}
}

// room is how much memory a body gets of which so many bytes have come and fill what it has: what it says that it needs,
// where enough of it has come to believe that, else twice as much. It needs no more than most bytes.
func room(came, length, most int64) int64 {
	const believed = 4
	if came < length && length <= believed*came {
		return length + 1
	}
	return min(2*came, most+1)
}

// hold books the memory of the request until release, in place of what was booked for it before.
func (x *exchange) hold(bytes int64) error {
	more := bytes - x.held
	if x.h.held.Add(more) > x.h.cfg.MaxBodyBytesTotal {
		x.h.held.Add(-more)
		return errOverloaded
	}
	x.held = bytes
	return nil
}

func (x *exchange) release() { x.h.held.Add(-x.held) }

// windowForBody gives the next bytes of the body their time.
func (x *exchange) windowForBody() {
	// Every connection of a real server has deadlines; a recorder in a test has none.
	_ = x.rc.SetReadDeadline(x.h.cfg.Clock.Now().Add(bodyWindow))
}

// jsonPlain checks what the client says about its body. Asking for the JSON type also keeps out web pages of strangers,
// which may send a form to any address without being allowed to.
func jsonPlain(h http.Header) error {
	if enc := h.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return errEncoding
	}
	if is := h.Get("Content-Type"); is == "application/json" { // as nearly all send it
		return nil
	}
	if kind, _, err := mime.ParseMediaType(h.Get("Content-Type")); err != nil || kind != "application/json" {
		return errMediaType
	}
	return nil
}

// bodyError says why a body could not be read.
func bodyError(err error) error {
	var large *http.MaxBytesError
	var slow net.Error
	switch {
	case errors.As(err, &large):
		return &tooLargeError{large.Limit}
	case errors.As(err, &slow) && slow.Timeout():
		return errSlowBody
	}
	return errBody
}
