//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/api/telemetry"
)

// question is one chat request.
type question struct {
	model, prompt, session string
	stream                 bool
	maxTokens              int
	fresh                  bool // on a connection of its own
}

func (q question) body() []byte {
	b, _ := json.Marshal(map[string]any{
		"model": q.model, "messages": []map[string]string{{"role": "user", "content": q.prompt}},
		"stream": q.stream, "max_tokens": q.maxTokens, "temperature": 0,
	})
	return b
}

// outcome is everything that a client saw of one request.
type outcome struct {
	status int
	worker string
	reason string
	text   string
	body   string // what was not a stream
	events int
	finish string
	done   bool   // [DONE] came
	code   string // of the error object or event
	err    error  // of the transport
	ttft   time.Duration
}

func (o outcome) String() string {
	return fmt.Sprintf("status %d, worker %s, %d events, finish %q, done %t, code %q, transport %v, body %.300s", o.status, o.worker, o.events, o.finish, o.done, o.code, o.err, o.body)
}

// good is a complete answer.
func (o outcome) good() bool {
	return o.err == nil && o.status == http.StatusOK && o.code == "" && o.finish != "" && o.text != ""
}

type wireError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

type wireAnswer struct {
	Choices []struct {
		Delta        struct{ Content string } `json:"delta"`
		Message      struct{ Content string } `json:"message"`
		FinishReason *string                  `json:"finish_reason"`
	} `json:"choices"`
	Error *wireError `json:"error"`
}

// clients keep connections apart, as many clients would.
var httpClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// post asks and reads the answer to its end. seen is called after every event of a stream; it may be nil.
func post(ctx context.Context, base string, q question, seen func(outcome)) (o outcome) {
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/chat/completions", bytes.NewReader(q.body()))
	if err != nil {
		return outcome{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	if q.session != "" {
		req.Header.Set(telemetry.HeaderSession, q.session)
	}
	req.Close = q.fresh
	resp, err := httpClient.Do(req)
	if err != nil {
		return outcome{err: err}
	}
	defer resp.Body.Close()
	o.reason = resp.Header.Get(telemetry.HeaderReason)
	o.status, o.worker = resp.StatusCode, resp.Header.Get(telemetry.HeaderWorker)
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		text, err := io.ReadAll(resp.Body)
		o.body, o.err = string(text), err
		o.take(text)
		return o
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if string(data) == "[DONE]" {
			o.done = true
			continue
		}
		before := len(o.text)
		o.events++
		o.take(data)
		if before == 0 && len(o.text) > 0 {
			o.ttft = time.Since(start)
		}
		if seen != nil {
			seen(o)
		}
	}
	o.err = lines.Err()
	if o.worker == "" { // the first thing sent was a comment
		o.worker = resp.Trailer.Get(telemetry.HeaderWorker)
	}
	return o
}

func (o *outcome) take(data []byte) {
	var a wireAnswer
	if err := json.Unmarshal(data, &a); err != nil {
		o.err = errors.Join(o.err, err)
		return
	}
	if a.Error != nil {
		o.code = a.Error.Code
	}
	for _, c := range a.Choices {
		o.text += c.Delta.Content + c.Message.Content
		if c.FinishReason != nil {
			o.finish = *c.FinishReason
		}
	}
}

// refused sends a body as it stands and returns the status and the error object.
func refused(t *testing.T, base string, body string) (int, wireError) {
	t.Helper()
	resp, err := httpClient.Post(base+"/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, errorOf(t, resp)
}

func errorOf(t *testing.T, resp *http.Response) wireError {
	t.Helper()
	var a struct {
		Error *wireError `json:"error"`
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil || a.Error == nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		t.Fatalf("status %d without an OpenAI error object: %s (%v)", resp.StatusCode, text, err)
	}
	return *a.Error
}
