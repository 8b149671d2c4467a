package grpcserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/ringfleet/ringfleet/api/identity"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/grpcserver/tlstest"
)

const secret = "the client's own words"

func chat(change func(*workerv1.GenerateRequest)) *workerv1.GenerateRequest {
	q := &workerv1.GenerateRequest{
		ExpectedInstanceId: "i1", ExpectedRevision: "r1", ExpectedModelUid: "u1", RequestId: "q1", AttemptId: "a1",
		Prompt:    &workerv1.GenerateRequest_Chat{Chat: &workerv1.ChatPrompt{Messages: []byte(`[{"content":"` + secret + `"}]`)}},
		MaxTokens: 50,
	}
	if change != nil {
		change(q)
	}
	return q
}

// answer is what came of a Generate call.
type answer struct {
	accepted *workerv1.Accepted
	text     string
	tokens   int
	finish   *workerv1.Finish
	err      error
}

func generate(ctx context.Context, c workerv1.WorkerClient, q *workerv1.GenerateRequest) answer {
	var a answer
	stream, err := c.Generate(ctx, q)
	for err == nil {
		var m *workerv1.GenerateResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		switch e := m.GetEvent().(type) {
		case *workerv1.GenerateResponse_Accepted:
			a.accepted = e.Accepted
		case *workerv1.GenerateResponse_Delta:
			a.text += e.Delta.GetText()
			a.tokens += len(e.Delta.GetTokens())
		case *workerv1.GenerateResponse_Finish:
			a.finish = e.Finish
		}
	}
	if !errors.Is(err, io.EOF) {
		a.err = err
	}
	return a
}

func TestARequestIsAcceptedStreamedAndFinished(t *testing.T) {
	r := newRig(t, sim.Options{Text: "Grüße, 你好"})
	a := generate(within(t), r.router(), chat(nil))
	if a.err != nil || a.text != "Grüße, 你好" {
		t.Fatalf("got %q, %v", a.text, a.err)
	}
	prompt := uint32(len(secret) + len(`[{"content":""}]`) + 1)
	if a.accepted.GetInstanceId() != "i1" || a.accepted.GetPromptTokens() != prompt {
		t.Errorf("accepted as %v, want %d tokens", a.accepted, prompt)
	}
	if a.finish.GetReason() != workerv1.FinishReason_FINISH_REASON_STOP || a.finish.GetUsage().GetPromptTokens() != prompt ||
		int(a.finish.GetUsage().GetCompletionTokens()) != len(a.text)+1 || a.tokens != len(a.text) {
		t.Errorf("finished as %v with %d tokens in deltas", a.finish, a.tokens)
	}
}

func TestTheRecordHasIdsAndNumbersAndNoText(t *testing.T) {
	r := newRig(t, sim.Options{Text: "a reply"})
	c := r.router()
	generate(within(t), c, chat(nil))
	generate(within(t), c, chat(func(q *workerv1.GenerateRequest) { q.ExpectedInstanceId = "i0" }))
	lines := r.log.all()
	if len(lines) != 2 {
		t.Fatalf("%d lines, want one for each call: %q", len(lines), lines)
	}
	for _, want := range []string{`"request"="q1"`, `"attempt"="a1"`, `"instance"="i1"`, `"accepted"=true`, `"outcome"="stop"`, `"promptTokens"=39`, `"completionTokens"=8`} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("line %s lacks %s", lines[0], want)
		}
	}
	if !strings.Contains(lines[1], `"accepted"=false`) || !strings.Contains(lines[1], `"outcome"="refused"`) || !strings.Contains(lines[1], `i0`) {
		t.Errorf("the refusal is %s", lines[1])
	}
	if all := strings.Join(lines, ""); strings.Contains(all, secret) || strings.Contains(all, "a reply") {
		t.Errorf("a text is in the log: %s", all)
	}
}

