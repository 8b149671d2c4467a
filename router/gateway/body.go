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
			buf = append(buf, 0)[:len(buf)]
			if err := x.hold(int64(cap(buf))); err != nil {
				return nil, err
			}
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
