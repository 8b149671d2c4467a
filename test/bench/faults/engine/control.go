package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

// Control tells an engine in another process what to do.
type Control struct {
	client *http.Client
}

// NewControl reaches the engine at the socket.
func NewControl(socket string) *Control {
	return &Control{&http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}}
}

// Set gives the engine another plan.
func (c *Control) Set(ctx context.Context, p Plan) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPut, "/plan", text, nil)
}

// State asks what the engine is at.
func (c *Control) State(ctx context.Context) (State, error) {
	var s State
	err := c.do(ctx, http.MethodGet, "/state", nil, &s)
	return s, err
}

func (c *Control) do(ctx context.Context, method, path string, in []byte, out any) error {
	q, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, bytes.NewReader(in))
	if err != nil {
		return err
	}
	r, err := c.client.Do(q)
	if err != nil {
		return fmt.Errorf("tell the engine: %w", err)
	}
	defer r.Body.Close() //nolint:errcheck // it was read
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("tell the engine: it answered %d", r.StatusCode)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(r.Body).Decode(out)
}

// Attempts reads what engines have written into a file. The last line of a process that was killed may be cut.
func Attempts(file string) ([]history.Attempt, error) {
	f, err := os.Open(file)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was read
	return attempts(f)
}

func attempts(r io.Reader) ([]history.Attempt, error) {
	type key struct {
		process string
		number  int
	}
	at := map[key]int{}
	var all []history.Attempt
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var l record
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue
		}
		k := key{l.Process, l.Number}
		if i, ok := at[k]; ok {
			all[i] = l.Attempt
			continue
		}
		at[k] = len(all)
		all = append(all, l.Attempt)
	}
	return all, lines.Err()
}
