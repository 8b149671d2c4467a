package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/ringfleet/ringfleet/api/telemetry"
)

// message is one turn of a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chatRequest is the body of POST /v1/chat/completions, as far as chat uses it.
type chatRequest struct {
	Model         string         `json:"model"`
	Messages      []message      `json:"messages"`
	Temperature   float64        `json:"temperature"`
	MaxTokens     int64          `json:"max_completion_tokens,omitempty"`
	Stream        bool           `json:"stream"`
	StreamOptions map[string]any `json:"stream_options"`
}

// chatChunk is one event of the answer, or an error in the middle of it.
type chatChunk struct {
	Choices []struct {
		Delta        message `json:"delta"`
		FinishReason string  `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		CompletionTokens int64 `json:"completion_tokens"`
	} `json:"usage"`
	Error *chatError `json:"error"`
}

type chatError struct {
	Message string `json:"message"`
	Code    string `json:"code"`
}

// ask sends one request and calls each for every event of the answer.
func ask(ctx context.Context, base, session string, body chatRequest, each func(chatChunk)) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/chat/completions", bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(telemetry.HeaderSession, session)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var refusal chatChunk
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if json.Unmarshal(text, &refusal) == nil && refusal.Error != nil {
			return fmt.Errorf("%s: %s", resp.Status, refusal.Error.Message)
		}
		return fmt.Errorf("%s from %s: no OpenAI error object in the answer", resp.Status, base)
	}
	return events(resp.Body, each)
}

// events reads server-sent events up to [DONE]. An answer that ends without it was cut off.
func events(r io.Reader, each func(chatChunk)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue // a comment, or the empty line after an event
		}
		if bytes.Equal(data, []byte("[DONE]")) {
			return nil
		}
		var c chatChunk
		if err := json.Unmarshal(data, &c); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		if c.Error != nil {
			return fmt.Errorf("%s (%s)", c.Error.Message, c.Error.Code)
		}
		each(c)
	}
	return errors.Join(errors.New("the answer ended without [DONE]: it is not complete"), lines.Err())
}