func TestEveryRefusalHasItsCodeAndDoesNoWork(t *testing.T) {
	none := func(*Status) {}
	for name, c := range map[string]struct {
		status  func(*Status)
		request func(*workerv1.GenerateRequest)
		code    codes.Code
		field   string
	}{
		"another instance":    {none, func(q *workerv1.GenerateRequest) { q.ExpectedInstanceId = "i2" }, codes.FailedPrecondition, ""},
		"another revision":    {none, func(q *workerv1.GenerateRequest) { q.ExpectedRevision = "r2" }, codes.FailedPrecondition, ""},
		"another model":       {none, func(q *workerv1.GenerateRequest) { q.ExpectedModelUid = "u2" }, codes.FailedPrecondition, ""},
		"no model is loaded":  {func(s *Status) { s.Engine = nil }, nil, codes.FailedPrecondition, ""},
		"the worker drains":   {func(s *Status) { s.Draining = true }, nil, codes.Unavailable, ""},
		"no prompt":           {none, func(q *workerv1.GenerateRequest) { q.Prompt = nil }, codes.InvalidArgument, "prompt"},
		"an empty chat":       {none, func(q *workerv1.GenerateRequest) { q.Prompt = &workerv1.GenerateRequest_Chat{} }, codes.InvalidArgument, "messages"},
		"an empty text":       {none, func(q *workerv1.GenerateRequest) { q.Prompt = &workerv1.GenerateRequest_Text{} }, codes.InvalidArgument, "prompt"},
		"too many max_tokens": {none, func(q *workerv1.GenerateRequest) { q.MaxTokens = 500 }, codes.InvalidArgument, "max_tokens"},
		"absurd max_tokens":   {none, func(q *workerv1.GenerateRequest) { q.MaxTokens = math.MaxUint32 }, codes.InvalidArgument, "max_tokens"},
		"five stop strings":   {none, func(q *workerv1.GenerateRequest) { q.Stop = []string{"a", "b", "c", "d", "e"} }, codes.InvalidArgument, "stop"},
		"an empty stop":       {none, func(q *workerv1.GenerateRequest) { q.Stop = []string{""} }, codes.InvalidArgument, "stop"},
		"a long stop":         {none, func(q *workerv1.GenerateRequest) { q.Stop = []string{strings.Repeat("x", 257)} }, codes.InvalidArgument, "stop"},
		"a temperature of NaN": {none, func(q *workerv1.GenerateRequest) {
			nan := math.NaN()
			q.Sampling = &workerv1.Sampling{Temperature: &nan}
		}, codes.InvalidArgument, "temperature"},
		"a top_p of 0": {none, func(q *workerv1.GenerateRequest) {
			zero := 0.0
			q.Sampling = &workerv1.Sampling{TopP: &zero}
		}, codes.InvalidArgument, "top_p"},
		"a token that no vocabulary has": {none, func(q *workerv1.GenerateRequest) {
			q.Prompt = &workerv1.GenerateRequest_Tokens{Tokens: &workerv1.TokenPrompt{Tokens: []uint32{math.MaxUint32}}}
		}, codes.InvalidArgument, "prompt"},
	} {
		t.Run(name, func(t *testing.T) {
			steps := 0
			r := newRig(t, sim.Options{Text: "x", Before: func(*engine.Batch) error { steps++; return nil }})
			r.worker.set(c.status)
			a := generate(within(t), r.router(), chat(c.request))
			if grpcstatus.Code(a.err) != c.code || a.accepted != nil {
				t.Fatalf("got %v, accepted %v; want %v", a.err, a.accepted, c.code)
			}
			field := ""
			for _, d := range grpcstatus.Convert(a.err).Details() {
				if bad, ok := d.(*errdetails.BadRequest); ok {
					field = bad.GetFieldViolations()[0].GetField()
				}
			}
			if field != c.field {
				t.Errorf("names field %q, want %q", field, c.field)
			}
			if err := r.engine.Close(); err != nil || steps != 0 {
				t.Errorf("%d steps ran, %v", steps, err)
			}
		})
	}
}

