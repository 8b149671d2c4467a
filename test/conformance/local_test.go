package conformance

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/enginetest"
	"github.com/ringfleet/ringfleet/worker/engine/llamacpp"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/grammar"
	"github.com/ringfleet/ringfleet/worker/sampling"
	"github.com/ringfleet/ringfleet/worker/scheduler"
)

// scheduled makes an engine of a loaded model, as the worker does.
func scheduled(t *testing.T, m *engine.Loaded, sequences int) engine.Engine {
	t.Helper()
	words := grammar.New(m.Info.Vocab, m.Vocabulary.Piece, m.Vocabulary.EndsGeneration)
	e, err := scheduler.New(m, scheduler.Options{
		MaxSequences: sequences, MaxWaiting: 64, StepTokens: scheduler.StepTokensCPU, Gather: time.Millisecond,
		JSONObject: func() sampling.Constraint { return words.JSONObject() },
		Clock:      clock.RealClock{}, Broken: func(err error) { t.Errorf("the executor broke: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// tale is what the simulated device says. It is JSON, so that it can say it under a constraint.
const tale = `{"ok": true, "word": "blue", "tale": "A king of old had four towers by the sea, and in each lived a bird that ` +
	`knew one song. When the wind came from the north, the first bird sang of snow; from the east, another told about spice ` +
	`markets; southern storms woke a third, whose voice was low and slow like honey. Only the western one kept quiet for years, ` +
	`until a child climbed up, knocked twice, then asked it politely why. Because, said the bird, nobody has ever listened to ` +
	`silence before you did. That evening every lamp along the coast burned green, fishermen turned their boats homeward early, ` +
	`and the old king, hearing nothing at all, slept well for once."}`

// template is the simulated vocabulary with a template that, as real ones do, wants messages.
type template struct{ engine.Vocabulary }

func (t template) Render(c engine.Chat) (string, error) {
	var messages []map[string]any
	if err := json.Unmarshal(c.Messages, &messages); err != nil || len(messages) == 0 {
		return "", errors.New("they are no messages")
	}
	return t.Vocabulary.Render(c)
}

func TestTheSchedulerOnASimulatedDevice(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{
		Name: "simulated",
		New: func(t *testing.T) engine.Engine {
			m := sim.New(sim.Options{
				Text: tale, ContextTokens: 8192, Sequences: 16, KVTokens: 65536, StepTokens: 512, AbortMidStep: true, Embeddings: true,
				Clock: clock.RealClock{}, Step: 500 * time.Microsecond, PerPromptToken: time.Microsecond,
			})
			m.Vocabulary = template{m.Vocabulary}
			return scheduled(t, m, 4)
		},
		Chat: `[{"role":"user","content":"Tell me a tale."}]`, JSONChat: `[{"role":"user","content":"Tell me JSON."}]`,
		Text: "Once", Long: "~", Sequences: 4,
	})
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
	h := smol("llama.cpp in the worker")
	h.Sequences = 4
	h.Adapter = engine.Adapter{Name: "tuned", Path: loraGGUF(t)}
	h.New = func(t *testing.T) engine.Engine {
		m, err := llamacpp.Open(llamacpp.Options{LibraryDir: libs, WeightsPath: weights, ContextTokens: 1024, MaxSequences: 16,
			KVType: llamacpp.F16, Threads: 1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return scheduled(t, m, h.Sequences)
	}
	keep(enginetest.Run(t, h))
}
