package heartbeat

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/api/cputime"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// fieldOf is a table whose workers are all in the ring, of one model, without streams.
func fieldOf(b *testing.B, n int) (*Table, []*watcher) {
	b.Helper()
	table := NewTable(Options{Credentials: insecure.NewCredentials(), Clock: clocktesting.NewFakeClock(epoch), Log: logr.Discard()}, DefaultConfig())
	b.Cleanup(table.Close)
	table.keepJudges([]Candidate{{ModelUID: "uid-1"}})
	watchers := make(map[string]*watcher, n)
	list := make([]*watcher, 0, n)
	for i := range n {
		c := Candidate{Pod: fmt.Sprintf("smollm2-%d", i), ModelUID: "uid-1", Model: "smollm2", Address: "10.0.0.1:9000"}
		w := newWatcher(table, c, DefaultConfig(), table.judges["uid-1"])
		w.hear(good("a"))
		w.detector.up = true
		w.settle(epoch, nil)
		watchers[c.Pod], list = w, append(list, w)
	}
	table.roster.Store(newRoster(watchers))
	table.publish()
	return table, list
}

// busy is a report of a worker with so many requests.
func busy(requests int) *workerv1.Report {
	r := good("a")
	tokens := uint64(1)
	r.Load = &workerv1.Load{Running: uint32(requests), ProgressTokens: &tokens}
	for i := range requests {
		r.Load.RequestIds = append(r.Load.RequestIds, fmt.Sprintf("req_%032d", i))
	}
	return r
}

// BenchmarkReport is the cost of a report after it has been read, with 10,000 workers in the table.
func BenchmarkReport(b *testing.B) {
	_, watchers := fieldOf(b, 10_000)
	r := busy(256)
	b.ReportAllocs()
	i, used := 0, cputime.Used()
	for b.Loop() {
		*r.Load.ProgressTokens++
		watchers[i%len(watchers)].hear(r)
		i++
	}
	cpu(b, used, 1)
}

// BenchmarkOutcome is the cost of a good answer, with 10,000 workers in the table.
func BenchmarkOutcome(b *testing.B) {
	table, watchers := fieldOf(b, 10_000)
	b.ReportAllocs()
	i, used := 0, cputime.Used()
	for b.Loop() {
		table.Outcome(watchers[i%len(watchers)].pod, "a", Good)
		i++
	}
	cpu(b, used, 1)
}

// BenchmarkMeasured is the cost of a sample, with 10,000 workers in the table, from all cores at once.
func BenchmarkMeasured(b *testing.B) {
	table, watchers := fieldOf(b, 10_000)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			table.Measured(watchers[i%len(watchers)].pod, "a", BetweenTokens, 0.02)
		}
	})
}

// BenchmarkPoint is the cost of a point where the figures of 10,000 peers are computed anew, which happens once a second.
func BenchmarkPoint(b *testing.B) {
	h := newHerd(10_000)
	for range minPoints + 1 {
		h.now = h.now.Add(pointTime)
		for pod := range h.batches {
			h.a.point(h.now, pod, BetweenTokens, h.noisy(1))
		}
	}
	b.ReportAllocs()
	used := cputime.Used()
	for b.Loop() {
		h.now = h.now.Add(crowdAge)
		h.a.point(h.now, "w0", BetweenTokens, 0.02)
	}
	cpu(b, used, 1)
}

// BenchmarkSnapshot is the cost of a change of one of 10,000 workers.
func BenchmarkSnapshot(b *testing.B) {
	table, watchers := fieldOf(b, 10_000)
	b.ReportAllocs()
	used := cputime.Used()
	for b.Loop() {
		w := watchers[0]
		w.suspect = !w.suspect
		table.publish()
	}
	cpu(b, used, 1)
}

const servesEnv = "HEARTBEAT_BENCHMARK_SERVES"

// TestServesABenchmark is the other process of BenchmarkStreams: a worker that reports each second until it reads the end of
// its input.
func TestServesABenchmark(t *testing.T) {
	requests, err := strconv.Atoi(os.Getenv(servesEnv))
	if err != nil {
		t.Skip("only BenchmarkStreams runs it")
	}
	f := newFakeWorker(t, busy(requests))
	f.opened = make(chan uint32, 1<<20)
	if _, err := fmt.Fprintf(os.Stdout, "\naddress=%s\n", f.address); err != nil {
		t.Fatal(err)
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = os.Stdin.Read(make([]byte, 1))
	}()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			f.say(busy(requests))
		}
	}
}

// serveElsewhere runs a worker in another process and returns its address.
func serveElsewhere(b *testing.B, requests int) string {
	b.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestServesABenchmark$", "-test.v")
	c.Env = append(os.Environ(), servesEnv+"="+strconv.Itoa(requests))
	in, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
	var said strings.Builder
	buffer := make([]byte, 1024)
	for {
		n, err := out.Read(buffer)
		said.Write(buffer[:n])
		if _, rest, ok := strings.Cut(said.String(), "address="); ok && strings.Contains(rest, "\n") {
			return strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0])
		}
		if err != nil {
			b.Fatalf("the other process said %q: %v", said.String(), err)
		}
	}
}

// cpu reports the CPU time of an iteration since used.
func cpu(b *testing.B, used time.Duration, each float64) {
	b.ReportMetric(float64(cputime.Used()-used)/float64(b.N)/each, "cpu-ns/op")
}

// BenchmarkStreams is what 1,000 candidates cost a router: goroutines, heap and stacks of each stream, and CPU of a report
// each second with so many request ids. One iteration is one report of each candidate; cpu-ns/op is that of one report.
func BenchmarkStreams(b *testing.B) {
	const n = 1000
	for _, requests := range []int{0, 16, 256} {
		b.Run(fmt.Sprintf("%d-requests", requests), func(b *testing.B) {
			address := serveElsewhere(b, requests)
			before, goroutines := memory(), runtime.NumGoroutine()
			reports := make(chan struct{}, 1<<20)
			table := NewTable(Options{Credentials: insecure.NewCredentials(), Clock: clock.RealClock{}, Log: logr.Discard(),
				OnReport: func(Member, *workerv1.Report, time.Time) { reports <- struct{}{} }}, DefaultConfig())
			defer table.Close()
			candidates := make([]Candidate, n)
			for i := range candidates {
				candidates[i] = Candidate{Pod: podOf(i), ModelUID: "uid-1", Model: "smollm2", Address: address}
			}
			table.SetCandidates(candidates)
			for range 3 * n {
				<-reports
			}
			more, bytes := float64(runtime.NumGoroutine()-goroutines), memory()-before
			used := cputime.Used()
			for b.Loop() {
				for range n {
					<-reports
				}
			}
			cpu(b, used, float64(n))
			b.ReportMetric(more/float64(n), "goroutines/candidate")
			b.ReportMetric(bytes/float64(n), "bytes/candidate")
		})
	}
}

// memory is the live heap and the stacks, in bytes.
func memory() float64 {
	runtime.GC()
	runtime.GC() // what pools hold is free after two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
