package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/router/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hangs bounds what would otherwise never end.
const hangs = 60 * time.Second

// script is a Generator whose calls each play the next list of steps.
type script struct {
	mu    sync.Mutex
	calls []*Call
	plays []play
	embed func(context.Context, *Call) (*Embeddings, error)
	waits atomic.Value // of string

	streams []*playing
}

type play struct {
	refuse error           // of Generate
	wait   <-chan struct{} // before it begins
	steps  []step          // of Next

	attempts int // 0 is 1
}

// step is one return of Next. With wait it first waits for that, or for the end of the call.
type step struct {
	event Event
	err   error
	wait  <-chan struct{}
	crash bool
}

func (s *script) Generate(ctx context.Context, c *Call) (Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plays[min(len(s.calls), len(s.plays)-1)]
	s.calls = append(s.calls, c)
	if p.refuse != nil {
		return nil, p.refuse
	}
	if p.wait != nil {
		<-p.wait
	}
	stream := &playing{ctx: ctx, steps: p.steps, attempts: max(p.attempts, 1)}
	s.streams = append(s.streams, stream)
	return stream, nil
}

func (s *script) Waits(string) string {
	w, _ := s.waits.Load().(string)
	return w
}

func (s *script) Embed(ctx context.Context, c *Call) (*Embeddings, error) {
	s.mu.Lock()
	s.calls = append(s.calls, c)
	embed := s.embed
	s.mu.Unlock()
	return embed(ctx, c)
}

// open is the number of streams that were not closed.
func (s *script) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range s.streams {
		if !p.closed.Load() {
			n++
		}
	}
	return n
}

func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

type playing struct {
	ctx      context.Context
	steps    []step
	attempts int
	closed   atomic.Bool
}

func (p *playing) Worker() string { return "worker-0" }
func (p *playing) Reason() string { return "policy=test" }
func (p *playing) Attempts() int  { return p.attempts }
func (p *playing) Resumes() int   { return 0 }
func (p *playing) Close()         { p.closed.Store(true) }

func (p *playing) Next() (Event, error) {
	s := p.steps[0]
	p.steps = p.steps[1:]
	if s.wait != nil {
		select {
		case <-s.wait:
		case <-p.ctx.Done():
			return Event{}, p.ctx.Err()
		}
	}
	if s.crash {
		_ = p.steps[len(p.steps)] // a mistake such as any code may hold
	}
	return s.event, s.err
}

func text(s string) step { return step{event: Event{Delta: openai.Delta{Text: s}, Tokens: 1}} }

func lost() step { return step{err: &Fault{Kind: Lost, Worker: "worker-0"}} }

var accepted = step{event: Event{PromptTokens: 9}}

var finished = step{event: Event{Finish: openai.FinishStop, Usage: openai.Usage{Prompt: 9, Completion: 2, Cached: 4}}}

// says is a play with a good end.
func says(words ...string) play {
	p := play{steps: []step{accepted}}
	for _, w := range words {
		p.steps = append(p.steps, text(w))
	}
	p.steps = append(p.steps, finished)
	return p
}

// figures records what Measure was told.
type figures struct {
	mu    sync.Mutex
	lines []string
	first int
	next  int
}

type figure struct {
	*figures
	model string
}

func (f figure) FirstToken(time.Duration) { f.mu.Lock(); f.first++; f.mu.Unlock() }
func (f figure) NextToken(time.Duration)  { f.mu.Lock(); f.next++; f.mu.Unlock() }
func (f figure) Finished(o Outcome, _ time.Duration, _ openai.Usage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, f.model+" "+string(o))
}

func (f *figures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.lines, ",")
}

// rig is a Handler with everything around it.
type rig struct {
	*Handler
	script  *script
	figures *figures
	logged  *safeBuffer
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newRig(c clock.WithDelayedExecution, plays ...play) *rig {
	r := &rig{script: &script{plays: plays}, figures: &figures{}, logged: &safeBuffer{}}
	r.Handler = New(Config{
		Clock: c, Rand: rand.Reader, Log: slog.New(slog.NewJSONHandler(r.logged, nil)), MaxBodyBytes: 64 << 10, MaxBodyBytesTotal: 1 << 20,
		Measure:   func(model string) Measure { return figure{r.figures, model} },
		Generator: r.script,
	})
	r.SetState(NewState([]Model{
		{UID: "u1", Name: "org/small-1.0", ServedNames: []string{"org/small-1.0", "small"}, Created: time.Unix(1_700_000_000, 0)},
		{UID: "u2", Name: "smollm2", ServedNames: []string{"smollm2"}},
		{UID: "u3", Name: "hf.co/a/b:Q4", ServedNames: []string{"hf.co/a/b:Q4"}},
	}, Settings{FirstByte: 2 * time.Minute, Idle: time.Minute}))
	return r
}

const ask = `{"model":"small","messages":[{"role":"user","content":"SECRET"}]}`

const askStream = `{"model":"small","stream":true,"messages":[{"role":"user","content":"SECRET"}]}`

// do serves one request without a network.
func (r *rig) do(method, path, body string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w
}

// errorObject reads the error of a response, and fails where a key is missing.
func errorObject(t *testing.T, body []byte) (message, kind, param, code string) {
	t.Helper()
	var object map[string]map[string]*string
	if err := json.Unmarshal(body, &object); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	e := object["error"]
	read := func(key string) string {
		v, there := e[key]
		if !there {
			t.Errorf("%s has no %s", body, key)
		}
		if v == nil {
			return ""
		}
		return *v
	}
	return read("message"), read("type"), read("param"), read("code")
}

// serve starts a real server, whose requests end with ctx.
func (r *rig) serve(ctx context.Context, t *testing.T) string {
	t.Helper()
	s := httptest.NewUnstartedServer(r)
	s.Config.BaseContext = baseContext(ctx)
	s.Start()
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s.URL
}

// post sends a chat request and returns its response.
func post(ctx context.Context, t *testing.T, url, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+pathChat, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(req)
}

// within waits for done, or fails the test when it hangs.
func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(hangs):
		t.Fatal("hangs: " + what)
	}
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
