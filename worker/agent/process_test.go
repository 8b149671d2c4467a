package agent

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/api/identity"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/grpcserver/tlstest"
)

// crowdHang bounds the crowd: on a busy machine one thread has a small share of a core.
const crowdHang = 5 * hang

// beWorker is what the worker's main does.
func beWorker() {
	var o Options
	o.Bind(flag.NewFlagSet("worker", flag.ContinueOnError))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := Run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// real is a worker in a process of its own, with the pinned library and the demo model.
type real struct {
	command *exec.Cmd
	started time.Time
	ca      *tlstest.Authority
	grpc    string
	http    string
	log     *strings.Builder // read it after the end
	read    sync.WaitGroup
}

// startReal runs the test's own program as a worker, or the one that RINGFLEET_TEST_WORKER names.
func startReal(t *testing.T) *real {
	t.Helper()
	libs, model := os.Getenv("RINGFLEET_TEST_LIBS"), os.Getenv("RINGFLEET_TEST_WEIGHTS")
	if libs == "" || model == "" {
		t.Fatal("RINGFLEET_TEST_LIBS and RINGFLEET_TEST_WEIGHTS are not set: run make unit, or export " +
			"RINGFLEET_TEST_LIBS=$(go run ./hack/image libs) RINGFLEET_TEST_WEIGHTS=$(go run ./hack/image weights)")
	}
	r := &real{ca: tlstest.New(t), grpc: free(t), http: free(t), log: &strings.Builder{}}
	dir := t.TempDir()
	r.ca.Folder(t, dir, identity.ID{Namespace: "team", Role: identity.Worker})
	program := os.Getenv("RINGFLEET_TEST_WORKER")
	if program == "" {
		program = os.Args[0]
	}
	r.command = exec.Command(program)
	r.command.Env = append(os.Environ(), asWorker+"=1",
		"RINGFLEET_MODEL=smollm2", "RINGFLEET_MODEL_UID=u1", "RINGFLEET_REVISION=r1", "POD_NAMESPACE=team",
		"RINGFLEET_WEIGHTS_DIR="+filepath.Dir(model), "RINGFLEET_WEIGHTS_FILE="+filepath.Base(model),
		"RINGFLEET_LIBRARY_DIR="+libs, "RINGFLEET_TLS_DIR="+dir, "RINGFLEET_GRPC_ADDRESS="+r.grpc, "RINGFLEET_HTTP_ADDRESS="+r.http,
		"RINGFLEET_THREADS=1",
	)
	stderr, err := r.command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.started = time.Now()
	if err := r.command.Start(); err != nil {
		t.Fatal(err)
	}
	r.read.Go(func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			r.log.WriteString(lines.Text() + "\n")
		}
	})
	t.Cleanup(func() {
		if r.command.ProcessState == nil {
			_ = r.command.Process.Kill()
			r.read.Wait()
			_ = r.command.Wait()
		}
		if t.Failed() {
			t.Logf("the worker's log:\n%s", r.log)
		}
	})
	return r
}

// awaitLoaded watches until the model is loaded.
func (r *real) awaitLoaded(t *testing.T, c workerv1.WorkerClient) *workerv1.Report {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	watch, err := c.Watch(ctx, &workerv1.WatchRequest{IntervalMilliseconds: 100})
	if err != nil {
		t.Fatal(err)
	}
	for {
		report, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if report.GetModelLoaded() {
			return report
		}
		if report.GetStage() == workerv1.Stage_STAGE_FAILED {
			t.Fatalf("%s: %s", report.GetReason(), report.GetMessage())
		}
	}
}

// resident returns the process's resident memory in MiB.
func (r *real) resident(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.command.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			return kib / 1024
		}
	}
	t.Fatalf("no VmRSS in %s", b)
	return 0
}

// processor returns the processor time that the process has used.
func (r *real) processor(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.command.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
	var user, system time.Duration
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		t.Fatal(err)
	}
	return (user + system) * 10 * time.Millisecond // in ticks of 1/100 s
}

func TestTheDemoModelAnswersAloneAndInACrowdAndDrains(t *testing.T) {
	r := startReal(t)
	c := client(t, r.ca, r.grpc)
	r.awaitLoaded(t, c)
	loaded, loading := time.Since(r.started), r.processor(t)
	// Without the second sentence two first tokens are nearly as likely, and the shape of a batch decides.
	const question = "What is the capital of France? Answer in one sentence."
	a := generate(within(t), c, question, 24)
	if a.err != nil || !strings.Contains(a.text, "Paris") || a.finish.GetReason() != workerv1.FinishReason_FINISH_REASON_STOP {
		t.Fatalf("got %q, %v, %v", a.text, a.finish, a.err)
	}
	t.Logf("loaded after %s (%s of processor time), first token after %s, answered in %s of processor time, %d MiB resident; %q",
		loaded.Round(time.Millisecond), loading, a.first.Sub(r.started).Round(time.Millisecond), r.processor(t), r.resident(t), a.text)

	begun, used := time.Now(), r.processor(t)
	ctx, cancel := context.WithTimeout(context.Background(), crowdHang)
	defer cancel()
	var crowd sync.WaitGroup
	var mu sync.Mutex
	tokens := 0
	for i := range 16 {
		crowd.Go(func() {
			a := generate(ctx, c, question, 40)
			if a.err != nil || !strings.Contains(a.text, "Paris") {
				t.Errorf("request %d of 16: %q, %v", i, a.text, a.err)
			}
			mu.Lock()
			defer mu.Unlock()
			tokens += int(a.finish.GetUsage().GetCompletionTokens())
		})
	}
	crowd.Wait()
	h := getHealth(t, r.http)
	if h.Queue.Running != 0 || *h.KV.Used != 0 {
		t.Errorf("after the crowd: %+v, %d blocks used", h.Queue, *h.KV.Used)
	}
	t.Logf("16 at once: %d tokens in %s, %s of processor time; %d MiB resident", tokens, time.Since(begun).Round(time.Millisecond),
		r.processor(t)-used, r.resident(t))

	if err := r.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.read.Wait()
	if err := r.command.Wait(); err != nil {
		t.Fatalf("the worker ended with %v", err)
	}
	if log := r.log.String(); strings.Count(log, "A generate call ended") != 17 || strings.Contains(log, "capital") {
		t.Error("the record has not one line for each of 17 calls, or has their text")
	}
}
