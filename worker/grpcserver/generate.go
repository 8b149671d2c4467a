package grpcserver

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/metrics"
)

// The bounds of a request, beside those that the model sets.
const (
	maxStops       = 4
	maxStopBytes   = 256
	maxTemperature = 2
	maxIDBytes     = 256
)

// call is one Generate call and what is known of it. It becomes one log line and some metrics.
type call struct {
	begun      time.Time
	first      time.Time // when the first token was sent
	accepted   bool
	prompt     int
	completion int
	finish     engine.FinishReason
}

// Generate runs one request.
func (s *Server) Generate(q *workerv1.GenerateRequest, stream grpc.ServerStreamingServer[workerv1.GenerateResponse]) error {
	c := &call{begun: s.clock.Now()}
	err := s.generate(q, stream, c)
	if cause := stream.Context().Err(); err != nil && cause != nil {
		err = cause // whatever broke first, the caller is gone
	}
	s.record(q, c, err)
	if err != nil {
		return status(err)
	}
	return nil
}

func (s *Server) generate(q *workerv1.GenerateRequest, stream grpc.ServerStreamingServer[workerv1.GenerateResponse], c *call) error {
	if err := s.meant(q); err != nil {
		return err
	}
	e, err := s.ready()
	if err != nil {
		return err
	}
	request, err := request(q)
	if err != nil {
		return err
	}
	out, err := e.Generate(stream.Context(), request)
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // only cancels
	c.accepted, c.prompt = true, out.PromptTokens()
	s.recorder.Accepted(c.prompt)
	if err := stream.Send(accepted(s.worker.Identity().Instance, c.prompt)); err != nil {
		return err
	}
	return s.forward(out, stream, c)
}

// forward sends what the engine makes until it ends.
func (s *Server) forward(out engine.Stream, stream grpc.ServerStreamingServer[workerv1.GenerateResponse], c *call) error {
	for {
		chunk, err := out.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if c.first.IsZero() {
			c.first = s.clock.Now()
			s.recorder.FirstToken(c.first.Sub(c.begun))
		}
		if chunk.Text != "" || len(chunk.Tokens) > 0 {
			c.completion += len(chunk.Tokens)
			s.recorder.Generated(len(chunk.Tokens))
			if err := stream.Send(delta(chunk)); err != nil {
				return err
			}
		}
		if chunk.Finish != "" {
			// Tokens without text, such as the one that ends a turn, come in no delta.
			s.recorder.Generated(chunk.Usage.Completion - c.completion)
			c.completion, c.finish = chunk.Usage.Completion, chunk.Finish
			if err := stream.Send(finish(chunk)); err != nil {
				return err
			}
		}
	}
}

// record writes the one line and counts.
func (s *Server) record(q *workerv1.GenerateRequest, c *call, err error) {
	now := s.clock.Now()
	o := metrics.Outcome(c.finish)
	if err != nil {
		o = outcome(err)
	}
	sinceFirst := time.Duration(0)
	if !c.first.IsZero() {
		sinceFirst = now.Sub(c.first)
	}
	s.recorder.Ended(o, c.completion, sinceFirst, now.Sub(c.begun))
	keys := []any{
		"request", clip(q.GetRequestId()), "attempt", clip(q.GetAttemptId()), "instance", s.worker.Identity().Instance,
		"accepted", c.accepted, "outcome", o, "promptTokens", c.prompt, "completionTokens", c.completion,
		"milliseconds", now.Sub(c.begun).Milliseconds(),
	}
	if err != nil {
		keys = append(keys, "code", code(err).String(), "why", why(err))
	}
	s.log.Info("A generate call ended", keys...)
}

// why is an error as it may be logged: what an invalid request says of itself could quote it, so only its field is named.
func why(err error) string {
	if invalid := (*engine.InvalidError)(nil); errors.As(err, &invalid) {
		return "invalid " + invalid.Field
	}
	return err.Error()
}

// clip bounds what a caller sent, at the border of a character.
func clip(id string) string { return strings.ToValidUTF8(id[:min(len(id), maxIDBytes)], "") }

// meant checks that the call is for this process.
func (s *Server) meant(q *workerv1.GenerateRequest) error {
	id := s.worker.Identity()
	return errors.Join(
		expect("instance", q.GetExpectedInstanceId(), id.Instance),
		expect("revision", q.GetExpectedRevision(), id.Revision),
		expect("model UID", q.GetExpectedModelUid(), id.ModelUID),
	)
}

