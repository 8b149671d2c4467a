// Package relay holds the whole way of an answer, from the stream of an engine's server through worker and router to the
// client, to what that server meant: all of it is real but the server.
package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/identity"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/router/server"
	"github.com/ringfleet/ringfleet/test/bench/router/ours"
	"github.com/ringfleet/ringfleet/worker/engine/openai"
	"github.com/ringfleet/ringfleet/worker/grpcserver"
	"github.com/ringfleet/ringfleet/worker/metrics"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("GOMAXPROCS", strconv.Itoa(runtime.GOMAXPROCS(0))); err != nil { // the router leaves the test's alone
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

const (
	hangs = time.Minute
	model = "m"
	uid   = "uid-m"
)

// play is how the engine's server answers: with these bytes, in these pieces.
type play struct {
	stream string
	cuts   []byte // lengths of pieces but one, in turn; empty: all at once
}

// mostPieces is in how many pieces a stream comes at most; the rest comes at once.
const mostPieces = 48

// line is an engine's server with a worker beside it and a router before that.
type line struct {
	tb     testing.TB
	client *http.Client
	url    string

	mu   sync.Mutex // guards next
	next play
}

// ServeHTTP is the engine's server.
func (l *line) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Stream bool `json:"stream"`
	}
	if r.Body != nil {
		_ = json.NewDecoder(r.Body).Decode(&asked) // what is no JSON asks for no stream
	}
	switch {
	case r.URL.Path == "/health":
	case r.URL.Path == "/v1/models":
		fmt.Fprint(w, `{"data":[{"id":"m","owned_by":"vllm","max_model_len":100000}]}`)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/completions") && !asked.Stream:
		fmt.Fprint(w, `{"choices":[{"finish_reason":"length","text":"a"}],"usage":{"completion_tokens":1}}`)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/completions"):
		l.mu.Lock()
		p := l.next
		l.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		rest := p.stream
		for n := 0; rest != "" && n < mostPieces && len(p.cuts) > 0; n++ {
			piece := rest[:min(int(p.cuts[n%len(p.cuts)])+1, len(rest))]
			rest = rest[len(piece):]
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, rest)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// newLine starts all of it, and stops it with the test.
func newLine(tb testing.TB) *line {
	tb.Helper()
	l := &line{tb: tb, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}}
	tb.Cleanup(l.client.CloseIdleConnections)
	engine := httptest.NewServer(l)
	tb.Cleanup(engine.Close)
	driver, err := openai.New(openai.Options{BaseURL: engine.URL, MaxSequences: 4, MaxWaiting: 4, Interval: time.Second,
		Patience: hangs, Warmup: hangs, Stall: hangs, Clock: clock.RealClock{}, Log: logr.Discard()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = driver.Close() })
	l.eventually("the driver takes the engine for loaded", func() bool {
		s, _ := driver.State()
		return s.Loaded
	})
	keys := tb.TempDir()
	if err := ours.Keys(keys); err != nil {
		tb.Fatal(err)
	}
	l.url = "http://" + l.route(keys, l.work(keys, driver))
	l.eventually("an answer", func() bool {
		status, _ := l.ask(tb, play{stream: "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n"}, true)
		return status == http.StatusOK
	})
	return l
}

// process is the worker.
type process struct{ driver *openai.Driver }

// Identity is grpcserver.Worker's.
func (p process) Identity() grpcserver.Identity {
	return grpcserver.Identity{Instance: "i", Model: model, ModelUID: uid, Revision: "r", PodName: "w", PodUID: "w-uid"}
}

// Status is grpcserver.Worker's.
func (p process) Status() (grpcserver.Status, <-chan struct{}) {
	_, changed := p.driver.State()
	return grpcserver.Status{Stage: workerv1.Stage_STAGE_LOADED, Engine: p.driver}, changed
}

// Drain is grpcserver.Worker's.
func (p process) Drain() {}

