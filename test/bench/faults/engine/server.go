package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/ringfleet/ringfleet/test/bench/faults/history"
)

// Engine is the server, without its listeners.
type Engine struct {
	pod     string
	process string
	out     io.Writer // of records
	die     func()
	kill    func(pid int)
	started time.Time

	mu      sync.Mutex // guards the rest, and out
	plan    Plan
	changed chan struct{} // closed and replaced with another plan
	number  int
	running map[int]string // ids
	words   int            // sent
	opened  int
}

// New returns an engine that follows p. Die ends the process, and kill another one.
func New(pod string, p Plan, out io.Writer, die func(), kill func(pid int)) *Engine {
	now := time.Now()
	return &Engine{pod: pod, process: strconv.FormatInt(now.UnixNano(), 36), out: out, die: die, kill: kill, started: now,
		plan: p, changed: make(chan struct{}), running: map[int]string{}}
}

// Set gives it another plan. Answers that have begun follow it, too, but for how they are put.
func (e *Engine) Set(p Plan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.plan = p
	close(e.changed)
	e.changed = make(chan struct{})
}

// current is the plan of the moment, and what is closed when there is another one.
func (e *Engine) current() (Plan, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.plan, e.changed
}

// State is what it is at.
func (e *Engine) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return State{Started: e.number, Running: slices.Sorted(maps.Values(e.running)), Opened: e.opened}
}

// begin writes down that a request has come.
func (e *Engine) begin(a history.Attempt) (number int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.number++
	e.running[e.number] = a.ID
	e.write(e.number, a)
	return e.number
}

// end writes down that it is over.
func (e *Engine) end(number int, a history.Attempt) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.running, number)
	e.words += a.Sent
	e.write(number, a)
}

// write appends a record. The caller holds the lock.
func (e *Engine) write(number int, a history.Attempt) {
	line, err := json.Marshal(record{number, e.process, a})
	if err == nil {
		_, _ = e.out.Write(append(line, '\n')) // a record that is lost is seen by the checker
	}
}

// Handler serves the protocol.
func (e *Engine) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","owned_by":"vllm","max_model_len":%d}]}`, Model, context32)
	})
	mux.HandleFunc("GET /metrics", e.metrics)
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, _ *http.Request) {
		if p, _ := e.current(); p.Loading {
			http.Error(w, `{"error":{"message":"the model loads"}}`, http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"text_completion","choices":[{"index":0,"text":"w0","finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", e.chat)
	return mux
}

// context32 is how many tokens fit, as it says.
const context32 = 1 << 20

// metrics are vLLM's, as far as they are read.
func (e *Engine) metrics(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	running, words, blind := len(e.running), e.words, e.plan.Blind
	e.mu.Unlock()
	if !blind {
		_, _ = fmt.Fprintf(w, "vllm:kv_cache_usage_perc %g\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"65536\"} 1\n", float64(running)/65536)
	}
	_, _ = fmt.Fprintf(w, `vllm:num_requests_running %d
vllm:num_requests_waiting 0
vllm:generation_tokens_total %d
process_start_time_seconds %d
`, running, words, e.started.Unix())
}

// Serve runs an engine in this process until ctx ends.
func Serve(ctx context.Context, s Spec) error {
	out, err := os.OpenFile(s.Records, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // every record was written at once
	e := New(s.Pod, s.Plan, out, func() { os.Exit(3) }, func(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) })
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)))
	if err != nil {
		return fmt.Errorf("listen as the engine of %s: %w", s.Pod, err)
	}
	if err := os.Remove(s.Control); err != nil && !os.IsNotExist(err) {
		return err
	}
	told, err := net.Listen("unix", s.Control)
	if err != nil {
		return err
	}
	front := &http.Server{Handler: e.Handler(), ReadHeaderTimeout: time.Minute, IdleTimeout: s.KeepAlive,
		ConnState: func(_ net.Conn, c http.ConnState) {
			if c == http.StateNew {
				e.mu.Lock()
				e.opened++
				e.mu.Unlock()
			}
		}}
	back := &http.Server{Handler: e.control(), ReadHeaderTimeout: time.Minute}
	defer front.Close() //nolint:errcheck // nothing is left to lose
	defer back.Close()  //nolint:errcheck // nor here
	broken := make(chan error, 2)
	go func() { broken <- front.Serve(l) }()
	go func() { broken <- back.Serve(told) }()
	select {
	case <-ctx.Done():
		return nil
	case err := <-broken:
		return err
	}
}

// control is what an engine is told by.
func (e *Engine) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /plan", func(w http.ResponseWriter, r *http.Request) {
		var p Plan
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		e.Set(p)
	})
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(e.State()) // who asked may have gone
	})
	return mux
}
