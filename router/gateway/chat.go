package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/ringfleet/ringfleet/api/telemetry"
	"github.com/ringfleet/ringfleet/router/openai"
)

// chat serves POST /v1/chat/completions.
func (x *exchange) chat() error {
	x.measured = true
	body, err := x.body()
	if err != nil {
		return err
	}
	req, err := openai.ParseChat(body)
	if err != nil {
		return err
	}
	m, s, err := x.h.find(req.Model)
	if err != nil {
		return err
	}
	x.model, x.measure = m.Name, x.h.cfg.Measure(m.Name)
	call := &Call{
		ModelUID: m.UID, RequestID: x.id, Key: affinityKey(x.r.Header.Get(telemetry.HeaderSession), req),
		FirstByte: s.firstByte, Idle: s.idle,
		Messages: req.Messages, MaxTokens: req.MaxTokens, Stop: req.Stop,
		Temperature: req.Temperature, TopP: req.TopP, Seed: req.Seed,
	}
	answer := &openai.Completion{
		ID: "chatcmpl-" + x.h.random(), Model: req.Model, Created: x.began.Unix(), IncludeUsage: req.IncludeUsage,
	}
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	if req.Stream {
		return x.stream(ctx, cancel, call, answer)
	}
	return x.collect(ctx, call, answer)
}

// collect answers with the whole text at once. Until then the client has no byte, so that a worker which is lost in the
// middle costs only time: the call is made once more, unless it has been already.
func (x *exchange) collect(ctx context.Context, call *Call, answer *openai.Completion) error {
	text, end, attempts, err := x.gather(ctx, call)
	var fault *Fault
	if errors.As(err, &fault) && fault.Kind == Lost && attempts == 1 && ctx.Err() == nil {
		x.usage.Completion = 0
		call.Tried = []string{x.worker}
		text, end, _, err = x.gather(ctx, call)
	}
	if err != nil {
		return err
	}
	x.w.Header().Set(telemetry.HeaderWorker, x.worker)
	return x.write(http.StatusOK, answer.AppendBody(nil, text, end.Finish, end.Usage))
}

// gather runs a call to its end, and says how many workers were asked; 0 where none began to answer.
func (x *exchange) gather(ctx context.Context, call *Call) (text string, end Event, attempts int, err error) {
	stream, err := x.h.cfg.Generator.Generate(ctx, call)
	if err != nil {
		return "", Event{}, 0, err
	}
	defer stream.Close()
	var all strings.Builder
	for {
		event, err := x.next(stream)
		if err != nil {
			return "", Event{}, stream.Attempts(), err
		}
		all.WriteString(event.Text)
		if event.Finish != "" {
			return all.String(), event, stream.Attempts(), nil
		}
	}
}

// next waits for the next event and takes its figures.
func (x *exchange) next(s Stream) (Event, error) {
	x.worker = s.Worker()
	event, err := s.Next()
	if err != nil {
		return Event{}, err
	}
	if event.PromptTokens > 0 {
		x.usage.Prompt = event.PromptTokens
	}
	if event.Text != "" {
		now := x.h.cfg.Clock.Now()
		if x.texts == 0 {
			x.firstText = now.Sub(x.began)
			x.measure.FirstToken(x.firstText)
		} else {
			x.measure.NextToken(now.Sub(x.lastText))
		}
		x.texts++
		x.lastText = now
	}
	x.usage.Completion += uint32(event.Tokens)
	if event.Finish != "" {
		x.usage = event.Usage
	}
	return event, nil
}

// stream answers with an event for each piece of text.
func (x *exchange) stream(ctx context.Context, cancel context.CancelFunc, call *Call, answer *openai.Completion) error {
	x.events = newEvents(x.h.cfg.Clock, x.w, x.rc, cancel)
	stream, err := x.h.cfg.Generator.Generate(ctx, call)
	if err != nil {
		return err
	}
	defer stream.Close()
	var buf []byte
	begun := false
	for {
		event, err := x.next(stream)
		if err != nil && ctx.Err() != nil {
			return errGone
		}
		if err != nil {
			return err
		}
		if event.Text == "" && event.Finish == "" {
			continue
		}
		buf = buf[:0]
		if !begun {
			begun = true
			x.events.header(telemetry.HeaderWorker, x.worker)
			buf = answer.AppendRole(buf)
		}
		if event.Text != "" {
			buf = answer.AppendText(buf, event.Text)
		}
		if event.Finish != "" {
			x.status = http.StatusOK
			return x.events.send(answer.AppendEnd(buf, event.Finish, event.Usage))
		}
		if err := x.events.send(buf); err != nil {
			return err
		}
	}
}

// finish takes the last figures.
func (x *exchange) finish() {
	if !x.measured {
		return
	}
	if x.measure == nil {
		x.measure = x.h.cfg.Measure(UnknownModel)
	}
	x.measure.Finished(x.outcome, x.h.cfg.Clock.Since(x.began), x.usage)
}