// work serves the worker's contract and returns its address.
func (l *line) work(keys string, driver *openai.Driver) string {
	l.tb.Helper()
	files, err := identity.Files(filepath.Join(keys, "worker"))
	if err != nil {
		l.tb.Fatal(err)
	}
	l.tb.Cleanup(files.Close)
	creds, err := identity.ServerCredentials(files, identity.In(ours.Namespace, identity.Router))
	if err != nil {
		l.tb.Fatal(err)
	}
	set := metrics.New(model, func() metrics.Now { return metrics.Now{Loaded: true, Stats: driver.Stats()} })
	service := grpcserver.New(process{driver}, set, logr.Discard(), clock.RealClock{})
	g := grpc.NewServer(grpcserver.Options(creds)...)
	workerv1.RegisterWorkerServer(g, service)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(listener) }()
	l.tb.Cleanup(func() { service.StopStreams(); g.Stop(); <-done })
	return listener.Addr().String()
}

// told is a cluster that stays as it is.
type told struct{ state discovery.State }

// Run is server.Source's.
func (s told) Run(ctx context.Context, tell func(discovery.State)) error {
	tell(s.state)
	<-ctx.Done()
	return ctx.Err()
}

// route runs a router for the worker and returns where its clients meet it.
func (l *line) route(keys, worker string) string {
	l.tb.Helper()
	o := server.Defaults()
	o.Namespace, o.PodName, o.TLSDir = ours.Namespace, "router-0", filepath.Join(keys, "router")
	o.HTTPAddress, o.GRPCAddress, o.OpsAddress = free(l.tb), free(l.tb), free(l.tb)
	o.DrainSettle, o.DrainTimeout = 0, hangs
	m := discovery.Model{UID: uid, Object: model, Name: model, ServedNames: []string{model}, Created: time.Unix(1e9, 0),
		Candidates: []discovery.Candidate{{PodName: "w", PodUID: "w-uid", Address: worker}}}
	settings := discovery.DefaultSettings()
	settings.Heartbeat.Interval, settings.Heartbeat.Timeout = 100*time.Millisecond, hangs // a busy machine is no dead worker
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	quiet(l.tb, func() {
		go func() {
			ended <- server.RunFrom(ctx, o, told{discovery.State{Synced: true, Models: []discovery.Model{m}, Settings: settings}})
		}()
		l.eventually("the router is ready", func() bool {
			r, err := l.client.Get("http://" + o.OpsAddress + "/readyz")
			if err != nil {
				return false
			}
			_ = r.Body.Close()
			return r.StatusCode == http.StatusOK
		})
	})
	l.tb.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			l.tb.Error(err)
		}
	})
	return o.HTTPAddress
}

// quiet starts something whose log nobody reads.
func quiet(tb testing.TB, start func()) {
	tb.Helper()
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = nowhere.Close() })
	before := os.Stderr
	os.Stderr = nowhere
	defer func() { os.Stderr = before }()
	start()
}

// free is an address on which nobody listens.
func free(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// eventually looks until it is so.
func (l *line) eventually(what string, is func() bool) {
	l.tb.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(hangs)
	defer late.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late.C:
			l.tb.Fatalf("hangs: %s", what)
		}
	}
}

// changing are the members that differ from answer to answer.
var changing = regexp.MustCompile(`"id":"chatcmpl-[^"]*","object":"([a-z.]+)","created":\d+`)

// ask has the engine answer by p, and returns the body that the client gets, without what differs from answer to answer.
func (l *line) ask(tb testing.TB, p play, stream bool) (int, string) {
	tb.Helper()
	l.mu.Lock()
	l.next = p
	l.mu.Unlock()
	body, err := json.Marshal(map[string]any{"model": model, "stream": stream, "stream_options": map[string]any{"include_usage": true},
		"messages": []map[string]string{{"role": "user", "content": "x"}}})
	if err != nil {
		tb.Fatal(err)
	}
	r, err := l.client.Post(l.url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return r.StatusCode, changing.ReplaceAllString(string(text), `"object":"$1"`)
}
