package grpcserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
)

// failing is an engine that takes no call where refusal is set, and whose streams end with the other error after one chunk.
type failing struct {
	engine.Engine
	refusal, end error
}

func (f *failing) Generate(context.Context, *engine.Request) (engine.Stream, error) {
	if f.refusal != nil {
		return nil, f.refusal
	}
	return &breaking{err: f.end}, nil
}

func (f *failing) Tokenize(context.Context, engine.Prompt) ([]engine.Token, error) {
	return nil, f.refusal
}

func (f *failing) Embed(context.Context, *engine.EmbedRequest) (*engine.Embeddings, error) {
	return nil, f.refusal
}

type breaking struct {
	told bool
	err  error
}

func (b *breaking) PromptTokens() int { return 3 }

func (b *breaking) Next() (engine.Chunk, error) {
	if b.told {
		return engine.Chunk{}, b.err
	}
	b.told = true
	return engine.Chunk{Text: "x"}, nil
}

func (b *breaking) Close() error { return nil }

func TestWhatEndsARequestHasTheCodeThatRoutersActOnAndTheOutcomeOfWhoseFaultItIs(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("by a driver: %w", err) }
	for name, c := range map[string]struct {
		refusal, end error
		code         codes.Code
		outcome      string
		reason       string
	}{
		"a model that is lost between the check and the call": {refusal: wrapped(engine.ErrNotLoaded), code: codes.FailedPrecondition, outcome: "refused"},
		"an engine that is closed before the call":            {refusal: wrapped(engine.ErrClosed), code: codes.Unavailable, outcome: "refused"},
		"an engine that drains":                               {refusal: wrapped(engine.ErrDraining), code: codes.Unavailable, outcome: "refused"},
		"an output that it can't go on with":                  {refusal: wrapped(engine.ErrNoResume), code: codes.Unimplemented, outcome: "refused"},
		"a full queue":                                        {refusal: wrapped(engine.ErrBusy), code: codes.ResourceExhausted, outcome: "refused"},
		"a reader that is too slow":                           {end: wrapped(engine.ErrSlowReader), code: codes.ResourceExhausted, outcome: "cancelled"},
		"an engine that is closed under the request":          {end: wrapped(engine.ErrClosed), code: codes.Unavailable, outcome: "failed"},
		"a server that is busy in the middle of an answer":    {end: wrapped(engine.ErrBusy), code: codes.Internal, outcome: "failed"},
		"a model that is lost in the middle of an answer":     {end: wrapped(engine.ErrNotLoaded), code: codes.Internal, outcome: "failed"},
		"a server that is lost before it answers":             {refusal: wrapped(engine.ErrLost), code: codes.Unavailable, outcome: "failed", reason: workerv1.ReasonEngineLost},
		"a server that is lost in the middle of an answer":    {end: wrapped(engine.ErrLost), code: codes.Unavailable, outcome: "failed", reason: workerv1.ReasonEngineLost},
		"an engine that breaks":                               {end: errors.New("broken"), code: codes.Internal, outcome: "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, sim.Options{})
			r.worker.set(func(s *Status) { s.Engine = &failing{Engine: r.engine, refusal: c.refusal, end: c.end} })
			a := generate(within(t), r.router(), chat(nil))
			if grpcstatus.Code(a.err) != c.code || (a.accepted != nil) != (c.end != nil) {
				t.Errorf("it ended with %v, accepted %v; want %v", a.err, a.accepted, c.code)
			}
			if got := reason(a.err); got != c.reason {
				t.Errorf("its reason is %q, want %q", got, c.reason)
			}
			if line := r.log.all()[0]; !strings.Contains(line, `"outcome"="`+c.outcome+`"`) {
				t.Errorf("recorded as %s, want %s", line, c.outcome)
			}
			if got := ended(t, r)[c.outcome]; got != 1 {
				t.Errorf("the metrics count %v", ended(t, r))
			}
		})
	}
}

// reason is that of an error's details.
func reason(err error) string {
	for _, d := range grpcstatus.Convert(err).Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			return i.GetReason()
		}
	}
	return ""
}

// ended is how many requests ended by each outcome.
func ended(t *testing.T, r *rig) map[string]float64 {
	t.Helper()
	families, err := r.set.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "ringfleet_worker_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" && m.GetCounter().GetValue() > 0 {
					out[l.GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
	}
	return out
}

func TestTokenizeAndEmbedOfALostModelDoNoWork(t *testing.T) {
	r := newRig(t, sim.Options{Embeddings: true})
	r.worker.set(func(s *Status) { s.Engine = &failing{Engine: r.engine, refusal: engine.ErrNotLoaded} })
	text := &workerv1.TextPrompt{Text: "hi"}
	_, err := r.router().Tokenize(within(t), &workerv1.TokenizeRequest{Prompt: &workerv1.TokenizeRequest_Text{Text: text}})
	if grpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("tokenize: %v", err)
	}
	_, err = r.router().Embed(within(t), &workerv1.EmbedRequest{Inputs: []*workerv1.EmbedInput{{Input: &workerv1.EmbedInput_Text{Text: text}}}})
	if grpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("embed: %v", err)
	}
}
