// Package ask asks a model one question over HTTP, as any OpenAI client does, and hands on its answer token
// by token. It measures what a user feels; it retries nothing.
package ask

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
	"time"

	"k8s.io/utils/clock"
)

// Question is one question.
type Question struct {
	URL       string // base URL, up to and with /v1
	Model     string
	Prompt    string
	MaxTokens int
}

// Answer says how the answer came.
type Answer struct {
	Text       string
	Tokens     int           // as the server counted them
	FirstToken time.Duration // from the request to the first text
	Total      time.Duration
	Worker     string // who answered, as the router says
}

// TokensPerSecond is the rate after the first token, 0 when there is none.
func (a Answer) TokensPerSecond() float64 {
	if a.Tokens < 2 || a.Total <= a.FirstToken {
		return 0
	}
	return float64(a.Tokens-1) / (a.Total - a.FirstToken).Seconds()
}

// Client asks.
type Client struct {
	HTTP  *http.Client
	Clock clock.PassiveClock
}

// Stream asks q and writes the answer's text to out as it comes. An answer without its end is an error.
func (c Client) Stream(ctx context.Context, q Question, out io.Writer) (Answer, error) {
	body, err := json.Marshal(map[string]any{
		"model": q.Model, "stream": true, "temperature": 0, "max_tokens": q.MaxTokens,
		"stream_options": map[string]any{"include_usage": true},
		"messages":       []map[string]string{{"role": "user", "content": q.Prompt}},
	})
	if err != nil {
		return Answer{}, err
	}
	url := strings.TrimRight(q.URL, "/") + "/chat/completions"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return Answer{}, fmt.Errorf("ask %s: %w", url, err)
	}
	req.Header.Set("Content-Type", "application/json")
	start := c.Clock.Now()
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("ask %s: %w", url, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // what there is of it helps
		return Answer{}, fmt.Errorf("ask %s: status %s: %s", url, resp.Status, bytes.TrimSpace(text))
	}
	a, err := c.read(resp.Body, start, out)
	a.Worker = resp.Header.Get("X-Ringfleet-Worker")
	if err != nil {
		return a, fmt.Errorf("ask %s: %w", url, err)
	}
	return a, nil
}

// event is what is read of one chunk.
type event struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func (c Client) read(body io.Reader, start time.Time, out io.Writer) (Answer, error) {
	var a Answer
	var text strings.Builder
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue // blank lines, comments
		}
		data = strings.TrimSpace(data)
		if data == "[DONE]" {
			a.Text, a.Total = text.String(), c.Clock.Since(start)
			return a, nil
		}
		var e event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return a, fmt.Errorf("read the stream: %w in %.200q", err, data)
		}
		if e.Error != nil {
			return a, fmt.Errorf("the stream ended in an error: %s", e.Error.Message)
		}
		if e.Usage != nil {
			a.Tokens = e.Usage.CompletionTokens
		}
		for _, choice := range e.Choices {
			if choice.Delta.Content == "" {
				continue
			}
			if a.FirstToken == 0 {
				a.FirstToken = c.Clock.Since(start)
			}
			text.WriteString(choice.Delta.Content)
			if _, err := io.WriteString(out, choice.Delta.Content); err != nil {
				return a, err
			}
		}
	}
	return a, errors.Join(errors.New("the stream broke off before its end"), lines.Err())
}