func TestAFullQueueIsResourceExhausted(t *testing.T) {
	hold := make(chan struct{})
	r := newRig(t, sim.Options{Text: "x", Before: func(*engine.Batch) error { <-hold; return nil }})
	c := r.router()
	ctx, cancel := context.WithCancel(within(t))
	defer close(hold)
	defer cancel()
	for i := range 4 {
		stream, err := c.Generate(ctx, chat(nil))
		if err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || m.GetAccepted() == nil {
			t.Fatalf("request %d: %v, %v", i, m, err)
		}
		waitFor(t, "the first runs", func() bool { return r.engine.Stats().Running > 0 })
	}
	var full error
	for range 2 {
		if a := generate(ctx, c, chat(nil)); a.err != nil {
			full = a.err
			break
		}
	}
	if grpcstatus.Code(full) != codes.ResourceExhausted {
		t.Fatalf("got %v", full)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(hang)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("hangs: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestEndingTheCallCancelsTheRequest(t *testing.T) {
	var steps atomic.Int32
	hold := make(chan struct{})
	r := newRig(t, sim.Options{Text: strings.Repeat("x", 200), Before: func(*engine.Batch) error {
		if steps.Add(1) > 3 { // two are the prompt's
			<-hold
		}
		return nil
	}})
	defer close(hold)
	ctx, cancel := context.WithCancel(within(t))
	stream, err := r.router().Generate(ctx, chat(func(q *workerv1.GenerateRequest) { q.MaxTokens = 200 }))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	waitFor(t, "the request leaves", func() bool { return r.engine.Stats().Running == 0 })
	waitFor(t, "the record", func() bool { return len(r.log.all()) == 1 })
	if line := r.log.all()[0]; !strings.Contains(line, `"outcome"="cancelled"`) {
		t.Errorf("recorded as %s", line)
	}
}

// told is an engine, and a stream, that says what a test gives it.
type told struct {
	engine.Engine
	chunks []engine.Chunk
}

func (e *told) Generate(context.Context, *engine.Request) (engine.Stream, error) { return e, nil }

func (e *told) PromptTokens() int { return 0 }

func (e *told) Next() (engine.Chunk, error) {
	if len(e.chunks) == 0 {
		return engine.Chunk{}, io.EOF
	}
	c := e.chunks[0]
	e.chunks = e.chunks[1:]
	return c, nil
}

func (e *told) Close() error { return nil }

func TestAPromptWhoseLengthIsKnownAtTheEndOnlyIsCountedOnce(t *testing.T) {
	r := newRig(t, sim.Options{})
	usage := engine.Usage{Prompt: 7, Completion: 1}
	r.worker.set(func(s *Status) {
		s.Engine = &told{Engine: r.engine, chunks: []engine.Chunk{
			{Text: "x"}, {Finish: engine.FinishStop, Usage: usage}, {Choice: 1, Finish: engine.FinishStop, Usage: usage},
		}}
	})
	if a := generate(within(t), r.router(), chat(nil)); a.err != nil || a.finish.GetUsage().GetPromptTokens() != 7 {
		t.Fatalf("got %+v", a)
	}
	if got := value(t, r, "vllm:prompt_tokens_total"); got != 7 {
		t.Errorf("%v prompt tokens are counted", got)
	}
	if line := r.log.all()[0]; !strings.Contains(line, `"promptTokens"=7`) {
		t.Errorf("recorded as %s", line)
	}
}

func TestNumbersThatAnEngineCanNotMeanAreBounded(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.worker.set(func(s *Status) {
		s.Engine = &told{Engine: r.engine, chunks: []engine.Chunk{
			{Text: "x", Tokens: []engine.Token{1, 2}},
			{Finish: engine.FinishStop, Usage: engine.Usage{Prompt: -5, Completion: -1, Cached: math.MaxInt}},
		}}
	})
	a := generate(within(t), r.router(), chat(nil))
	if u := a.finish.GetUsage(); a.err != nil || u.GetPromptTokens() != 0 || u.GetCompletionTokens() != 0 || u.GetCachedTokens() != math.MaxInt32 {
		t.Fatalf("got %v, %v", u, a.err)
	}
	if got := value(t, r, "vllm:generation_tokens_total"); got != 2 {
		t.Errorf("%v tokens are counted", got)
	}
}

// value is a counter's.
func value(t *testing.T, r *rig, name string) float64 {
	t.Helper()
	families, err := r.set.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

func TestABrokenEngineIsInternal(t *testing.T) {
	r := newRig(t, sim.Options{Text: "x", Before: func(*engine.Batch) error { return fmt.Errorf("gone: %w", engine.ErrFatal) }})
	if a := generate(within(t), r.router(), chat(nil)); grpcstatus.Code(a.err) != codes.Internal {
		t.Fatalf("got %v", a.err)
	}
}

func TestOnlyRoutersAndTheManagerOfTheNamespaceMayCall(t *testing.T) {
	r := newRig(t, sim.Options{Text: "x"})
	stranger := tlstest.New(t)
	for name, c := range map[string]struct {
		ca   *tlstest.Authority
		id   identity.ID
		fine bool
	}{
		"a router of the namespace": {r.ca, identity.ID{Namespace: "team", Role: identity.Router}, true},
		"the manager":               {r.ca, identity.ID{Namespace: "team", Role: identity.Manager}, true},
		"another worker":            {r.ca, identity.ID{Namespace: "team", Role: identity.Worker}, false},
		"a router of another one":   {r.ca, identity.ID{Namespace: "other", Role: identity.Router}, false},
		"a router of another CA":    {stranger, identity.ID{Namespace: "team", Role: identity.Router}, false},
	} {
		t.Run(name, func(t *testing.T) {
			as := *r
			as.t, as.ca = t, c.ca
			_, err := as.dial(c.id).Tokenize(within(t), &workerv1.TokenizeRequest{
				Prompt: &workerv1.TokenizeRequest_Text{Text: &workerv1.TextPrompt{Text: "hi"}},
			})
			if (err == nil) != c.fine {
				t.Fatalf("got %v", err)
			}
			if err != nil && grpcstatus.Code(err) != codes.Unavailable {
				t.Fatalf("refused with %v, want a failed handshake", err)
			}
		})
	}
}

func TestTokenizeReturnsWhatGenerateWouldRun(t *testing.T) {
	r := newRig(t, sim.Options{Text: "x"})
	got, err := r.router().Tokenize(within(t), &workerv1.TokenizeRequest{
		Prompt: &workerv1.TokenizeRequest_Chat{Chat: &workerv1.ChatPrompt{Messages: []byte("[hi]")}},
	})
	if want := fmt.Sprint([]int{'[', 'h', 'i', ']', int(sim.Answer)}); err != nil || fmt.Sprint(got.GetTokens()) != want {
		t.Fatalf("got %v, %v, want %s", got, err, want)
	}
	_, err = r.router().Tokenize(within(t), &workerv1.TokenizeRequest{})
	if grpcstatus.Code(err) != codes.InvalidArgument {
		t.Fatalf("nothing to tokenise: %v", err)
	}
}

func TestWatchReportsAtOnceEachIntervalAndOnChange(t *testing.T) {
	r := newRig(t, sim.Options{Text: "x"})
	r.worker.set(func(s *Status) { s.Stage, s.Engine = workerv1.Stage_STAGE_LOADING, nil })
	stream, err := r.router().Watch(within(t), &workerv1.WatchRequest{IntervalMilliseconds: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	recv := func() *workerv1.Report {
		t.Helper()
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := recv() // at once: the interval is a minute
	if first.GetStage() != workerv1.Stage_STAGE_LOADING || first.GetModelLoaded() || first.GetInstanceId() != "i1" ||
		first.GetModel() != "org/m" || first.GetModelUid() != "u1" || first.GetRevision() != "r1" || first.GetPodName() != "p" || first.GetPodUid() != "pu" {
		t.Fatalf("first report is %v", first)
	}
	r.worker.set(func(s *Status) { s.Stage, s.Engine = workerv1.Stage_STAGE_LOADED, r.engine })
	loaded := recv()
	if !loaded.GetModelLoaded() || loaded.GetLoad().GetKvBlocksTotal() != 32 || loaded.GetLoad().GetMaxSequences() != 2 || loaded.GetSequence() <= first.GetSequence() {
		t.Fatalf("after the load: %v", loaded)
	}
	r.worker.set(func(s *Status) {
		s.Stage, s.Reason, s.Message, s.Engine = workerv1.Stage_STAGE_FAILED, "WeightsNotFound", "why", nil
	})
	if m := recv(); m.GetModelLoaded() || m.GetReason() != "WeightsNotFound" || m.GetMessage() != "why" {
		t.Fatalf("after the failure: %v", m)
	}
	fast, err := r.router().Watch(within(t), &workerv1.WatchRequest{IntervalMilliseconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // nothing changes, so the ticker sends them
		if _, err := fast.Recv(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIntervalsAreClamped(t *testing.T) {
	for in, want := range map[uint32]time.Duration{0: time.Second, 1: 100 * time.Millisecond, 500: 500 * time.Millisecond, math.MaxUint32: time.Minute} {
		if got := interval(in); got != want {
			t.Errorf("%d ms becomes %s, want %s", in, got, want)
		}
	}
}

func TestDrainReportsAndRefuses(t *testing.T) {
	r := newRig(t, sim.Options{Text: "x"})
	c := r.router()
	if _, err := c.Drain(within(t), &workerv1.DrainRequest{ExpectedInstanceId: "i2"}); grpcstatus.Code(err) != codes.FailedPrecondition {
		t.Fatalf("drain of another instance: %v", err)
	}
	watch, err := c.Watch(within(t), &workerv1.WatchRequest{IntervalMilliseconds: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Drain(within(t), &workerv1.DrainRequest{ExpectedInstanceId: "i1"}); err != nil || got.GetInFlight() != 0 {
		t.Fatalf("drain: %v, %v", got, err)
	}
	m, err := watch.Recv()
	if err != nil || !m.GetDraining() || m.GetStage() != workerv1.Stage_STAGE_DRAINING || !m.GetModelLoaded() {
		t.Fatalf("report: %v, %v", m, err)
	}
	if a := generate(within(t), c, chat(nil)); grpcstatus.Code(a.err) != codes.Unavailable {
		t.Fatalf("generate: %v", a.err)
	}
}
