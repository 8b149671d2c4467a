// Package client asks routers as clients do, by net/http, and records every event that it gets. It judges no answer: package
// history does. When a client goes away, and whether it comes back when it was told to wait, is the caller's decision.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ringfleet/ringfleet/api/telemetry"
	"github.com/ringfleet/ringfleet/test/bench/faults/engine"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

// Request is what is asked.
type Request struct {
	// ID is made where it is empty.
	ID, Tenant, Session, Model string
	Stream                     bool
	// Words is how many tokens are asked for; Free: the engine is no scripted one, so that its text is its own.
	Words   int
	Free    bool
	Choices int
	// Prompt is put behind what every prompt has. Same is the id in it, where requests are to have the same prompt.
	Prompt, Same string
	// Greedy asks for temperature 0.
	Greedy bool
	// Began, where set, is called when the response begins, with the worker that it names.
	Began func(worker string)
	// Each, where set, is called with every event that comes, before the next one is read. The client goes away where it says
	// false.
	Each func(history.Event) bool
	// Comment, where set, is called with every comment of the stream.
	Comment func(string)
	// Timeout is how long the client waits for the whole answer; 0: a minute. Then it counts as a failure.
	Timeout time.Duration
	// Header is sent besides.
	Header map[string]string
}

// Client asks one router.
type Client struct {
	// Router is its name in records, URL where it is.
	Router, URL string
	Log         *history.Log
	http        *http.Client
	met         func(*http.Response) string // nil: always the same router
}

// New returns a client of a router. It keeps connections, as many as it needs.
func New(router, url string, log *history.Log) *Client {
	return &Client{Router: router, URL: url, Log: log, http: &http.Client{Transport: &http.Transport{
		MaxIdleConns: 1 << 16, MaxIdleConnsPerHost: 1 << 16, IdleConnTimeout: time.Minute, DisableCompression: true,
	}}}
}

// Over returns a client whose requests t brings to one of several routers. Met tells by a response which one that was.
func Over(t http.RoundTripper, met func(*http.Response) string, url string, log *history.Log) *Client {
	return &Client{URL: url, Log: log, http: &http.Client{Transport: t}, met: met}
}

// Close closes the connections that no request uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// numbers makes ids.
var numbers atomic.Int64

// NewID returns an id that no other request of this process has.
func NewID() string { return "f" + strconv.FormatInt(numbers.Add(1), 36) }

// defaultTimeout is how long an answer may take where a request does not say.
const defaultTimeout = time.Minute

// Do asks and returns what came of it, which is also in the log.
func (c *Client) Do(ctx context.Context, q Request) history.Client {
	if q.ID == "" {
		q.ID = NewID()
	}
	r := history.Client{ID: q.ID, Tenant: q.Tenant, Router: c.Router, Model: q.Model, Stream: q.Stream, Choices: max(q.Choices, 1),
		Completion: -1, Start: time.Now()}
	if !q.Free {
		r.Words = q.Words
	}
	timeout := q.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	own, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := c.ask(own, &q, &r)
	r.End = time.Now()
	switch {
	case err == nil:
	case r.Gone:
	case ctx.Err() != nil:
		r.Gone = true
	default:
		r.Broken = plain(err)
	}
	c.Log.Client(&r)
	return r
}

// plain is an error without addresses and without what was asked.
func plain(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, ": "); i >= 0 {
		return s[i+2:]
	}
	return s
}

// body is a request as routers take it.
func body(q *Request) ([]byte, error) {
	b := map[string]any{
		"model": q.Model, "stream": q.Stream, "max_tokens": q.Words,
		"messages": []map[string]string{{"role": "user", "content": engine.Mark + cmp.Or(q.Same, q.ID) + " " + q.Prompt}},
	}
	if q.Stream {
		b["stream_options"] = map[string]bool{"include_usage": true}
	}
	if q.Choices > 1 {
		b["n"] = q.Choices
	}
	if q.Greedy {
		b["temperature"] = 0
	}
	if q.Free {
		b["messages"] = []map[string]string{{"role": "user", "content": q.Prompt}}
	}
	return json.Marshal(b)
}

func (c *Client) ask(ctx context.Context, q *Request, r *history.Client) error {
	text, err := body(q)
	if err != nil {
		return err
	}
	p, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/v1/chat/completions", strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	p.Header.Set("Content-Type", "application/json")
	p.Header.Set(telemetry.HeaderRequestID, q.ID)
	if q.Session != "" {
		p.Header.Set(telemetry.HeaderSession, q.Session)
	}
	if q.Tenant != "" {
		p.Header.Set(telemetry.HeaderTenant, q.Tenant)
	}
	for k, v := range q.Header {
		p.Header.Set(k, v)
	}
	a, err := c.http.Do(p)
	if err != nil {
		return err
	}
	defer a.Body.Close() //nolint:errcheck // it was read, or is to be cut
	if c.met != nil {
		r.Router = c.met(a)
	}
	r.Status, r.Worker = a.StatusCode, a.Header.Get(telemetry.HeaderWorker)
	r.RetryAfter, _ = strconv.Atoi(a.Header.Get("Retry-After"))
	if q.Began != nil {
		q.Began(r.Worker)
	}
	if a.StatusCode == http.StatusOK && q.Stream {
		err := c.stream(a.Body, q, r)
		if r.Worker == "" {
			r.Worker = a.Trailer.Get(telemetry.HeaderWorker) // the response began by a comment
		}
		return err
	}
	return whole(a.Body, r)
}

// mostAnswer bounds an answer that is no stream.
const mostAnswer = 64 << 20

// whole reads an answer that is no stream.
func whole(in io.Reader, r *history.Client) error {
	text, err := io.ReadAll(io.LimitReader(in, mostAnswer))
	if err != nil {
		return err
	}
	var a struct {
		Choices []struct {
			Index   int    `json:"index"`
			Finish  string `json:"finish_reason"`
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
		Usage *usage   `json:"usage"`
		Error *failure `json:"error"`
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("the answer is no JSON")
	}
	now := time.Now()
	for _, x := range a.Choices {
		r.Events = append(r.Events, history.Event{At: now, Choice: x.Index, Text: x.Message.Content, Finish: x.Finish})
	}
	if a.Usage != nil {
		r.Completion = a.Usage.Completion
	}
	if a.Error != nil {
		r.Code = a.Error.word()
	}
	return nil
}

type usage struct {
	Completion int `json:"completion_tokens"`
}

type failure struct {
	Type string `json:"type"`
	Code any    `json:"code"`
}

// word is the code, or the type where there is none.
func (f *failure) word() string {
	if s, ok := f.Code.(string); ok && s != "" {
		return s
	}
	return f.Type
}
