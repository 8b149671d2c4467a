package fetch

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/weights/source/sourcetest"
)

// childKey makes the test binary a process that ensures one model, named by its arguments, and prints where it is.
const childKey = "RINGFLEET_TEST_FETCH"

// child is such a process: its arguments are the cache, the hub and the file.
func child() int {
	dir, hub, file := os.Args[1], os.Args[2], os.Args[3]
	o := Options{CacheDir: dir, Connections: 4, AllowNetworks: "127.0.0.0/8", Getenv: func(k string) string {
		return map[string]string{"HF_ENDPOINT": hub}[k]
	}}
	f, err := New(o, clock.RealClock{})
	if err == nil {
		small(f)
		var path string
		path, err = f.Ensure(context.Background(), Request{URI: "hf://org/m", File: file}, nil)
		fmt.Println(path)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // keeps the model until the test has seen it
	return 0
}

// process is a child.
type process struct {
	cmd  *exec.Cmd
	out  *bufio.Reader
	stay io.Closer
}

func start(t *testing.T, dir string, hub *sourcetest.Hub, file string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], dir, hub.Hub.URL, file)
	cmd.Env = append(os.Environ(), childKey+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stay, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &process{cmd, bufio.NewReader(out), stay}
}

// path waits for the child's answer.
func (p *process) path(t *testing.T) string {
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(line)
}

// end lets the child go.
func (p *process) end(t *testing.T) {
	_ = p.stay.Close()
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestEightProcessesAndTwoModelsFetchASharedFileOnce(t *testing.T) {
	hub, b := oneFile()
	hub.Files["copy.gguf"] = b
	hub.StartPlain()
	defer hub.Close()
	dir := filepath.Join(t.TempDir(), "cache")
	var all sync.WaitGroup
	for i := range 8 {
		file := []string{"m.gguf", "copy.gguf"}[i%2]
		p := start(t, dir, hub, file)
		all.Go(func() {
			path := p.path(t)
			if got, err := os.ReadFile(path); err != nil || sourcetest.Sum(got) != sourcetest.Sum(b) || filepath.Base(path) != file {
				t.Errorf("process %d got %q: %v", i, path, err)
			}
			p.end(t)
		})
	}
	all.Wait()
	if hub.Sent() != int64(len(b)) {
		t.Errorf("%d bytes were sent to eight processes for a file of %d", hub.Sent(), len(b))
	}
}

func TestAKilledDownloadIsGoneOnWithByTheNextProcess(t *testing.T) {
	hub, b := oneFile()
	half, dead := make(chan struct{}), make(chan struct{})
	hub.Fault = func(n int, _ http.ResponseWriter, r *http.Request) bool {
		if n > 5 { // of nine requests
			if n == 6 {
				close(half)
			}
			select {
			case <-dead:
			case <-r.Context().Done():
				return true
			}
		}
		return false
	}
	hub.StartPlain()
	defer hub.Close()
	dir := filepath.Join(t.TempDir(), "cache")
	first := start(t, dir, hub, "m.gguf")
	<-half
	awaitJournal(t, dir)
	if err := first.cmd.Process.Kill(); err != nil { // SIGKILL
		t.Fatal(err)
	}
	_ = first.cmd.Wait()
	close(dead)
	before := hub.Sent()
	next := start(t, dir, hub, "m.gguf")
	if got, err := os.ReadFile(next.path(t)); err != nil || !bytes.Equal(got, b) {
		t.Errorf("the next process got another file: %v", err)
	}
	next.end(t)
	if hub.Sent() >= int64(len(b))*3/2 {
		t.Errorf("%d bytes were sent before the kill and %d after it, for a file of %d", before, hub.Sent()-before, len(b))
	}
}

// awaitJournal waits until a journal says that some of the file is there.
func awaitJournal(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		found, err := filepath.Glob(filepath.Join(dir, "partial", "*.json"))
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("no journal: %v", err)
		}
		if len(found) > 0 {
			return
		}
		runtime.Gosched()
	}
}
