package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/telemetry"
	"github.com/ringfleet/ringfleet/hack/demo/ask"
)

const (
	prompt = "What is the capital of France?"
	// pause is what a client waits between two requests.
	pause = 20 * time.Millisecond
)

// answer is one that a client got.
type answer struct {
	id    string // of the request
	first time.Time
}

// asker asks a router again and again, one request at a time.
type asker struct {
	url, model, name string
	http             *http.Client

	mu      sync.Mutex // guards what follows
	answers []answer
	refused []time.Time // when requests without an answer were sent
	last    error       // why the last of them had none
}

// ask asks until ctx ends.
func (c *asker) ask(ctx context.Context) {
	t := time.NewTicker(pause)
	defer t.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s-%d", c.name, n)
		one := ask.Client{HTTP: &http.Client{Transport: named{id, c.http.Transport}}, Clock: clock.RealClock{}}
		sent := time.Now()
		a, err := one.Stream(ctx, ask.Question{URL: c.url, Model: c.model, Prompt: prompt, MaxTokens: 2}, io.Discard)
		if ctx.Err() != nil {
			return
		}
		c.note(id, sent, a, err)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
}

func (c *asker) note(id string, sent time.Time, a ask.Answer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || a.FirstToken == 0 {
		c.refused, c.last = append(c.refused, sent), err
		return
	}
	c.answers = append(c.answers, answer{id: id, first: sent.Add(a.FirstToken)})
}

// since says whether an answer has begun after a time, and otherwise what came instead.
func (c *asker) since(t time.Time) (bool, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.answers)
	return n > 0 && c.answers[n-1].first.After(t), fmt.Sprintf("%d answers, %d requests without one, the last: %v", n, len(c.refused), c.last)
}

// earliest is when the first answer of all began; zero before it.
func (c *asker) earliest() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) == 0 {
		return time.Time{}
	}
	return c.answers[0].first
}

// first returns the first answer to a request that is in served, and how many were refused before it.
func (c *asker) first(served map[string]bool) (time.Time, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.answers {
		if !served[a.id] {
			continue
		}
		n := 0
		for _, r := range c.refused {
			if r.Before(a.first) {
				n++
			}
		}
		return a.first, n
	}
	return time.Time{}, len(c.refused)
}

// named gives a request its id.
type named struct {
	id   string
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(telemetry.HeaderRequestID, n.id)
	return n.next.RoundTrip(r)
}
