package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/ringfleet/ringfleet/api/telemetry"
	"github.com/ringfleet/ringfleet/router/openai"
)

// errChoice: a worker answers a choice that nobody asked for.
var errChoice = errors.New("the worker sent a choice that was not asked for")

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
	m, s, err := x.find(req.Model)
	if err != nil {
		return err
	}
	x.choices = int(req.Choices)
	call := &Call{
		ModelUID: m.UID, Adapter: m.adapter, RequestID: x.id, Key: affinityKey(m.adapter, x.r.Header.Get(telemetry.HeaderSession), req),
		FirstByte: s.settings.FirstByte, Idle: s.settings.Idle, Chat: req,
	}
	if err := x.classify(s, call); err != nil {
		return err
	}
	answer := &openai.Completion{
		ID: "chatcmpl-" + x.h.random(), Model: req.Model, Created: x.began.Unix(), IncludeUsage: req.IncludeUsage,
	}
	if req.Stream {
		return x.stream(call, answer)
	}
	return x.collect(x.r.Context(), call, answer)
}

// find returns what a request is for, and begins its figures.
func (x *exchange) find(name string) (served, *State, error) {
	m, s, err := x.h.find(name)
	if err != nil {
		return served{}, nil, err
	}
	x.model, x.adapter, x.measure = m.Name, m.adapter, x.h.cfg.Measure(m.Name)
	return m, s, nil
}

// collect answers with all choices at once. Until then the client has no byte, so that an answer may begin anew when its
// worker is lost in the middle and no other one can go on with it.
func (x *exchange) collect(ctx context.Context, call *Call, answer *openai.Completion) error {
	stream, err := x.h.cfg.Generator.Generate(ctx, call)
	if err != nil {
		return err
	}
	defer stream.Close()
	choices, err := x.gather(stream)
	for errors.Is(err, ErrAgain) {
		x.usage.Completion = 0
		choices, err = x.gather(stream)
	}
	if err != nil {
		return err
	}
	x.w.Header().Set(telemetry.HeaderWorker, x.worker)
	x.w.Header().Set(telemetry.HeaderReason, stream.Reason())
	stream.Close() // whoever has the answer may ask at once, and finds the place free
	return x.write(http.StatusOK, answer.AppendBody(make([]byte, 0, answer.BodySize(choices)), choices, x.usage))
}

// gather reads a stream to its end.
func (x *exchange) gather(stream Stream) (choices []openai.Choice, err error) {
	all := make([]gathered, x.choices)
	x.ended = 0
	held := 0
	for x.ended < len(all) {
		event, err := x.next(stream)
		if err != nil {
			return nil, err
		}
		if int(event.Delta.Choice) >= len(all) {
			return nil, &Fault{Kind: Lost, Worker: x.worker, Err: errChoice}
		}
		if held += size(&event.Delta); held > maxGathered {
			return nil, &Fault{Kind: Invalid, Worker: x.worker, Param: "stream", Message: fmt.Sprintf(
				"The answer has more than %d MiB. Ask for it with stream: true, or for fewer tokens, choices or top_logprobs.", maxGathered>>20)}
		}
		all[event.Delta.Choice].add(&event)
	}
	for i := range all {
		choices = append(choices, all[i].choice())
	}
	return choices, nil
}

// next waits for the next event and takes its figures.
func (x *exchange) next(s Stream) (Event, error) {
	event, err := s.Next()
	x.worker, x.resumes = s.Worker(), s.Resumes()
	if err != nil {
		return Event{}, err
	}
	if event.PromptTokens > 0 {
		x.usage.Prompt = event.PromptTokens
	}
	if event.shows() {
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
		x.settle(event.Usage)
	}
	return event, nil
}

// settle takes the usage of a choice that has ended. The prompt is the same for all of them, and the first one says how
// much of it was cached: the others begin with what it computed. Until all have ended, tokens are counted as they come.
func (x *exchange) settle(u openai.Usage) {
	if x.ended++; x.ended == 1 {
		x.final = openai.Usage{Prompt: u.Prompt, Cached: u.Cached}
	}
	x.final.Completion += u.Completion
	if x.ended == x.choices {
		x.usage = x.final
	}
}

// stream answers with an event for each piece of a choice.
func (x *exchange) stream(call *Call, answer *openai.Completion) error {
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	x.events = newEvents(x.h.cfg.Clock, x.w, x.rc, cancel, func() string { return x.h.cfg.Generator.Waits(call.ModelUID) })
	stream, err := x.h.cfg.Generator.Generate(ctx, call)
	if err != nil {
		return ended(ctx, err)
	}
	defer stream.Close()
	var buf []byte
	begun := make([]bool, x.choices)
	headed := false
	for {
		event, err := x.next(stream)
		if err != nil {
			return ended(ctx, err)
		}
		if !event.shows() && event.Finish == "" {
			continue
		}
		choice := event.Delta.Choice
		if int(choice) >= len(begun) {
			return &Fault{Kind: Lost, Worker: x.worker, Err: errChoice}
		}
		buf = buf[:0]
		if !headed {
			headed = true
			x.events.header(telemetry.HeaderWorker, x.worker)
			x.events.header(telemetry.HeaderReason, stream.Reason())
		}
		if !begun[choice] {
			begun[choice] = true
			buf = answer.AppendRole(buf, choice)
		}
		if event.shows() {
			buf = answer.AppendDelta(buf, &event.Delta)
		}
		if event.Finish != "" {
			buf = answer.AppendFinish(buf, choice, event.Finish)
			if x.ended == len(begun) {
				x.status = http.StatusOK
				return x.events.send(answer.AppendDone(buf, x.usage))
			}
		}
		if err := x.events.send(buf); err != nil {
			return err
		}
	}
}

// ended is err, or that the client has gone where ctx has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errGone
	}
	return err
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
