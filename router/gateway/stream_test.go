package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/router/openai"
)

var update = flag.Bool("update", false, "rewrite golden files")

func baseContext(ctx context.Context) func(net.Listener) context.Context {
	return func(net.Listener) context.Context { return ctx }
}

var changing = regexp.MustCompile(`"id":"chatcmpl-[0-9a-f]{24}"|"created":\d+`)

// golden compares a stream with a file of testdata, ids and times left out.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = changing.ReplaceAllStringFunc(got, func(s string) string { return s[:strings.Index(s, ":")+1] + "…" })
	path := filepath.Join("testdata", name+".sse")
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs:\n%s\nwant\n%s", path, got, want)
	}
}

var transcripts = map[string]struct {
	file, body string
	play       play
	outcome    string
}{
	"a stream ends with its reason and DONE":     {"whole", askStream, says("Hel", "lo\u2028"), "ok"},
	"usage comes in an event of its own":         {"usage", strings.Replace(askStream, "{", `{"stream_options":{"include_usage":true},`, 1), says("Hi"), "ok"},
	"an answer may be empty":                     {"empty", askStream, says(), "ok"},
	"a delta without text is no event":           {"held_back", askStream, says("a", "", "b"), "ok"},
	"a worker lost in the middle is one error":   {"lost", askStream, play{steps: []step{accepted, text("Hi"), lost()}}, "upstream"},
	"a worker silent in the middle is one error": {"silent", askStream, play{steps: []step{accepted, text("Hi"), {err: &Fault{Kind: Silent}}}}, "timeout"},
	"a mistake of ours in the middle is one too": {"broken", askStream, play{steps: []step{accepted, text("Hi"), {crash: true}}}, "internal"},
	"text may come with the end":                 {"last_words", askStream, play{steps: []step{{event: Event{Delta: openai.Delta{Text: "Hi"}, Finish: openai.FinishLength}}}}, "ok"},
}

func TestStreamsOnTheWire(t *testing.T) {
	for name, c := range transcripts {
		t.Run(name, func(t *testing.T) {
			r := newRig(clock.RealClock{}, c.play)
			w := r.do("POST", pathChat, c.body)
			golden(t, c.file, w.Body.String())
			for header, want := range map[string]string{
				"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no",
				"Content-Length": "", "X-Ringfleet-Worker": "worker-0",
			} {
				if got := w.Header().Get(header); got != want {
					t.Errorf("%s is %q, want %q", header, got, want)
				}
			}
			if w.Code != 200 || !w.Flushed {
				t.Errorf("status %d, flushed %v", w.Code, w.Flushed)
			}
			if got := r.figures.String(); got != "org/small-1.0 "+c.outcome {
				t.Errorf("counted as %q", got)
			}
			if n, open := r.script.count(), r.script.open(); n != 1 || open != 0 {
				t.Errorf("asked %d times, %d streams open", n, open)
			}
		})
	}
}

func TestAnAnswerAtOnce(t *testing.T) {
	r := newRig(clock.RealClock{}, says("Hel", "lo"))
	w := r.do("POST", pathChat, ask)
	golden(t, "at_once", w.Body.String()+"\n")
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Ringfleet-Worker") != "worker-0" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if r.figures.first != 1 || r.figures.next != 1 {
		t.Errorf("%d first and %d later tokens", r.figures.first, r.figures.next)
	}
}

