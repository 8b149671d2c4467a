package clients

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
)

// conn is a connection whose bytes are the caller's own.
type conn struct {
	*net.TCPConn
	in *bufio.Reader
}

// address is where clients reach a router.
func address(r *rig.Router) string { return strings.TrimPrefix(r.URL, "http://") }

// dial connects. The kernel keeps at most receive bytes that were not read; 0 leaves that to it.
func dial(ctx context.Context, address string, receive int) (*conn, error) {
	d := net.Dialer{Timeout: 20 * time.Second, Control: func(_, _ string, c syscall.RawConn) error {
		if receive == 0 {
			return nil
		}
		var err error
		if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receive) }); e != nil {
			return e
		}
		return err
	}}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &conn{c.(*net.TCPConn), bufio.NewReaderSize(c, 512)}, nil
}

// answer is a response, as far as it is looked at.
type answer struct {
	status int
	body   string
	took   time.Duration // since all was sent, where ask asked
}

// mostBody is how much of a body is looked at.
const mostBody = 64 << 10

// answer waits for a response, for at most a time. An error is what the client sees where none came.
func (c *conn) answer(within time.Duration) (answer, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	a, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return answer{}, err
	}
	defer a.Body.Close()                                    //nolint:errcheck // it was read
	body, _ := io.ReadAll(io.LimitReader(a.Body, mostBody)) // what is missing was cut off with the connection
	return answer{status: a.StatusCode, body: string(body)}, nil
}

// reset ends a connection by RST, and fin by FIN; what may still come is not read.
func (c *conn) reset() {
	_ = c.SetLinger(0)
	_ = c.Close()
}

func (c *conn) fin() { _ = c.CloseWrite() }

// head begins a chat whose body has so many bytes; -1 sends it in chunks.
func head(length int, headers ...string) string {
	var b strings.Builder
	b.WriteString("POST /v1/chat/completions HTTP/1.1\r\nHost: faults\r\nContent-Type: application/json\r\n")
	if length >= 0 {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", length)
	} else {
		b.WriteString("Transfer-Encoding: chunked\r\n")
	}
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	return b.String() + "\r\n"
}

// asked is a whole request for a streamed answer of the scripted engine, under an id of its own.
func asked(id string, words int) string {
	body := fmt.Sprintf(`{"model":%q,"stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"%s%s "}]}`,
		rig.ModelName, words, engine.Mark, id)
	return head(len(body), "X-Request-Id: "+id) + body
}

// isTimeout reports whether nothing came in time.
func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
