package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// maxAnswer bounds an answer that is no stream.
	maxAnswer = 32 << 20
	// idleConnection is shorter than the five seconds after which these servers close a connection.
	idleConnection = 4 * time.Second
)

// client speaks HTTP with one server.
type client struct {
	base   string
	key    string // of the server; never logged
	pooled *http.Client
	fresh  *http.Client // a connection for each request
}

func newClient(base, key string) (*client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("openai driver: the base URL must be http or https with a host")
	}
	return &client{base: strings.TrimSuffix(base, "/"), key: key, pooled: newHTTP(false), fresh: newHTTP(true)}, nil
}

// newHTTP follows no redirects and no proxy: the server is beside the worker.
func newHTTP(once bool) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 32, IdleConnTimeout: idleConnection, DisableKeepAlives: once,
			DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (c *client) close() {
	c.pooled.CloseIdleConnections()
	c.fresh.CloseIdleConnections()
}

// do sends a request. Where the server closed a kept connection under it and sent nothing back, it is sent once more, on
// a new one.
func (c *client) do(ctx context.Context, method, path string, content []byte) (*http.Response, error) {
	r, again, err := c.try(ctx, c.pooled, method, path, content)
	if again {
		r, _, err = c.try(ctx, c.fresh, method, path, content)
	}
	switch {
	case err == nil:
		return r, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case again:
		return nil, &sentError{plain(err)}
	}
	return nil, plain(err)
}

// sentError is an error of the second try of a request: the first may have reached the server.
type sentError struct{ error }

func (e *sentError) Unwrap() error { return e.error }

// try says whether the request may be sent once more.
func (c *client) try(ctx context.Context, by *http.Client, method, path string, content []byte) (*http.Response, bool, error) {
	var reused, answered atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(i httptrace.GotConnInfo) { reused.Store(i.Reused) },
		GotFirstResponseByte: func() { answered.Store(true) },
	})
	q, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(content))
	if err != nil {
		return nil, false, err
	}
	if content != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		q.Header.Set("Authorization", "Bearer "+c.key)
	}
	r, err := by.Do(q)
	return r, err != nil && ctx.Err() == nil && reused.Load() && !answered.Load() && closed(err), err
}

// closed tells an error of a connection that the other side has ended.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || strings.Contains(err.Error(), "server closed idle connection")
}

// refused tells that nobody listens: the server's process is gone.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// unsent tells that the server got nothing of the request, as nobody listens.
func unsent(err error) bool {
	sent := (*sentError)(nil)
	return refused(err) && !errors.As(err, &sent)
}

// plain is a network error without the URL around it.
func plain(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// ask sends a request and reads the answer, which must be 2xx, into out where that is not nil.
func (c *client) ask(ctx context.Context, method, path string, in, out any, field, adapter string) error {
	var content []byte
	if in != nil {
		var err error
		if content, err = json.Marshal(in); err != nil {
			return fmt.Errorf("write the request: %w", err)
		}
	}
	r, err := c.do(ctx, method, path, content)
	if err != nil {
		return err
	}
	defer drop(r)
	if r.StatusCode/100 != 2 {
		return refusal(r, field, adapter)
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case len(data) > maxAnswer:
		return fmt.Errorf("its answer is longer than %d MiB", maxAnswer>>20)
	case out == nil:
		return nil
	}
	if json.Unmarshal(data, out) != nil {
		return errGarbage
	}
	return nil
}

// drop reads a little of what is left, so that the connection can be kept, and closes.
func drop(r *http.Response) {
	_, _ = io.CopyN(io.Discard, r.Body, 4<<10) // its end is the usual case
	_ = r.Body.Close()
}
