// Package load asks an HTTP/1.1 server over keep-alive connections and takes times: at a fixed rate, as fast as a number
// of connections allow, or over many streams at once. It reads just enough of HTTP to do so cheaply. What the figures mean
// is the caller's.
package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// Target is a server and what it is asked.
type Target struct {
	Address string `json:"address"`
	// Requests are whole HTTP/1.1 requests, head and body. A connection always sends the same one of them.
	Requests [][]byte `json:"requests"`
}

// of is the request of connection i.
func (t Target) of(i int) []byte { return t.Requests[i%len(t.Requests)] }

// Request returns a POST of a JSON body with further headers, each as "Name: value".
func Request(path, body string, headers ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", path, len(body))
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n" + body)
	return b.Bytes()
}

// conn is one connection.
type conn struct {
	net.Conn
	r *bufio.Reader
}

func dial(ctx context.Context, address string) (*conn, error) {
	c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, r: bufio.NewReaderSize(c, 8<<10)}, nil
}

// answer is the head of a response.
type answer struct {
	status  int
	length  int // -1: chunked
	closing bool
}

var errShape = errors.New("the response is not HTTP/1.1 with a length or chunks")

// head reads the head of a response.
func (c *conn) head() (answer, error) {
	a := answer{length: -2}
	line, err := c.line()
	if err != nil {
		return a, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return a, errShape
	}
	if a.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return a, errShape
	}
	for {
		line, err := c.line()
		if err != nil {
			return a, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if a.length, err = strconv.Atoi(string(value)); err != nil {
				return a, errShape
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			a.length = -1
		case bytes.EqualFold(name, []byte("Connection")):
			a.closing = bytes.EqualFold(value, []byte("close"))
		}
	}
	if a.length == -2 {
		return a, errShape
	}
	return a, nil
}

// line reads a line without its end. It is valid until the next read.
func (c *conn) line() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// chunk reads the next chunk; 0 bytes end the body. each, where set, is called with its parts as they come.
func (c *conn) chunk(each func([]byte)) (int, error) {
	line, err := c.line()
	if err != nil {
		return 0, err
	}
	size, err := strconv.ParseUint(string(line), 16, 31)
	if err != nil {
		return 0, errShape
	}
	for left := int(size); left > 0; {
		part, err := c.r.Peek(min(left, c.r.Size()))
		if len(part) == 0 {
			return 0, err
		}
		if each != nil {
			each(part)
		}
		left -= len(part)
		if _, err := c.r.Discard(len(part)); err != nil {
			return 0, err
		}
	}
	end, err := c.line()
	if err == nil && len(end) > 0 {
		err = errShape
	}
	return int(size), err
}

// ask sends a request and reads the whole response.
func (c *conn) ask(request []byte) (answer, error) {
	if _, err := c.Write(request); err != nil {
		return answer{}, err
	}
	a, err := c.head()
	if err != nil {
		return a, err
	}
	if a.length >= 0 {
		_, err = io.CopyN(io.Discard, c.r, int64(a.length))
		return a, err
	}
	for {
		n, err := c.chunk(nil)
		if err != nil || n == 0 {
			return a, err
		}
	}
}
