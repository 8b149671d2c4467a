package grpcserver

import (
	"errors"
	"io"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/ringfleet/ringfleet/api/worker/many"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/metrics"
)

// maxIDBytes is how much of a request id is kept.
const maxIDBytes = 256

// call is one Generate call and what is known of it. It becomes one log line and some metrics.
type call struct {
	begun      time.Time
	first      time.Time // when the first token was sent
	accepted   bool
	prompt     int
	resumed    int // tokens of the output that were made elsewhere
	completion int // tokens that were made here
	finish     engine.FinishReason
}

// GenerateMany runs the requests of a stream, one after the other.
func (s *Server) GenerateMany(stream many.Stream) error {
	return many.Serve(stream, s.stop, s.Generate)
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
	c.resumed = request.Made()
	out, err := e.Generate(stream.Context(), request)
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // only cancels
	c.accepted, c.prompt = true, max(out.PromptTokens(), 0)
	s.recorder.Accepted(c.prompt)
	instance, number := s.worker.Identity().Instance, uint64(0)
	if n, ok := out.(engine.Numbered); ok {
		number = n.PromptNumber()
	} else {
		s.prefixes.accept(instance, q)
	}
	if err := stream.Send(accepted(instance, q.GetAttemptId(), c.prompt, number)); err != nil {
		return err
	}
	return s.forward(out, stream, c)
}

// forward sends what the engine makes until it ends.
func (s *Server) forward(out engine.Stream, stream grpc.ServerStreamingServer[workerv1.GenerateResponse], c *call) error {
	sent := map[int]int{0: c.resumed} // tokens of each choice that came in deltas, there or here
	last := map[int]time.Time{}       // when the last of them came
	for {
		chunk, err := out.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return late(err)
		}
		now := s.clock.Now()
		if c.first.IsZero() {
			c.first = now
			s.recorder.FirstToken(c.first.Sub(c.begun))
		}
		if !empty(chunk) {
			c.completion += len(chunk.Tokens)
			if before, ok := last[chunk.Choice]; ok && len(chunk.Tokens) > 0 {
				s.recorder.NextTokens(len(chunk.Tokens), now.Sub(before))
			}
			sent[chunk.Choice] += len(chunk.Tokens)
			last[chunk.Choice] = now
			s.recorder.Generated(len(chunk.Tokens))
			if err := stream.Send(delta(chunk)); err != nil {
				return err
			}
		}
		if chunk.Finish != "" {
			// Tokens without text, such as the one that ends a turn, come in no delta.
			rest := max(chunk.Usage.Completion-sent[chunk.Choice], 0)
			s.recorder.Generated(rest)
			if c.prompt == 0 { // the engine tells it only at the end
				c.prompt = int(tokens(chunk.Usage.Prompt))
				s.recorder.Accepted(c.prompt)
			}
			c.completion, c.finish = c.completion+rest, chunk.Finish
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
		o = outcome(err, c.accepted)
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
	if c.resumed > 0 {
		keys = append(keys, "resumedTokens", c.resumed)
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

// addressed is a call that says whom it is for.
type addressed interface {
	GetExpectedInstanceId() string
	GetExpectedRevision() string
	GetExpectedModelUid() string
}

// meant checks that the call is for this process.
func (s *Server) meant(q addressed) error {
	id := s.worker.Identity()
	return errors.Join(
		expect("instance", q.GetExpectedInstanceId(), id.Instance),
		expect("revision", q.GetExpectedRevision(), id.Revision),
		expect("model UID", q.GetExpectedModelUid(), id.ModelUID),
	)
}

func accepted(instance, attempt string, prompt int, number uint64) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Accepted{
		Accepted: &workerv1.Accepted{InstanceId: instance, PromptTokens: tokens(prompt), PrefixNumber: number, AttemptId: attempt},
	}}
}

// empty reports whether there is nothing in c but, perhaps, an end.
func empty(c engine.Chunk) bool {
	return c.Text == "" && c.Reasoning == "" && len(c.ToolCalls) == 0 && len(c.Tokens) == 0
}

func delta(c engine.Chunk) *workerv1.GenerateResponse {
	d := &workerv1.Delta{
		Text: c.Text, Tokens: wire(c.Tokens), Choice: uint32(c.Choice), Reasoning: c.Reasoning, Logprobs: logprobs(c.Logprobs),
	}
	for _, t := range c.ToolCalls {
		d.ToolCalls = append(d.ToolCalls, &workerv1.ToolCall{Index: uint32(t.Index), Id: t.ID, Name: t.Name, Arguments: t.Arguments})
	}
	return &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: d}}
}

func logprobs(list []engine.Logprob) []*workerv1.Logprob {
	var out []*workerv1.Logprob
	for _, l := range list {
		out = append(out, &workerv1.Logprob{Token: uint32(l.Token), Bytes: l.Bytes, Logprob: l.Logprob, Top: logprobs(l.Top)})
	}
	return out
}

var reasons = map[engine.FinishReason]workerv1.FinishReason{
	engine.FinishStop:      workerv1.FinishReason_FINISH_REASON_STOP,
	engine.FinishLength:    workerv1.FinishReason_FINISH_REASON_LENGTH,
	engine.FinishToolCalls: workerv1.FinishReason_FINISH_REASON_TOOL_CALLS,
}

func finish(c engine.Chunk) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Finish{Finish: &workerv1.Finish{
		Reason: reasons[c.Finish], Choice: uint32(c.Choice),
		Usage: &workerv1.Usage{
			PromptTokens: tokens(c.Usage.Prompt), CompletionTokens: tokens(c.Usage.Completion), CachedTokens: tokens(c.Usage.Cached),
		},
	}}}
}

// tokens is a count as the contract has it. Some are what a server beside this process claims.
func tokens(n int) uint32 { return uint32(min(max(n, 0), math.MaxInt32)) }