func TestAnAnswerAtOnceThatBeginsAnewHasNothingOfBefore(t *testing.T) {
	again := step{err: ErrAgain}
	r := newRig(clock.RealClock{}, play{steps: []step{accepted, text("Hi"), again, text("Hel"), text("lo"), finished}})
	if w := r.do("POST", pathChat, ask); w.Code != 200 || !strings.Contains(w.Body.String(), `"content":"Hello"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if n := r.script.open(); n != 0 {
		t.Errorf("%d streams are open", n)
	}
}

func TestSilenceIsBrokenByComments(t *testing.T) {
	// Deadlines of connections are real, so the clock starts now; it moves only when told.
	c := testingclock.NewFakeClock(time.Now())
	speak := make(chan struct{})
	r := newRig(c, play{steps: []step{accepted, {wait: speak, event: Event{Delta: openai.Delta{Text: "Hi"}}}, finished}})
	url := r.serve(context.Background(), t)
	responses := make(chan *http.Response, 1)
	go func() {
		resp, err := post(context.Background(), t, url, askStream)
		if err != nil {
			t.Error(err)
		}
		responses <- resp
	}()
	for range 7 { // it looks again and again whether the request waits
		awaitTimer(t, c)
		c.Step(2 * time.Second)
	}
	awaitTimer(t, c)
	c.Step(time.Second)
	resp := <-responses
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for range 2 {
		for _, want := range []string{": keep-alive\n", "\n"} {
			if line, err := in.ReadString('\n'); err != nil || line != want {
				t.Fatalf("%q %v, want %q", line, err, want)
			}
		}
		awaitTimer(t, c)
		c.Step(keepAlive)
	}
	close(speak)
	rest := readAll(t, in)
	if !strings.Contains(rest, `"content":"Hi"`) || !strings.HasSuffix(rest, openai.Done) {
		t.Errorf("rest %q", rest)
	}
}

func TestARequestThatWaitsForAWorkerIsToldWhatFor(t *testing.T) {
	c := testingclock.NewFakeClock(time.Now())
	speak := make(chan struct{})
	r := newRig(c, play{wait: speak, steps: []step{accepted, text("Hi"), finished}})
	r.script.waits.Store("waiting for a worker: stage=loading percent=40")
	url := r.serve(context.Background(), t)
	responses := make(chan *http.Response, 1)
	go func() {
		resp, err := post(context.Background(), t, url, askStream)
		if err != nil {
			t.Error(err)
		}
		responses <- resp
	}()
	awaitTimer(t, c)
	c.Step(firstNote)
	resp := <-responses
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for range 2 {
		for _, want := range []string{": waiting for a worker: stage=loading percent=40\n", "\n"} {
			if line, err := in.ReadString('\n'); err != nil || line != want {
				t.Fatalf("%q %v, want %q", line, err, want)
			}
		}
		awaitTimer(t, c)
		c.Step(nextNote)
	}
	close(speak)
	if rest := readAll(t, in); !strings.Contains(rest, `"content":"Hi"`) || !strings.HasSuffix(rest, openai.Done) {
		t.Errorf("rest %q", rest)
	}
}

// awaitTimer waits until something waits for the clock.
func awaitTimer(t *testing.T, c *testingclock.FakeClock) {
	t.Helper()
	for deadline := time.Now().Add(hangs); !c.HasWaiters(); {
		if time.Now().After(deadline) {
			t.Fatal("hangs: nothing waits for the clock")
		}
	}
}

func TestAClientThatGoesEndsItsCall(t *testing.T) {
	never := make(chan struct{})
	for name, c := range map[string]struct {
		body  string
		steps []step
	}{
		"before the first byte of a stream": {askStream, []step{{wait: never}}},
		"in a stream":                       {askStream, []step{accepted, text("Hi"), {wait: never}}},
		"before an answer at once":          {ask, []step{accepted, text("Hi"), {wait: never}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(clock.RealClock{}, play{steps: c.steps})
			url := r.serve(context.Background(), t)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				resp, err := post(ctx, t, url, c.body)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}()
			eventually(t, "the call", func() bool { return r.script.count() == 1 })
			cancel()
			within(t, "the client", done)
			eventually(t, "the end of the call", func() bool { return r.figures.String() == "org/small-1.0 cancelled" })
		})
	}
}

// eventually polls for what a handler does after its client has gone.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(hangs)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("hangs: " + what)
		}
	}
}

func TestWhatOutlivesTheDrainIsTold(t *testing.T) {
	never := make(chan struct{})
	ctx, end := context.WithCancelCause(context.Background())
	r := newRig(clock.RealClock{}, play{steps: []step{accepted, text("Hi"), {wait: never}}})
	url := r.serve(ctx, t)
	streamed, err := post(context.Background(), t, url, askStream)
	if err != nil {
		t.Fatal(err)
	}
	defer streamed.Body.Close()
	at := make(chan *http.Response, 1)
	go func() {
		resp, err := post(context.Background(), t, url, ask)
		if err != nil {
			t.Error(err)
		}
		at <- resp
	}()
	eventually(t, "two calls", func() bool { return r.script.count() == 2 })
	end(ErrShutdown)
	body := readAll(t, streamed.Body)
	last := body[strings.LastIndex(strings.TrimSuffix(body, "\n\n"), "data: ")+len("data: "):]
	if _, _, _, code := errorObject(t, []byte(last)); code != "server_shutdown" || strings.Contains(body, "[DONE]") {
		t.Errorf("stream %q", body)
	}
	resp := <-at
	defer resp.Body.Close()
	if _, _, _, code := errorObject(t, []byte(readAll(t, resp.Body))); resp.StatusCode != 503 || code != "server_shutdown" {
		t.Errorf("%d %q", resp.StatusCode, code)
	}
}

// slow is a real clock that is late, so that the deadlines set by it are near.
type slow struct{ clock.RealClock }

func (slow) Now() time.Time { return time.Now().Add(2*time.Second - bodyWindow) }

func TestABodyThatStopsIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(slow{}, says("hi"))
	url := r.serve(context.Background(), t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", pathChat)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, _, _, code := errorObject(t, []byte(readAll(t, resp.Body))); resp.StatusCode != 408 || code != "request_timeout" {
		t.Errorf("%d %s", resp.StatusCode, code)
	}
}

// stuck is a client that takes nothing.
type stuck struct {
	http.ResponseWriter
	after  int
	writes atomic.Int32
}

func (s *stuck) Write(b []byte) (int, error) {
	if int(s.writes.Add(1)) > s.after {
		return 0, os.ErrDeadlineExceeded
	}
	return len(b), nil
}
func (s *stuck) Flush()              {}
func (s *stuck) WriteHeader(int)     {}
func (s *stuck) Header() http.Header { return http.Header{} }

func TestAClientThatTakesNothingEndsItsCall(t *testing.T) {
	c := testingclock.NewFakeClock(time.Now())
	r := newRig(c, play{steps: []step{accepted, text("Hi"), {wait: make(chan struct{})}}})
	req, _ := http.NewRequest("POST", pathChat, strings.NewReader(askStream))
	req.Header.Set("Content-Type", "application/json")
	w := &stuck{after: 1}
	done := make(chan struct{})
	go func() { defer close(done); aborted(t, func() { r.ServeHTTP(w, req) }) }()
	eventually(t, "the first event", func() bool { return w.writes.Load() == 1 })
	awaitTimer(t, c)
	c.Step(keepAlive) // the comment can't be written
	within(t, "the handler", done)
	if got := r.figures.String(); got != "org/small-1.0 cancelled" {
		t.Errorf("counted as %q", got)
	}
}

// However a worker cuts its text, a client gets the same, streamed or at once.
func FuzzAnyCutGivesTheSameAnswer(f *testing.F) {
	f.Add("Grüße 😀\n\u2028 \"end\"", uint64(0b1011010))
	f.Add("", uint64(0))
	f.Fuzz(func(t *testing.T, s string, cuts uint64) {
		s = strings.ToValidUTF8(s, "")
		var words []string
		from := 0
		for i := range s {
			if cuts>>(i%64)&1 == 1 {
				words = append(words, s[from:i])
				from = i
			}
		}
		words = append(words, s[from:])
		at := newRig(clock.RealClock{}, says(words...)).do("POST", pathChat, ask)
		var whole struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal(at.Body.Bytes(), &whole); err != nil || whole.Choices[0].Message.Content != s {
			t.Fatalf("at once: %v %q, want %q", err, at.Body, s)
		}
		streamed := newRig(clock.RealClock{}, says(words...)).do("POST", pathChat, askStream)
		if got := joined(t, streamed.Body.Bytes()); got != s {
			t.Fatalf("streamed: %q, want %q", got, s)
		}
	})
}

// joined reads a stream as a client does.
func joined(t *testing.T, wire []byte) string {
	t.Helper()
	var text strings.Builder
	for event := range bytes.SplitSeq(bytes.TrimSuffix(wire, []byte("data: [DONE]\n\n")), []byte("\n\n")) {
		if len(event) == 0 {
			continue
		}
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal(bytes.TrimPrefix(event, []byte("data: ")), &chunk); err != nil {
			t.Fatalf("%q: %v", event, err)
		}
		text.WriteString(chunk.Choices[0].Delta.Content)
	}
	return text.String()
}
