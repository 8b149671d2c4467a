package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	testclock "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hangs is the only bound on time: it means that a test hangs.
const hangs = time.Minute

// double is a server that fails on demand, which real ones do not. It speaks the protocol of one kind and is used for
// faults alone; what the kinds really do is tested against themselves.
type double struct {
	t    *testing.T
	addr string

	mu       sync.Mutex
	http     *httptest.Server
	owner    string
	context  int
	blind    bool // its template shows no tools
	metrics  string
	health   int // the status; 0 is 200, and -1 hangs
	generate func(w http.ResponseWriter, r *http.Request, body map[string]any)
	paths    map[string]func(w http.ResponseWriter, r *http.Request, body map[string]any)
	seen     []string // the paths of requests
	bodies   []map[string]any
	open     int // streams
	release  chan struct{}
	gone     bool // its process
}

// newDouble starts one that answers every request with the words of speak.
func newDouble(t *testing.T, owner string) *double {
	d := &double{t: t, owner: owner, context: 512, release: make(chan struct{}),
		paths: map[string]func(http.ResponseWriter, *http.Request, map[string]any){}}
	d.generate = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { speak(w, "Hel", "lo", " you") }
	d.start("127.0.0.1:0")
	t.Cleanup(func() {
		close(d.release)
		d.stop()
	})
	return d
}

func (d *double) start(addr string) {
	d.t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		d.t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(d)
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	d.mu.Lock()
	d.http, d.addr, d.gone = s, l.Addr().String(), false
	d.mu.Unlock()
}

// stop ends the process, as far as a client can see.
func (d *double) stop() {
	d.mu.Lock()
	s := d.http
	d.gone = true // who sees a connection end looks at once, and must find nobody, on no other connection either
	d.mu.Unlock()
	_ = s.Listener.Close()
	s.CloseClientConnections()
	s.Close()
}

// keepNone has it end each connection after one answer. A client that closes those it keeps may miss one whose answer
// was read a moment ago.
func (d *double) keepNone() { d.http.Config.SetKeepAlivesEnabled(false) }

// neverEnd has it answer with a word, and go on until the client is gone.
func (d *double) neverEnd() {
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, r *http.Request, _ map[string]any) { words(w, "a"); d.hang(r) }
	})
}

func (d *double) url() string { return "http://" + d.addr }

// change sets knobs.
func (d *double) change(f func(d *double)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, _ := io.ReadAll(r.Body)
	var body map[string]any
	_ = json.Unmarshal(content, &body)
	d.mu.Lock()
	d.seen = append(d.seen, r.URL.Path)
	d.bodies = append(d.bodies, body)
	health, generate, owner, metrics, more, gone := d.health, d.generate, d.owner, d.metrics, d.paths[r.URL.Path], d.gone
	d.mu.Unlock()
	switch {
	case gone:
		cut(w)
	case more != nil:
		more(w, r, body)
	case r.URL.Path == healthPath && health < 0:
		d.hang(r)
	case r.URL.Path == healthPath && health > 0:
		w.WriteHeader(health)
	case r.URL.Path == healthPath:
	case r.URL.Path == modelsPath:
		fmt.Fprintf(w, `{"data":[{"id":"m","owned_by":%q,"max_model_len":%d,"meta":{"n_vocab":100}}]}`, owner, d.context)
	case r.URL.Path == "/props":
		fmt.Fprintf(w, `{"total_slots":4,"default_generation_settings":{"n_ctx":%d},"chat_template_caps":{"supports_tools":%t}}`, d.context, !d.blind)
	case r.URL.Path == "/metrics" && metrics != "":
		fmt.Fprint(w, metrics)
	case (r.URL.Path == chatPath || r.URL.Path == completionPath) && body["stream"] == nil:
		fmt.Fprint(w, `{"choices":[{"finish_reason":"length","text":"a"}],"usage":{"completion_tokens":1}}`)
	case r.URL.Path == chatPath, r.URL.Path == completionPath:
		d.count(1)
		defer d.count(-1)
		generate(w, r, body)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (d *double) count(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open += n
}

func (d *double) streams() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// hang waits until the client is gone or the test ends.
func (d *double) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-d.release:
	}
}

// times counts requests of a path.
func (d *double) times(path string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, s := range d.seen {
		if s == path {
			n++
		}
	}
	return n
}

// say writes raw text and sends it.
func say(w http.ResponseWriter, text string) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	_, _ = io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

// words writes an event for each word.
func words(w http.ResponseWriter, texts ...string) {
	for i, text := range texts {
		say(w, fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"text\":%q,\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":5,"+
			"\"completion_tokens\":%d}}\n\n", text, i+1))
	}
}

// speak writes a whole stream.
func speak(w http.ResponseWriter, texts ...string) {
	words(w, texts...)
	say(w, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n")
	say(w, fmt.Sprintf("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", len(texts)))
}

// cut ends the connection without another word.
func cut(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = c.Close()
	}
}

// watched is a driver on a double and the clock that both are told by.
type watched struct {
	*Driver
	t     *testing.T
	clock *testclock.FakeClock
}

// watchIt starts a driver and waits until it is loaded.
func watchIt(t *testing.T, d *double, change ...func(*Options)) *watched {
	t.Helper()
	w := newWatched(t, d.url(), change...)
	w.until("it is loaded", func(s State) bool { return s.Loaded })
	return w
}

func newWatched(t *testing.T, url string, change ...func(*Options)) *watched {
	t.Helper()
	clock := testclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	// The clock runs far ahead of the sockets, so only tests of hanging have little patience.
	o := Options{BaseURL: url, MaxSequences: 4, MaxWaiting: 4, Interval: time.Second, Patience: 24 * time.Hour,
		Warmup: 24 * time.Hour, Stall: 30 * time.Second, Clock: clock}
	for _, c := range change {
		c(&o)
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &watched{d, t, clock}
}

// until moves the clock until the state is as wanted.
func (w *watched) until(what string, is func(State) bool) State {
	w.t.Helper()
	var got State
	w.pass(what, func() bool {
		got, _ = w.State()
		return is(got)
	})
	return got
}

// pass moves the clock until something holds.
func (w *watched) pass(what string, holds func() bool) {
	w.t.Helper()
	wait(w.t, what, func() bool {
		if holds() {
			return true
		}
		w.clock.Step(250 * time.Millisecond)
		return false
	})
}

// wait looks until something holds.
func wait(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	over := time.NewTimer(hangs)
	defer over.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-over.C:
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func text(s string) *engine.Request {
	return &engine.Request{ID: "r", Prompt: engine.Prompt{Text: s}, MaxTokens: 8}
}

// all reads a stream to its end.
func all(s engine.Stream) (string, engine.Chunk, error) {
	var b strings.Builder
	for {
		c, err := s.Next()
		if err != nil {
			return b.String(), engine.Chunk{}, err
		}
		b.WriteString(c.Text)
		if c.Finish != "" {
			return b.String(), c, nil
		}
	}
}
