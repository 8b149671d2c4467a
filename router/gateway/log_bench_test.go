package gateway

import (
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/cputime"
	"github.com/ringfleet/ringfleet/router/lines"
	"github.com/ringfleet/ringfleet/router/openai"
)

// BenchmarkLog is what the line of a request costs, to a file and to a pipe that somebody reads: by slog, by slog with lines
// that are gathered, and as the router does it. A machine that does other things too is best judged by cpu-ns/op.
func BenchmarkLog(b *testing.B) {
	for _, to := range []string{"file", "pipe"} {
		b.Run("slog/"+to, func(b *testing.B) { benchmarkLog(b, slog.NewJSONHandler(sink(b, to), nil)) })
		b.Run("gathered/"+to, func(b *testing.B) {
			w := lines.New(sink(b, to), clock.RealClock{})
			b.Cleanup(w.Close)
			benchmarkLog(b, slog.NewJSONHandler(w, nil))
		})
		b.Run("lines/"+to, func(b *testing.B) {
			w := lines.New(sink(b, to), clock.RealClock{})
			b.Cleanup(w.Close)
			benchmarkLog(b, w.Handler())
		})
	}
}

func benchmarkLog(b *testing.B, handler slog.Handler) {
	r := httptest.NewRequest("POST", pathChat, nil)
	h := &Handler{cfg: Config{Clock: clock.RealClock{}, Log: slog.New(handler)}}
	began := time.Now()
	b.ReportAllocs()
	before := cputime.Used()
	defer func() { b.ReportMetric(float64(cputime.Used()-before)/float64(b.N), "cpu-ns/op") }()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		x := &exchange{h: h, r: r, id: "req_0123456789abcdef01234567", began: began, status: 200, outcome: OutcomeOK, tier: "interactive",
			model: "llama-3-8b", worker: "llama-3-8b-worker-7d9f5c-0", firstText: 12 * time.Millisecond,
			usage: openai.Usage{Prompt: 812, Completion: 128, Cached: 512}}
		for pb.Next() {
			x.log()
		}
	})
}

// sink is where lines go.
func sink(b *testing.B, kind string) *os.File {
	b.Helper()
	if kind == "file" {
		f, err := os.CreateTemp(b.TempDir(), "")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = f.Close() })
		return f
	}
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, r)
	}()
	b.Cleanup(func() {
		_ = w.Close()
		<-done
		_ = r.Close()
	})
	return w
}
