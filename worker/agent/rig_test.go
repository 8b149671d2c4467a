package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/api/identity"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/grpcserver/tlstest"
)

// asWorker in the environment makes the test's own program a worker: main in all but name.
const asWorker = "RINGFLEET_TEST_AS_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		beWorker()
		return
	}
	goleak.VerifyTestMain(m)
}

// hang bounds a test that is stuck.
const hang = 60 * time.Second

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	t.Cleanup(cancel)
	return ctx
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(hang)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("hangs: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// process is a worker in this process, on a clock that the test moves, over a simulated device.
type process struct {
	t      *testing.T
	a      *agent
	ca     *tlstest.Authority
	clock  *clocktesting.FakeClock
	kill   context.CancelFunc // as SIGTERM does
	result chan error
}

// device is a small simulated model.
func device(o sim.Options) func(string, func(int)) (*engine.Loaded, error) {
	o.ContextTokens, o.Sequences, o.KVTokens, o.Clock = 256, 4, 1024, clock.RealClock{}
	return func(_ string, progress func(int)) (*engine.Loaded, error) {
		progress(100)
		return sim.New(o), nil
	}
}

// start runs a worker with weights in place, unless change says otherwise.
func start(t *testing.T, open func(string, func(int)) (*engine.Loaded, error), change func(*Options)) *process {
	t.Helper()
	return startBy(t, open, change, (*agent).run)
}

// startBy is start where run is more than the agent's own.
func startBy(t *testing.T, open func(string, func(int)) (*engine.Loaded, error), change func(*Options), run func(*agent, context.Context) error) *process {
	t.Helper()
	o := Options{}
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	o.bind(f, func(string) string { return "" })
	args := []string{
		"--model=org/m", "--model-uid=u1", "--revision=r1", "--namespace=team", "--pod-name=p", "--pod-uid=pu",
		"--weights-dir=" + t.TempDir(), "--tls-dir=" + t.TempDir(), "--grpc-address=" + free(t), "--http-address=" + free(t),
		"--max-sequences=4", "--gather=0s", // the clock stands still unless a test moves it
	}
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	writeWeights(t, o.WeightsDir)
	p := &process{t: t, ca: tlstest.New(t), clock: clocktesting.NewFakeClock(time.Now()), result: make(chan error, 1)}
	p.ca.Folder(t, o.TLSDir, identity.ID{Namespace: "team", Role: identity.Worker})
	if change != nil {
		change(&o)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	a, err := newAgent(o, logr.Discard(), p.clock)
	if err != nil {
		t.Fatal(err)
	}
	a.open, p.a = open, a
	var ctx context.Context
	ctx, p.kill = context.WithCancel(context.Background())
	go func() { p.result <- run(a, ctx) }()
	t.Cleanup(func() {
		p.kill()
		p.end()
	})
	return p
}

// end moves the clock until the worker has ended, and returns what it ended with.
func (p *process) end() error {
	deadline := time.After(hang)
	for {
		select {
		case err := <-p.result:
			p.result <- err // for the next who asks
			return err
		case <-deadline:
			p.t.Fatal("hangs: the worker's end")
		case <-time.After(2 * time.Millisecond):
			p.clock.Step(500 * time.Millisecond)
		}
	}
}

func (p *process) stage() workerv1.Stage {
	now, _ := p.a.state.Status()
	return now.Stage
}

func (p *process) router() workerv1.WorkerClient {
	return client(p.t, p.ca, p.a.o.GRPCAddress)
}

func client(t *testing.T, ca *tlstest.Authority, address string) workerv1.WorkerClient {
	t.Helper()
	dir := t.TempDir()
	ca.Folder(t, dir, identity.ID{Namespace: "team", Role: identity.Router})
	files, err := identity.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := identity.ClientCredentials(files, identity.In("team", identity.Worker))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: hang, // without it a connection has 10 ms, and is closed when it took them
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		files.Close()
	})
	return workerv1.NewWorkerClient(conn)
}

// get returns the code and the body of a path.
func get(t *testing.T, address, path string) (int, []byte) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: hang}
	r, err := c.Get("http://" + address + path)
	if err != nil {
		return 0, nil
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, body
}

func getHealth(t *testing.T, address string) health {
	t.Helper()
	code, body := get(t, address, "/health")
	var h health
	if err := json.Unmarshal(body, &h); code != http.StatusOK || err != nil {
		t.Fatalf("/health is %d, %q, %v", code, body, err)
	}
	return h
}

// free returns an address of the loopback interface that nobody uses. It has an IP of its own, so that no connection of
// another process gets the port before it is listened on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	if err != nil { // not every system has all of 127.0.0.0/8
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// writeWeights writes the smallest file that passes for weights.
func writeWeights(t *testing.T, dir string) {
	t.Helper()
	var b bytes.Buffer
	put := func(vs ...any) {
		for _, v := range vs {
			if s, ok := v.(string); ok {
				v = append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...)
			}
			if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.WriteString("GGUF")
	put(uint32(3), uint64(1), uint64(2))
	put("general.architecture", uint32(8), "llama", "llama.context_length", uint32(4), uint32(256))
	put("a", uint32(1), uint64(32), uint32(0), uint64(0))
	for b.Len()%32 != 0 {
		b.WriteByte(0)
	}
	b.Write(make([]byte, 128))
	if err := os.WriteFile(filepath.Join(dir, "w.gguf"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// answer is what came of a Generate call.
type answer struct {
	text   string
	first  time.Time
	finish *workerv1.Finish
	err    error
}

func generate(ctx context.Context, c workerv1.WorkerClient, content string, maxTokens uint32) answer {
	zero := 0.0
	messages, err := json.Marshal([]map[string]string{{"role": "user", "content": content}})
	if err != nil {
		return answer{err: err}
	}
	stream, err := c.Generate(ctx, &workerv1.GenerateRequest{
		RequestId: "q", AttemptId: "a", MaxTokens: maxTokens, Sampling: &workerv1.Sampling{Temperature: &zero},
		Prompt: &workerv1.GenerateRequest_Chat{Chat: &workerv1.ChatPrompt{Messages: messages}},
	})
	if err != nil {
		return answer{err: err}
	}
	return collect(stream)
}

func collect(stream grpc.ServerStreamingClient[workerv1.GenerateResponse]) (a answer) {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return a
		}
		if err != nil {
			a.err = err
			return a
		}
		if d := m.GetDelta(); d != nil {
			if a.first.IsZero() {
				a.first = time.Now()
			}
			a.text += d.GetText()
		}
		if f := m.GetFinish(); f != nil {
			a.finish = f
		}
	}
}
