package engine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hangs is a bound that means that something hangs.
const hangs = 60 * time.Second

// stage is an engine and what it has done.
type stage struct {
	*Engine
	url     string
	records *safe
	mu      sync.Mutex // guards the rest
	killed  []int
	died    chan struct{}
}

// safe is a buffer for two goroutines.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) attempts(t *testing.T) []history.Attempt {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := attempts(bytes.NewReader(s.b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func newStage(t *testing.T, p Plan) *stage {
	t.Helper()
	s := &stage{records: &safe{}, died: make(chan struct{})}
	s.Engine = New("pod", p, s.records, sync.OnceFunc(func() { close(s.died) }), func(pid int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.killed = append(s.killed, pid)
	})
	server := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		server.Close()
	})
	s.url = server.URL
	return s
}

// ask asks for a chat and returns the response, whose body the caller reads.
func (s *stage) ask(t *testing.T, ctx context.Context, body string) *http.Response {
	t.Helper()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Body.Close() })
	return r
}

func chat(id string, words int) string {
	return fmt.Sprintf(`{"stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"%s%s and more"}]}`, words, Mark, id)
}

func read(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// contents joins the texts of a stream.
func contents(stream string) string {
	var b strings.Builder
	for _, part := range strings.Split(stream, `"content":"`)[1:] {
		text, _, _ := strings.Cut(part, `"`)
		b.WriteString(text)
	}
	return b.String()
}

func TestAnAnswerIsTheWordsThatWereAskedFor(t *testing.T) {
	s := newStage(t, Plan{})
	stream := read(t, s.ask(t, t.Context(), chat("r1", 3)))
	if got := contents(stream); got != "w0 w1 w2" {
		t.Errorf("got %q", got)
	}
	if !strings.HasSuffix(stream, "data: [DONE]\n\n") || !strings.Contains(stream, `"finish_reason":"length"`) || !strings.Contains(stream, `"completion_tokens":3`) {
		t.Errorf("it does not end as an answer does: %s", stream)
	}
	all := s.records.attempts(t)
	if len(all) != 1 || all[0].ID != "r1" || all[0].Sent != 3 || all[0].End.IsZero() || all[0].Aborted {
		t.Errorf("recorded %+v", all)
	}
}

func TestAnAnswerThatWasBegunElsewhereGoesOnWithItsNextWord(t *testing.T) {
	s := newStage(t, Plan{})
	stream := read(t, s.ask(t, t.Context(), `{"stream":true,"max_tokens":2,"continue_final_message":true,"messages":[
		{"role":"user","content":"request=r1 x"},{"role":"assistant","content":"w0 w1 w2"}]}`))
	if got := contents(stream); got != " w3 w4" {
		t.Errorf("got %q", got)
	}
	if all := s.records.attempts(t); len(all) != 1 || all[0].From != 3 || all[0].Sent != 2 {
		t.Errorf("recorded %+v", all)
	}
}

func TestAFrozenEngineGoesOnWithAnotherPlan(t *testing.T) {
	s := newStage(t, Plan{Frozen: true})
	got := make(chan string, 1)
	go func() { got <- read(t, s.ask(t, t.Context(), chat("r1", 2))) }()
	waitFor(t, func() bool { return slices.Equal(s.State().Running, []string{"r1"}) })
	select {
	case <-got:
		t.Fatal("it has answered")
	default:
	}
	s.Set(Plan{})
	if text := contents(<-got); text != "w0 w1" {
		t.Errorf("got %q", text)
	}
}

func TestACallerThatGoesIsAnAbortedAttempt(t *testing.T) {
	s := newStage(t, Plan{First: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		q, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions", strings.NewReader(chat("r1", 2)))
		if r, err := http.DefaultClient.Do(q); err == nil {
			_ = r.Body.Close()
		}
	}()
	waitFor(t, func() bool { return len(s.State().Running) == 1 })
	if all := s.records.attempts(t); len(all) != 1 || !all[0].End.IsZero() {
		t.Errorf("recorded %+v while it is at it", all)
	}
	cancel()
	<-over
	waitFor(t, func() bool { return len(s.State().Running) == 0 })
	if all := s.records.attempts(t); len(all) != 1 || !all[0].Aborted || all[0].Sent != 0 {
		t.Errorf("recorded %+v", all)
	}
}

func TestAnEngineMisbehavesAsItIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		plan   Plan
		status int
		text   string
		dies   bool
		killed []int
	}{
		"it refuses":                    {plan: Plan{Status: 500}, status: 500},
		"it has another word":           {plan: Plan{Tag: "x"}, status: 200, text: "x0 x1 x2"},
		"it dies within an answer":      {plan: Plan{DieAfter: 2}, status: 200, text: "w0 w1", dies: true},
		"it dies of a prompt":           {plan: Plan{Poison: "and more", Victims: []int{11, 12}}, status: 200, dies: true, killed: []int{11, 12}},
		"another prompt is no poison":   {plan: Plan{Poison: "arsenic", Victims: []int{11}}, status: 200, text: "w0 w1 w2"},
		"it sends what it is told to":   {plan: Plan{Raw: [][]byte{[]byte(`data: {"content":"a`), []byte(`b"}`)}}, status: 200, text: "ab"},
		"it is slow and answers in all": {plan: Plan{Between: time.Microsecond, Slow: 2}, status: 200, text: "w0 w1 w2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, c.plan)
			r := s.ask(t, t.Context(), chat("r1", 3))
			if text := contents(read(t, r)); r.StatusCode != c.status || text != c.text {
				t.Errorf("got %d and %q", r.StatusCode, text)
			}
			died := false
			select {
			case <-s.died:
				died = true
			default:
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if died != c.dies || !slices.Equal(s.killed, c.killed) {
				t.Errorf("it died: %t, with %v", died, s.killed)
			}
		})
	}
}

func TestALineWithoutAnEndHasItsSize(t *testing.T) {
	s := newStage(t, Plan{RawSize: 100 << 10})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := s.ask(t, ctx, chat("r1", 3))
	var all strings.Builder
	last := ""
	buffer := make([]byte, 32<<10)
	for len(last) < 100<<10 {
		n, err := r.Body.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(buffer[:n])
		_, last, _ = strings.Cut(all.String(), `data: {"choices":[{"delta":{"content":"`)
	}
	if last != strings.Repeat("x", 100<<10) {
		t.Errorf("it has %d bytes", len(last))
	}
}

func TestAnEngineThatLoadsIsHealthyAndCompletesNothing(t *testing.T) {
	s := newStage(t, Plan{Loading: true})
	for path, want := range map[string]int{"/health": 200, "/v1/models": 200, "/metrics": 200} {
		r, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
	r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a completion: %d", r.StatusCode)
	}
}

func TestTheRecordsOfAProcessThatWasKilledAreReadUpToTheCut(t *testing.T) {
	s := newStage(t, Plan{})
	_ = read(t, s.ask(t, t.Context(), chat("r1", 1)))
	waitFor(t, func() bool { return len(s.State().Running) == 0 })
	s.records.mu.Lock()
	whole := s.records.b.String()
	s.records.mu.Unlock()
	all, err := attempts(strings.NewReader(whole[:len(whole)-20]))
	if err != nil || len(all) != 1 || !all[0].End.IsZero() {
		t.Errorf("read %+v, %v", all, err)
	}
}

// waitFor waits until something is so.
func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	limit := time.NewTimer(hangs)
	defer limit.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatal("it hangs")
		}
	}
}
