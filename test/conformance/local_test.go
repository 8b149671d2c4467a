package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/enginetest"
	"github.com/ringfleet/ringfleet/worker/engine/llamacpp"
	"github.com/ringfleet/ringfleet/worker/grammar"
	"github.com/ringfleet/ringfleet/worker/sampling"
	"github.com/ringfleet/ringfleet/worker/scheduler"
)

// device is what llama.cpp's executor is to the scheduler.
type device interface {
	engine.Executor
	engine.Embedder
	engine.Adapting
}

// losing is a device that fails for good once lost is set, as one does that falls off its bus.
type losing struct {
	device
	lost *atomic.Bool
}

func (l losing) Step(ctx context.Context, b *engine.Batch) (*engine.Result, error) {
	if l.lost.Load() {
		return nil, fmt.Errorf("%w: it was taken away", engine.ErrFatal)
	}
	return l.device.Step(ctx, b)
}

// scheduled makes an engine of a loaded model, as the worker does. The model is lost once lost is set.
func scheduled(t *testing.T, m *engine.Loaded, sequences int, lost *atomic.Bool) engine.Engine {
	t.Helper()
	m.Executor = losing{m.Executor.(device), lost}
	words := grammar.New(m.Info.Vocab, m.Vocabulary.Piece, m.Vocabulary.EndsGeneration)
	e, err := scheduler.New(m, scheduler.Options{
		MaxSequences: sequences, MaxWaiting: 64, StepTokens: scheduler.StepTokensCPU, Gather: time.Millisecond,
		JSONObject: func() sampling.Constraint { return words.JSONObject() },
		Clock:      clock.RealClock{}, Broken: func(err error) {
			if !lost.Load() {
				t.Errorf("the executor broke: %v", err)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// libraries returns llama.cpp's folder and the demo model.
func libraries(t *testing.T) (libs, weights string) {
	t.Helper()
	libs, weights = os.Getenv("RINGFLEET_TEST_LIBS"), os.Getenv("RINGFLEET_TEST_WEIGHTS")
	if libs == "" || weights == "" {
		t.Fatal("RINGFLEET_TEST_LIBS and RINGFLEET_TEST_WEIGHTS are not set: run make unit or make conformance, or export " +
			"RINGFLEET_TEST_LIBS=$(go run ./hack/image libs) RINGFLEET_TEST_WEIGHTS=$(go run ./hack/image weights)")
	}
	return libs, weights
}

func TestTheWorkersOwnEngine(t *testing.T) {
	libs, weights := libraries(t)
	var lost atomic.Bool
	h := smol("llama.cpp in the worker")
	h.Sequences, h.Exact = 4, true
	h.Adapter = engine.Adapter{Name: "tuned", Path: loraGGUF(t)}
	h.New = func(t *testing.T) engine.Engine {
		m, err := llamacpp.Open(llamacpp.Options{LibraryDir: libs, WeightsPath: weights, ContextTokens: 1024, MaxSequences: 16,
			KVType: llamacpp.F16, Threads: 1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return scheduled(t, m, h.Sequences, &lost)
	}
	h.Lose = func(*testing.T, engine.Engine) { lost.Store(true) }
	keep(enginetest.Run(t, h))
}
