package enginetest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/enginetest"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/grammar"
	"github.com/ringfleet/ringfleet/worker/sampling"
	"github.com/ringfleet/ringfleet/worker/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tale is what the simulated device says. It is JSON, so that it can say it under a constraint.
const tale = `{"ok": true, "word": "blå 海", "tale": "A king of old had four towers by the sea, and in each lived a bird that ` +
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

// simulated is the worker's scheduler on a simulated device.
func simulated() enginetest.Harness {
	var lost atomic.Bool
	return enginetest.Harness{
		Name: "simulated",
		New: func(t *testing.T) engine.Engine {
			lost.Store(false)
			m := sim.New(sim.Options{
				Before: func(*engine.Batch) error {
					if lost.Load() {
						return engine.ErrFatal
					}
					return nil
				},
				Text: tale, ContextTokens: 8192, Sequences: 16, KVTokens: 65536, StepTokens: 512, AbortMidStep: true, Embeddings: true,
				Clock: clock.RealClock{}, Step: 500 * time.Microsecond, PerPromptToken: time.Microsecond,
			})
			m.Vocabulary = template{m.Vocabulary}
			words := grammar.New(m.Info.Vocab, m.Vocabulary.Piece, m.Vocabulary.EndsGeneration)
			e, err := scheduler.New(m, scheduler.Options{
				MaxSequences: 4, MaxWaiting: 64, StepTokens: scheduler.StepTokensCPU, Gather: time.Millisecond,
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
		},
		Chat: `[{"role":"user","content":"Tell me a tale."}]`, JSONChat: `[{"role":"user","content":"Tell me JSON."}]`,
		Text: "Once", Long: "~", Wide: "<|answer|>", Exact: true, Sequences: 4, Lose: func(*testing.T, engine.Engine) { lost.Store(true) },
	}
}

func TestTheSchedulerOnASimulatedDeviceKeepsTheContract(t *testing.T) {
	r := enginetest.Run(t, simulated())
	if t.Failed() {
		return
	}
	text, err := enginetest.JSON([]enginetest.Report{r})
	if err != nil || !strings.Contains(string(text), `"capability": "embeddings"`) {
		t.Errorf("the report is %s (%v)", text, err)
	}
	table := enginetest.Markdown([]enginetest.Report{r, {Engine: "none"}})
	for _, line := range []string{"| capability | simulated | none |", "| embeddings | yes | not run |", "| tool calls | no | not run |"} {
		if !strings.Contains(table, line+"\n") {
			t.Errorf("the table lacks %q:\n%s", line, table)
		}
	}
}

// liar is an engine that breaks the contract in one way.
type liar struct {
	engine.Engine
	request func(*engine.Request)
	chunk   func(*engine.Chunk)
	err     func(error) error
	end     func(error) error // of streams, but for io.EOF
	deaf    bool              // to its callers' contexts and Close
	info    func(*engine.Info)
	stats   func(*engine.Stats)
	drain   func() error
}

func (l *liar) Generate(ctx context.Context, r *engine.Request) (engine.Stream, error) {
	q := *r
	if l.request != nil {
		l.request(&q)
	}
	if l.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	s, err := l.Engine.Generate(ctx, &q)
	if err != nil {
		if l.err != nil {
			err = l.err(err)
		}
		return nil, err
	}
	return &lies{s, l}, nil
}

func (l *liar) Info() engine.Info {
	i := l.Engine.Info()
	if l.info != nil {
		l.info(&i)
	}
	return i
}

func (l *liar) Stats() engine.Stats {
	s := l.Engine.Stats()
	if l.stats != nil {
		l.stats(&s)
	}
	return s
}

func (l *liar) Drain(ctx context.Context) error {
	if l.drain != nil {
		return l.drain()
	}
	return l.Engine.Drain(ctx)
}

type lies struct {
	engine.Stream
	l *liar
}

func (s *lies) Next() (engine.Chunk, error) {
	c, err := s.Stream.Next()
	if s.l.chunk != nil && err == nil {
		s.l.chunk(&c)
	}
	if s.l.end != nil && err != nil && !errors.Is(err, io.EOF) {
		err = s.l.end(err)
	}
	return c, err
}

func (s *lies) Close() error {
	if s.l.deaf {
		return nil
	}
	return s.Stream.Close()
}

// lie is a way to break the contract and the capability that shows it.
var lie = map[string]struct {
	shows string
	liar  liar
}{
	"one token too many":     {"counts tokens", liar{request: func(r *engine.Request) { r.MaxTokens++ }}},
	"a usage that is wrong":  {"counts tokens", liar{chunk: func(c *engine.Chunk) { c.Usage.Completion++ }}},
	"stop strings ignored":   {"stop strings", liar{request: func(r *engine.Request) { r.Stop = nil }}},
	"cancels ignored":        {"cancel while decoding", liar{deaf: true}},
	"errors without a type":  {"bad requests", liar{err: func(err error) error { return errors.New(err.Error()) }}},
	"a claim without a deed": {"LoRA adapters", liar{info: func(i *engine.Info) { i.Caps.Adapters = true }}},
	"a deed without a claim": {"embeddings", liar{info: func(i *engine.Info) { i.Caps.Embeddings = false }}},
	"salts ignored":          {"cache salts", liar{request: func(r *engine.Request) { r.CacheSalt = "all" }}},
	"figures that stand":     {"stats add up", liar{stats: func(s *engine.Stats) { s.Running = 0 }}},
	"a drain that does not":  {"drain", liar{drain: func() error { return nil }}},
	"a character in two":     {"streams text", liar{chunk: func(c *engine.Chunk) { c.Text += "\xf0" }}},
	"a choice that is not":   {"streams text", liar{chunk: func(c *engine.Chunk) { c.Choice++ }}},
	"one answer for all":     {"concurrent load", liar{request: mixing()}},
	"JSON that is none":      {"JSON object", liar{chunk: func(c *engine.Chunk) { c.Text = strings.ReplaceAll(c.Text, ":", "=") }}},
	"logarithms above 0":     {"log probabilities", liar{chunk: func(c *engine.Chunk) { positive(c.Logprobs) }}},
	"an end in min_tokens":   {"min_tokens", liar{request: func(r *engine.Request) { r.MinTokens, r.MaxTokens = 1, 50 }}},
	"an end that is heeded":  {"ignore_eos", liar{request: func(r *engine.Request) { r.MaxTokens = 50 }}},
	"a bias that is ignored": {"logit_bias", liar{request: func(r *engine.Request) { r.Sampling.LogitBias = nil }}},
	"two choices of three":   {"several choices", liar{request: func(r *engine.Request) { r.Choices = 2 }}},
	"a fault of its own":     {"output that nobody reads", liar{end: func(err error) error { return errors.New(err.Error()) }}},
	"a loss without a type":  {"a model that is lost", liar{err: func(err error) error { return errors.New(err.Error()) }}},
	"a token too few":        {"goes on with", liar{request: forgetful}},
	"a word said twice":      {"goes on with", liar{request: func(r *engine.Request) { r.Resume = nil }}},
	"a fixed seed":           {"equal requests", liar{request: func(r *engine.Request) { r.Sampling.Temperature = 0 }}},
}

// mixing gives all requests after the first four the prompt of the first.
func mixing() func(*engine.Request) {
	var mu sync.Mutex
	var first engine.Prompt
	n := 0
	return func(r *engine.Request) {
		mu.Lock()
		defer mu.Unlock()
		if n++; n == 1 {
			first = r.Prompt
		} else if n > 4 {
			r.Prompt = first
		}
	}
}

// forgetful loses the last token that was made elsewhere.
func forgetful(r *engine.Request) {
	if n := r.Made(); n > 0 {
		has := *r.Resume
		has.Tokens, has.Text = has.Tokens[:n-1], ""
		r.Resume = &has
	}
}

func positive(l []engine.Logprob) {
	for i := range l {
		l[i].Logprob = 1
	}
}

// asked names the lie that a process of this test is to tell.
const asked = "RINGFLEET_TEST_LIE"

// TestALie fails, in a process of its own, as it should.
func TestALie(t *testing.T) {
	l, ok := lie[os.Getenv(asked)]
	if !ok {
		return // only TestEveryLieIsSeen runs it in earnest
	}
	h := simulated()
	h.Patience = 3 * time.Second
	honest := h.New
	h.New = func(t *testing.T) engine.Engine {
		l.liar.Engine = honest(t)
		return &l.liar
	}
	enginetest.Run(t, h)
}

func TestEveryLieIsSeen(t *testing.T) {
	for name, l := range lie {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			run := "-test.run=^TestALie$/^" + strings.ReplaceAll(l.shows, " ", "_")
			c := exec.Command(os.Args[0], run, "-test.timeout=60s")
			c.Env = append(os.Environ(), asked+"="+name)
			out, err := c.CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte("--- FAIL: TestALie/"+strings.ReplaceAll(l.shows, " ", "_"))) {
				t.Errorf("the suite did not see it (%v):\n%s", err, out)
			}
		})
	}
}
