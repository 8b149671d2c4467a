package agent

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/weights/fetch"
)

// web serves a folder over HTTPS and sets o up to fetch w.gguf from it.
func web(t *testing.T, o *Options, dir string) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Fetch.URI, o.Fetch.CAFile, o.Fetch.AllowNetworks, o.Fetch.CacheDir = s.URL+"/w.gguf", ca, "127.0.0.0/8", t.TempDir()
	return s
}

func TestAWorkerFetchesItsWeightsAndServes(t *testing.T) {
	source := t.TempDir()
	writeWeights(t, source)
	p := start(t, device(sim.Options{Text: "hello"}), func(o *Options) {
		web(t, o, source)
		o.WeightsDir = t.TempDir() // nothing is mounted
	})
	waitFor(t, "the load", func() bool { return p.stage() == workerv1.Stage_STAGE_LOADED })
	if a := generate(within(t), p.router(), "hi", 10); a.text != "hello" || a.err != nil {
		t.Errorf("generate: %q, %v", a.text, a.err)
	}
}

func TestASourceWithoutTheWeightsIsAskedAgainAndSaidOf(t *testing.T) {
	source := t.TempDir()
	p := start(t, device(sim.Options{Text: "hello"}), func(o *Options) { web(t, o, source) })
	waitFor(t, "the failure", func() bool { return p.stage() == workerv1.Stage_STAGE_FAILED })
	if h := getHealth(t, p.a.o.HTTPAddress); h.Reason != fetch.NotFound || h.Message == "" {
		t.Errorf("health is %+v", h)
	}
	writeWeights(t, source)
	waitFor(t, "the load", func() bool {
		p.clock.Step(firstPause)
		return p.stage() == workerv1.Stage_STAGE_LOADED
	})
}

func TestAContainerThatOnlyFetchesEndsWellAndLeavesALink(t *testing.T) {
	source, link := t.TempDir(), filepath.Join(t.TempDir(), "weights")
	writeWeights(t, source)
	p := start(t, nil, func(o *Options) {
		web(t, o, source)
		o.FetchOnly, o.Fetch.Link = true, link
	})
	if err := p.end(); err != nil {
		t.Fatalf("ended with %v", err)
	}
	want, err := os.ReadFile(filepath.Join(source, "w.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(link); err != nil || string(got) != string(want) {
		t.Errorf("behind the link are %d bytes, want %d: %v", len(got), len(want), err)
	}
	if err := p.a.fetcher.Close(); err != nil { // the end of a process lets go of the cache, and this one goes on
		t.Error(err)
	}
}

// chatServer is a server of OpenAI's protocol that says hello to everybody, with more paths where they are given.
func chatServer(t *testing.T, address string, more ...func(*http.ServeMux)) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"test"}]}`)
	})
	const usage = `"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}`
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"id":"1","object":"text_completion","choices":[{"index":0,"text":"x","finish_reason":"length"}],`+usage+`}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 1<<16)
		n, _ := r.Body.Read(body)
		if !strings.Contains(string(body[:n]), `"stream":true`) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"length"}],`+usage+`}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"hello"},"finish_reason":null}]}`+"\n\n"+
			`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n"+`data: {"choices":[],`+usage+"}\n\ndata: [DONE]\n\n")
	})
	for _, add := range more {
		add(mux)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	s.Start()
	return s
}

func TestAnEngineThatNeverComesLeavesTheWorkerUpAndIsSaidOf(t *testing.T) {
	address := free(t)
	p := start(t, nil, func(o *Options) {
		o.Driver, o.Server.URL = openAI, "http://"+address
	})
	waitFor(t, "what is waited for is said", func() bool {
		p.clock.Step(serverInterval)
		now, _ := p.a.state.Status()
		return strings.Contains(now.Message, "the engine starts") && strings.Contains(now.Message, address)
	})
	if h := getHealth(t, p.a.o.HTTPAddress); h.ModelLoaded || h.Stage != "Loading" || !strings.Contains(h.Message, address) {
		t.Errorf("health is %+v", h)
	}
	for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		if code, body := get(t, p.a.o.HTTPAddress, path); code != want {
			t.Errorf("%s is %d: %s", path, code, body)
		}
	}
	if a := generate(within(t), p.router(), "hi", 10); grpcstatus.Code(a.err) != codes.FailedPrecondition {
		t.Errorf("generate: %v", a.err)
	}
	p.kill()
	if err := p.end(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestAnEngineBesideTheWorkerAnswersAndItsRestartIsAnotherInstance(t *testing.T) {
	address := free(t)
	p := start(t, nil, func(o *Options) {
		o.Driver, o.Server.URL = openAI, "http://"+address
	})
	moved := func(stage workerv1.Stage) func() bool {
		return func() bool {
			p.clock.Step(serverPatience / 100) // half a second of this machine's time, so that a slow answer is none
			return p.stage() == stage
		}
	}
	waitFor(t, "the server is up", func() bool {
		code, _ := get(t, p.a.o.HTTPAddress, "/livez")
		return code == http.StatusOK
	})
	if h := getHealth(t, p.a.o.HTTPAddress); h.ModelLoaded || h.Stage != "Loading" {
		t.Errorf("before the engine is there, health is %+v", h)
	}
	first := chatServer(t, address)
	waitFor(t, "the engine is seen", moved(workerv1.Stage_STAGE_LOADED))
	before := p.a.state.Identity().Instance
	if a := generate(within(t), p.router(), "hi", 10); a.text != "hello" || a.err != nil {
		t.Errorf("generate: %q, %v", a.text, a.err)
	}

	first.CloseClientConnections()
	first.Close()
	waitFor(t, "the loss is seen", moved(workerv1.Stage_STAGE_LOADING))
	h := getHealth(t, p.a.o.HTTPAddress)
	if h.ModelLoaded || h.Reason == "" || h.Message == "" {
		t.Errorf("while the engine is gone, health is %+v", h)
	}
	if code, _ := get(t, p.a.o.HTTPAddress, "/livez"); code != http.StatusOK {
		t.Errorf("/livez is %d: the worker can't mend its engine by ending", code)
	}
	second := chatServer(t, address)
	defer second.Close()
	waitFor(t, "the engine is seen again", moved(workerv1.Stage_STAGE_LOADED))
	if after := p.a.state.Identity().Instance; after == before {
		t.Errorf("the restarted engine is still instance %s", after)
	}
}
