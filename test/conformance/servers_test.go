//go:build conformance

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/engineargs"
	"github.com/ringfleet/ringfleet/hack/engines/install"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/enginetest"
	"github.com/ringfleet/ringfleet/worker/engine/openai"
)

// server is an engine in a process of its own.
type server struct {
	t    *testing.T
	path string
	args []string
	env  []string
	port int
	log  string
	pid  int
	over chan struct{} // closed when the process has ended
}

// folder returns where an engine is installed.
func folder(t *testing.T, variable string) string {
	dir := os.Getenv(variable)
	if dir == "" {
		t.Fatalf("%s is not set: run make conformance", variable)
	}
	return dir
}

// freePort returns a port that nobody listens on.
func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing was accepted
	return l.Addr().(*net.TCPAddr).Port
}

// serve starts an engine with the arguments that the manager would give it.
func serve(t *testing.T, path string, kind engineargs.Kind, s engineargs.Settings, prefix, env []string) *server {
	t.Helper()
	s.Port = freePort(t)
	p := &server{t: t, path: path, args: append(prefix, engineargs.Args(kind, s)...), port: s.Port,
		log: filepath.Join(t.TempDir(), "engine.log")}
	p.env = append(os.Environ(), env...)
	for _, v := range engineargs.Env(kind, s) {
		p.env = append(p.env, v.Name+"="+v.Value)
	}
	t.Logf("%s %s", filepath.Base(path), strings.Join(p.args, " "))
	p.start()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("the engine's last lines:\n%s", p.tail())
		}
	})
	return p
}

func (p *server) start() {
	p.t.Helper()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // the process has its own copy
	c := exec.Command(p.path, p.args...)
	c.Env, c.Stdout, c.Stderr = p.env, log, log
	// It dies with this process, for which the thread that starts it has to live as long as it does.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, over := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread() // the thread lives on: its end would run what C libraries left to it
		defer close(over)
		err := c.Start()
		started <- err
		if err == nil {
			_ = c.Wait() // it says that it was killed
		}
	}()
	if err := <-started; err != nil {
		p.t.Fatal(err)
	}
	p.pid, p.over = c.Process.Pid, over
}

// stop kills the process and its children, as a container's end does.
func (p *server) stop() {
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	<-p.over
}

func (p *server) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// options watch the server as a worker does, with the patience of a busy machine.
func (p *server) options() openai.Options {
	return openai.Options{
		BaseURL: fmt.Sprintf("http://127.0.0.1:%d", p.port), MaxSequences: 4, MaxWaiting: 64, Priorities: true,
		Interval: 500 * time.Millisecond, Patience: 30 * time.Second, Warmup: 5 * time.Minute, Stall: 5 * time.Minute,
		Clock: clock.RealClock{}, Log: logr.FromSlogHandler(slog.DiscardHandler),
	}
}

// loaded waits until a driver's server serves.
func loaded(t *testing.T, d *openai.Driver, p *server) openai.State {
	t.Helper()
	over := time.After(20 * time.Minute) // it hangs
	for {
		s, changed := d.State()
		if s.Loaded {
			return s
		}
		select {
		case <-changed:
		case <-p.over:
			t.Fatalf("its process has ended; its last lines:\n%s", p.tail())
		case <-over:
			t.Fatalf("it does not serve: %+v\n%s", s, p.tail())
		}
	}
}

func (p *server) open(t *testing.T, change func(*openai.Options)) *openai.Driver {
	t.Helper()
	o := p.options()
	if change != nil {
		change(&o)
	}
	d, err := openai.New(o)
	if err != nil {
		t.Fatal(err)
	}
	loaded(t, d, p)
	return d
}

func TestVLLM(t *testing.T) {
	dir := folder(t, "RINGFLEET_TEST_VLLM")
	p := serve(t, install.Program(dir, install.VLLM), engineargs.VLLM, engineargs.Settings{
		Model: install.Model(dir), Name: "smol", ContextTokens: 2048, MaxSequences: 4, DType: "bfloat16", LoRA: true, MaxAdapterRank: 8,
		ToolParser: "hermes", Extra: []string{"--enforce-eager"},
	}, []string{"serve"}, []string{
		// One thread: two that wait for each other are many times slower where other processes run.
		"VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1",
	})
	h := smol("vLLM 0.32.0")
	h.Adapter = engine.Adapter{Name: "tuned", Path: loraFolder(t)}
	adapters := func(o *openai.Options) { o.Adapters = true }
	h.New = func(t *testing.T) engine.Engine { return p.open(t, adapters) }
	h.Lose = func(*testing.T, engine.Engine) { p.stop() }
	keep(enginetest.Run(t, h))
	p.start()
	t.Run("a_restart_is_another_epoch", func(t *testing.T) { restarts(t, p, h, adapters) })
}

func TestLlamaServer(t *testing.T) {
	dir := folder(t, "RINGFLEET_TEST_LLAMA_SERVER")
	_, weights := libraries(t)
	p := serve(t, install.Program(dir, install.LlamaServer), engineargs.LlamaServer, engineargs.Settings{
		Model: weights, Name: "smol", ContextTokens: 2048, MaxSequences: 4, Threads: 1,
	}, nil, nil)
	h := smol("llama-server 0.6")
	h.New = func(t *testing.T) engine.Engine { return p.open(t, nil) }
	h.Lose = func(*testing.T, engine.Engine) { p.stop() }
	keep(enginetest.Run(t, h))
	p.start()
	t.Run("a_restart_is_another_epoch", func(t *testing.T) { restarts(t, p, h, nil) })
}

// restarts: a process that is killed under a stream ends the stream, is seen to be gone, and what is started in its place
// is another epoch that serves.
func restarts(t *testing.T, p *server, h enginetest.Harness, change func(*openai.Options)) {
	d := p.open(t, change)
	defer d.Close() //nolint:errcheck // Close has no error
	request := &engine.Request{ID: "r", Prompt: engine.Prompt{Text: h.Text}, MaxTokens: 256}
	s, err := d.Generate(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	p.stop()
	for err == nil {
		_, err = s.Next()
	}
	if errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "the engine failed") {
		t.Errorf("the stream ended with %v", err)
	}
	over := time.After(time.Minute)
	for {
		now, changed := d.State()
		if !now.Loaded {
			if now.Reason != openai.Gone || now.Epoch != 1 {
				t.Errorf("the state is %+v", now)
			}
			break
		}
		select {
		case <-changed:
		case <-over:
			t.Fatal("nobody saw that it is gone")
		}
	}
	p.start()
	if now := loaded(t, d, p); now.Epoch != 2 {
		t.Errorf("the epoch is %d", now.Epoch)
	}
	s, err = d.Generate(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // only cancels
	if _, err := s.Next(); err != nil {
		t.Error(err)
	}
}