// request checks q and fills in its defaults.
func request(q *workerv1.GenerateRequest) (*engine.Request, error) {
	r := &engine.Request{ID: clip(q.GetRequestId()), Stop: q.GetStop()}
	if q.GetMaxTokens() > math.MaxInt32 {
		return nil, invalid("max_tokens", "%d is more than any context holds", q.GetMaxTokens())
	}
	r.MaxTokens = int(q.GetMaxTokens())
	if len(r.Stop) > maxStops {
		return nil, invalid("stop", "there are %d stop strings; at most %d are allowed", len(r.Stop), maxStops)
	}
	for i, stop := range r.Stop {
		if stop == "" || len(stop) > maxStopBytes || !utf8.ValidString(stop) {
			return nil, invalid("stop", "string %d has %d bytes; 1 to %d are allowed", i, len(stop), maxStopBytes)
		}
	}
	var err error
	if r.Sampling, err = sampling(q.GetSampling()); err != nil {
		return nil, err
	}
	r.Prompt, err = prompt(q)
	return r, err
}

func sampling(q *workerv1.Sampling) (engine.Sampling, error) {
	s := engine.Sampling{Temperature: 1, TopP: 1, Seed: rand.Uint64()}
	if q == nil {
		return s, nil
	}
	if q.Temperature != nil {
		s.Temperature = q.GetTemperature()
	}
	if q.TopP != nil {
		s.TopP = q.GetTopP()
	}
	if q.Seed != nil {
		s.Seed = uint64(q.GetSeed())
	}
	switch { // NaN fails every comparison
	case !(s.Temperature >= 0 && s.Temperature <= maxTemperature):
		return s, invalid("temperature", "%v is not between 0 and %d", s.Temperature, maxTemperature)
	case !(s.TopP > 0 && s.TopP <= 1):
		return s, invalid("top_p", "%v is not above 0 and at most 1", s.TopP)
	}
	return s, nil
}

func prompt(q *workerv1.GenerateRequest) (engine.Prompt, error) {
	switch p := q.GetPrompt().(type) {
	case *workerv1.GenerateRequest_Chat:
		return chatPrompt(p.Chat)
	case *workerv1.GenerateRequest_Text:
		if p.Text.GetText() == "" {
			return engine.Prompt{}, invalid("prompt", "the text is empty")
		}
		return engine.Prompt{Text: p.Text.GetText()}, nil
	case *workerv1.GenerateRequest_Tokens:
		tokens := make([]engine.Token, len(p.Tokens.GetTokens()))
		for i, t := range p.Tokens.GetTokens() {
			if t > math.MaxInt32 {
				return engine.Prompt{}, invalid("prompt", "token %d at index %d is outside every vocabulary", t, i)
			}
			tokens[i] = engine.Token(t)
		}
		if len(tokens) == 0 {
			return engine.Prompt{}, invalid("prompt", "there are no tokens")
		}
		return engine.Prompt{Tokens: tokens}, nil
	}
	return engine.Prompt{}, invalid("prompt", "there is none")
}

func chatPrompt(c *workerv1.ChatPrompt) (engine.Prompt, error) {
	if len(c.GetMessages()) == 0 {
		return engine.Prompt{}, invalid("messages", "there are none")
	}
	return engine.Prompt{Chat: &engine.Chat{Messages: c.GetMessages(), Tools: c.GetTools()}}, nil
}

func invalid(field, format string, args ...any) error {
	return &engine.InvalidError{Field: field, Message: fmt.Sprintf(format, args...)}
}

func accepted(instance string, prompt int) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Accepted{
		Accepted: &workerv1.Accepted{InstanceId: instance, PromptTokens: uint32(prompt)},
	}}
}

func delta(c engine.Chunk) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{
		Delta: &workerv1.Delta{Text: c.Text, Tokens: wire(c.Tokens)},
	}}
}

func finish(c engine.Chunk) *workerv1.GenerateResponse {
	reason := workerv1.FinishReason_FINISH_REASON_STOP
	if c.Finish == engine.FinishLength {
		reason = workerv1.FinishReason_FINISH_REASON_LENGTH
	}
	return &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Finish{Finish: &workerv1.Finish{
		Reason: reason,
		Usage: &workerv1.Usage{
			PromptTokens: uint32(c.Usage.Prompt), CompletionTokens: uint32(c.Usage.Completion), CachedTokens: uint32(c.Usage.Cached),
		},
	}}}
}
