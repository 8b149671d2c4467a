package grpcserver

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/ringfleet/ringfleet/api/identity"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
)

// collect returns the deltas of a call and its end.
func collect(t *testing.T, c workerv1.WorkerClient, q *workerv1.GenerateRequest) (prompt uint32, deltas []*workerv1.Delta, last *workerv1.Finish) {
	t.Helper()
	stream, err := c.Generate(within(t), q)
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return prompt, deltas, last
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := m.GetEvent().(type) {
		case *workerv1.GenerateResponse_Accepted:
			prompt = e.Accepted.GetPromptTokens()
		case *workerv1.GenerateResponse_Delta:
			deltas = append(deltas, e.Delta)
		case *workerv1.GenerateResponse_Finish:
			last = e.Finish
		}
	}
}

func TestAnOutputThatIsCutAnywhereGoesOnOnAnotherWorkerToTheSameEnd(t *testing.T) {
	device := sim.Options{Text: "Gr\u00fc\u00dfe STO, \u4f60\u597d, STOP and more"}
	first, second := newRig(t, device), newRig(t, device)
	q := func(change func(*workerv1.GenerateRequest)) *workerv1.GenerateRequest {
		return chat(func(q *workerv1.GenerateRequest) {
			q.Stop = []string{"STOP"}
			change(q)
		})
	}
	prompt, whole, end := collect(t, first.router(), q(func(*workerv1.GenerateRequest) {}))
	all := ""
	for _, d := range whole {
		all += d.GetText()
	}
	if all != "Gr\u00fc\u00dfe STO, \u4f60\u597d, " {
		t.Fatalf("the whole is %q", all)
	}
	other := second.router()
	made := 0
	for cut := range len(whole) + 1 {
		sent, tokens := "", []uint32(nil)
		for _, d := range whole[:cut] {
			sent += d.GetText()
			tokens = append(tokens, d.GetTokens()...)
		}
		p, deltas, last := collect(t, other, q(func(q *workerv1.GenerateRequest) { q.ResumeTokens, q.ResumeText = tokens, sent }))
		for _, d := range deltas {
			sent += d.GetText()
			tokens = append(tokens, d.GetTokens()...)
		}
		if sent != all || p != prompt || last.GetReason() != end.GetReason() {
			t.Errorf("cut after %d deltas: %q behind a prompt of %d, ended by %s", cut, sent, p, last.GetReason())
		}
		if u, want := last.GetUsage(), end.GetUsage(); u.GetPromptTokens() != want.GetPromptTokens() || u.GetCompletionTokens() != want.GetCompletionTokens() {
			t.Errorf("cut after %d deltas: the usage is %v, want %v", cut, u, want)
		}
		made += int(end.GetUsage().GetCompletionTokens())
		for _, d := range whole[:cut] {
			made -= len(d.GetTokens())
		}
	}
	if got := value(t, second, "vllm:generation_tokens_total"); int(got) != made {
		t.Errorf("the second worker counts %v tokens, and has made %d", got, made)
	}
	lines := second.log.all()
	if n := len(whole); strings.Contains(lines[0], "resumedTokens") || !strings.Contains(lines[n], fmt.Sprintf(`"resumedTokens"=%d`, len(all))) {
		t.Errorf("the first and the last call are recorded as\n%s\n%s", lines[0], lines[n])
	}
}

func TestWhatCanNotGoOnIsRefusedByItsField(t *testing.T) {
	r := newRig(t, sim.Options{Text: "abc"})
	c := r.router()
	for name, q := range map[string]struct {
		change func(*workerv1.GenerateRequest)
		code   codes.Code
		field  string
	}{
		"two choices": {func(q *workerv1.GenerateRequest) { q.Choices = 2 }, codes.InvalidArgument, "resume_tokens"},
		"a format": {func(q *workerv1.GenerateRequest) {
			q.ResponseFormat = workerv1.ResponseFormat_RESPONSE_FORMAT_JSON_SCHEMA
		}, codes.InvalidArgument, "resume_tokens"},
		"a token beyond the vocabulary": {func(q *workerv1.GenerateRequest) { q.ResumeTokens = []uint32{'a', 258} }, codes.InvalidArgument, "resume_tokens"},
		"another text than the tokens'": {func(q *workerv1.GenerateRequest) { q.ResumeText = "b" }, codes.InvalidArgument, "resume_text"},
		"a text without tokens":         {func(q *workerv1.GenerateRequest) { q.ResumeTokens, q.ResumeText = nil, "a" }, codes.Unimplemented, ""},
	} {
		a := generate(within(t), c, chat(func(r *workerv1.GenerateRequest) {
			r.ResumeTokens = []uint32{'a'}
			q.change(r)
		}))
		field := ""
		for _, d := range grpcstatus.Convert(a.err).Details() {
			if bad, ok := d.(*errdetails.BadRequest); ok {
				field = bad.GetFieldViolations()[0].GetField()
			}
		}
		if grpcstatus.Code(a.err) != q.code || field != q.field || a.accepted != nil {
			t.Errorf("%s: got %v, which names %q", name, a.err, field)
		}
	}
	for _, line := range r.log.all() {
		if strings.Contains(line, "the tokens say") {
			t.Errorf("the log quotes what the request is told: %s", line)
		}
	}
}

func TestAReportSaysWhatARouterPlacesBy(t *testing.T) {
	r := newRig(t, sim.Options{Text: "abc", Adapters: true})
	for _, name := range []string{"tall", "short"} {
		if err := r.engine.LoadAdapter(within(t), engine.Adapter{Name: name, Path: name}); err != nil {
			t.Fatal(err)
		}
	}
	generate(within(t), r.router(), chat(nil))
	watch, err := r.dial(identity.ID{Namespace: "team", Role: identity.Manager}).Watch(within(t), &workerv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := watch.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if !m.GetResumes() || m.GetRingWeightPercent() != 150 || fmt.Sprint(m.GetAdapters()) != "[short tall]" {
		t.Errorf("resumes %t, weight %d, adapters %v", m.GetResumes(), m.GetRingWeightPercent(), m.GetAdapters())
	}
	l := m.GetLoad()
	if l.BacklogTokens == nil || l.GetBacklogTokens() != 0 || int(l.GetProgressTokens()) != len(secret)+len(`[{"content":""}]`)+1+len("abc") {
		t.Errorf("the load is %v", l)
	}
}
