package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

var (
	errLeft = errors.New("the client went away")
	errCut  = errors.New("the stream ended without an end")
)

// stream reads server-sent events. The bytes are read to their end, so that what comes after an end is recorded.
func (c *Client) stream(in io.Reader, q *Request, r *history.Client) error {
	lines := bufio.NewReaderSize(in, 16<<10)
	ended := false
	for {
		line, err := lines.ReadBytes('\n')
		if q.Comment != nil && bytes.HasPrefix(line, []byte(":")) {
			q.Comment(string(line))
		}
		if data, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("data: ")); ok {
			events, bad := read(data, r)
			if bad != nil {
				return bad
			}
			for _, e := range events {
				r.Events = append(r.Events, e)
				ended = ended || e.Done || e.Error != ""
				if q.Each != nil && !q.Each(e) {
					r.Gone = true
					return errLeft
				}
			}
		}
		switch {
		case errors.Is(err, io.EOF) && ended:
			return nil
		case errors.Is(err, io.EOF):
			return errCut
		case err != nil:
			return err
		}
	}
}

// chunk is one event of a stream.
type chunk struct {
	Choices []struct {
		Index  int    `json:"index"`
		Finish string `json:"finish_reason"`
		Delta  struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *usage   `json:"usage"`
	Error *failure `json:"error"`
}

// read turns the data of one event into records.
func read(data []byte, r *history.Client) ([]history.Event, error) {
	now := time.Now()
	if string(data) == "[DONE]" {
		return []history.Event{{At: now, Done: true}}, nil
	}
	var x chunk
	if err := json.Unmarshal(data, &x); err != nil {
		return nil, fmt.Errorf("an event is no JSON")
	}
	if x.Usage != nil {
		r.Completion = x.Usage.Completion
	}
	if x.Error != nil {
		r.Code = x.Error.word()
		return []history.Event{{At: now, Error: r.Code}}, nil
	}
	var events []history.Event
	for _, c := range x.Choices {
		if c.Delta.Content != "" || c.Finish != "" {
			events = append(events, history.Event{At: now, Choice: c.Index, Text: c.Delta.Content, Finish: c.Finish})
		}
	}
	return events, nil
}
