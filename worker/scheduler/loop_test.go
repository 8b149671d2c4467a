package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hang is the time after which a test counts as stuck.
const hang = 60 * time.Second

// stuck can't choose.
type stuck struct{ Sampler }

var errStuck = errors.New("nothing to choose from")

func (stuck) Next([]float32) (sampling.Choice, error) { return sampling.Choice{}, errStuck }

func TestARequestWhoseTokenCanNotBeChosenEndsAlone(t *testing.T) {
	r := newRig(t, &gate{}, small("hi"), func(o *Options) {
		o.Sampler = func(s engine.Sampling, o sampling.Options) Sampler {
			if s.Seed == 7 {
				return stuck{}
			}
			return sampling.New(s, o)
		}
	})
	bad := ask("a", 5)
	bad.Sampling.Seed = 7
	for _, c := range []struct {
		request *engine.Request
		text    string
		err     error
	}{{bad, "", errStuck}, {ask("b", 5), "hi", nil}} {
		s, err := r.Generate(context.Background(), c.request)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := read(s); got != c.text || !errors.Is(err, c.err) {
			t.Errorf("request %s got %q, %v", c.request.ID, got, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// gate lets a test decide when steps run, and keeps what ran.
type gate struct {
	permits chan struct{}                     // nil: always open
	wrap    func(*sim.Device) engine.Executor // what stands before the device

	mu      sync.Mutex // guards the rest
	batches []engine.Batch
	fail    error
	shut    chan struct{} // while not nil, steps wait until it is closed
}

// close lets no step pass until open does.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *gate) before(b *engine.Batch) error {
	if g.permits != nil {
		<-g.permits
	}
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.batches = append(g.batches, engine.Batch{KV: append([]engine.KVOp(nil), b.KV...), Items: append([]engine.Item(nil), b.Items...)})
	return g.fail
}

type rig struct {
	engine.Engine
	gate   *gate
	device *sim.Device
	broken chan error
	clock  *clocktesting.FakeClock
}

func newRig(t *testing.T, g *gate, device sim.Options, change func(*Options)) *rig {
	t.Helper()
	return rigOf(t, g, device, nil, change)
}

// rigOf runs a loaded model; nil loads device.
func rigOf(t *testing.T, g *gate, device sim.Options, loaded *engine.Loaded, change func(*Options)) *rig {
	t.Helper()
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	device.Clock, device.Before = c, g.before
	fresh := sim.New(device)
	if loaded == nil {
		loaded = fresh
	}
	loaded.Executor = fresh.Executor
	r := &rig{gate: g, device: fresh.Executor.(*sim.Device), broken: make(chan error, 1), clock: c}
	o := Options{
		MaxSequences: 4, MaxWaiting: 64, StepTokens: 32, Clock: c, Log: logr.Discard(),
		Broken: func(err error) { r.broken <- err },
	}
	if change != nil {
		change(&o)
	}
	if g.wrap != nil {
		loaded.Executor = g.wrap(r.device)
	}
	e, err := New(loaded, o)
	if err != nil {
		t.Fatal(err)
	}
	r.Engine = e
	t.Cleanup(func() {
		if g.permits != nil {
			close(g.permits)
		}
		g.open()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func small(text string) sim.Options {
	return sim.Options{Text: text, ContextTokens: 256, Sequences: 4, KVTokens: 512, Step: time.Millisecond}
}

func ask(id string, maxTokens int) *engine.Request {
	return &engine.Request{ID: id, Prompt: engine.Prompt{Chat: &engine.Chat{Messages: []byte("[" + id + "]")}}, MaxTokens: maxTokens}
}

// read returns all text of a stream and its last chunk.
func read(s engine.Stream) (string, engine.Chunk, error) {
	var b strings.Builder
	var last engine.Chunk
	for {
		c, err := s.Next()
		if errors.Is(err, io.EOF) {
			return b.String(), last, nil
		}
		if err != nil {
			return b.String(), last, err
		}
		b.WriteString(c.Text)
		last = c
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(hang)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("hangs: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

func TestManyRequestsAtOnceAllGetTheirText(t *testing.T) {
	const answer = "grün 你好 🙂, the end"
	r := newRig(t, &gate{}, small(answer), nil)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			s, err := r.Generate(context.Background(), ask(fmt.Sprint(i), 40))
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			got, last, err := read(s)
			want := engine.Usage{Prompt: s.PromptTokens(), Completion: len(answer) + 1}
			if err != nil || got != answer || last.Finish != engine.FinishStop || last.Usage != want {
				t.Errorf("request %d: %q, %+v, %v", i, got, last, err)
			}
		})
	}
	wg.Wait()
	st := r.Stats()
	if st.Running != 0 || st.Waiting != 0 || *st.KVBlocksUsed != 0 || st.PrefillPerSecond == nil || st.DecodePerSecond == nil {
		t.Errorf("after the work: %+v", st)
	}
}

func TestACancelFreesTheSequenceBeforeTheSecondStep(t *testing.T) {
	g := &gate{permits: make(chan struct{})}
	r := newRig(t, g, small(strings.Repeat("x", 200)), nil)
	ctx, cancel := context.WithCancel(context.Background())
	s, err := r.Generate(ctx, ask("a", 100))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other, err := r.Generate(context.Background(), ask("b", 100))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for range 3 {
		g.permits <- struct{}{}
	}
	cancel()
	eventually(t, "cancelled request leaves", func() bool { return r.Stats().Running == 1 })
	if _, _, err := read(s); !errors.Is(err, context.Canceled) {
		t.Fatalf("stream ended with %v", err)
	}
	g.mu.Lock()
	ran := len(g.batches)
	g.mu.Unlock()
	g.permits <- struct{}{} // the step that may have begun before the cancel
	g.permits <- struct{}{} // the first step after it
	g.permits <- struct{}{}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, b := range g.batches[ran:min(ran+2, len(g.batches))] {
		if len(b.KV) == 1 && b.KV[0].Kind == engine.KVDrop {
			return
		}
		if i == 1 {
			t.Fatalf("batches after the cancel freed nothing: %+v", g.batches[ran:])
		}
	}
}

func TestAWaitingRequestLeavesTheQueueWhenItsCallerDoes(t *testing.T) {
	g := &gate{permits: make(chan struct{})}
	r := newRig(t, g, small("x"), func(o *Options) { o.MaxSequences = 1 })
	first, err := r.Generate(context.Background(), ask("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	eventually(t, "a runs", func() bool { return r.Stats().Running == 1 })
	second, err := r.Generate(context.Background(), ask("b", 10))
	if err != nil {
		t.Fatal(err)
	}
	if st := r.Stats(); st.Waiting != 1 || len(st.RequestIDs) != 2 {
		t.Fatalf("stats with one waiting: %+v", st)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if st := r.Stats(); st.Waiting != 0 {
		t.Fatalf("stats after the close: %+v", st)
	}
	if _, err := second.Next(); !errors.Is(err, engine.ErrClosed) {
		t.Fatalf("next after close: %v", err)
	}
}

func TestAFullQueueRefuses(t *testing.T) {
	g := &gate{permits: make(chan struct{})}
	r := newRig(t, g, small("x"), func(o *Options) { o.MaxSequences, o.MaxWaiting = 1, 2 })
	for i := range 4 {
		s, err := r.Generate(context.Background(), ask(fmt.Sprint(i), 10))
		if want := i == 3; errors.Is(err, engine.ErrBusy) != want {
			t.Fatalf("request %d: %v", i, err)
		}
		if err == nil {
			defer s.Close()
		}
		eventually(t, "the first runs", func() bool { return r.Stats().Running == 1 })
	}
	_, err := r.Generate(context.Background(), &engine.Request{ID: "x", Prompt: engine.Prompt{Tokens: []engine.Token{-1}}})
	if !errors.Is(err, engine.ErrBusy) {
		t.Fatalf("its prompt was looked at before the queue: %v", err)
	}
}

func TestDrainRefusesNewRequestsAndWaitsForOldOnes(t *testing.T) {
	g := &gate{permits: make(chan struct{}, 100)}
	r := newRig(t, g, small("hello"), nil)
	s, err := r.Generate(context.Background(), ask("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	short, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Drain(short); !errors.Is(err, context.Canceled) {
		t.Fatalf("drain with a request inside: %v", err)
	}
	if _, err := r.Generate(context.Background(), ask("b", 10)); !errors.Is(err, engine.ErrDraining) {
		t.Fatalf("generate while draining: %v", err)
	}
	for range 20 {
		g.permits <- struct{}{}
	}
	if err := r.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, _, err := read(s); got != "hello" || err != nil {
		t.Fatalf("the old request got %q, %v", got, err)
	}
}

func TestABrokenExecutorEndsEverythingOnce(t *testing.T) {
	g := &gate{fail: fmt.Errorf("device lost: %w", engine.ErrFatal)}
	r := newRig(t, g, small("hello"), nil)
	s, err := r.Generate(context.Background(), ask("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, _, err := read(s); !errors.Is(err, engine.ErrFatal) {
		t.Fatalf("stream ended with %v", err)
	}
	if err := <-r.broken; !errors.Is(err, engine.ErrFatal) {
		t.Fatalf("broken with %v", err)
	}
	if err := r.Health(context.Background()); !errors.Is(err, engine.ErrFatal) {
		t.Fatalf("health is %v", err)
	}
	if _, err := r.Generate(context.Background(), ask("b", 10)); !errors.Is(err, engine.ErrNotLoaded) || !errors.Is(err, engine.ErrFatal) {
		t.Fatalf("generate after the break: %v", err)
	}
}

func TestABreakIsToldBeforeTheRequestsEnd(t *testing.T) {
	g := &gate{fail: fmt.Errorf("device lost: %w", engine.ErrFatal)}
	told := make(chan engine.Stats, 1)
	var r *rig
	ready := make(chan struct{})
	r = newRig(t, g, small("hello"), func(o *Options) {
		o.Broken = func(error) {
			<-ready
			told <- r.Stats()
		}
	})
	close(ready)
	s, err := r.Generate(context.Background(), ask("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if st := <-told; st.Running != 1 {
		t.Errorf("when the break was told %d requests ran", st.Running)
	}
	if _, _, err := read(s); !errors.Is(err, engine.ErrFatal) || errors.Is(err, engine.ErrNotLoaded) {
		t.Errorf("the request ended with %v", err)
	}
}

func TestADeviceWithFewerCellsThanItSaysLosesOnlyTheYoungest(t *testing.T) {
	device := small(strings.Repeat("x", 60))
	device.HiddenTokens = 512 - 100
	r := newRig(t, &gate{}, device, nil)
	var streams []engine.Stream
	for i := range 3 {
		s, err := r.Generate(context.Background(), ask(fmt.Sprint(i), 60))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		streams = append(streams, s)
	}
	if got, _, err := read(streams[0]); len(got) != 60 || err != nil {
		t.Fatalf("the eldest got %d bytes, %v", len(got), err)
	}
	if _, _, err := read(streams[2]); !errors.Is(err, engine.ErrNoKV) {
		t.Fatalf("the youngest ended with %v", err)
	}
}

func TestAReaderThatNeverReadsIsCancelled(t *testing.T) {
	o := newOutput(1, 1)
	chunk := &engine.Chunk{Text: strings.Repeat("x", maxUnread/2)}
	for range 2 {
		if !o.push(chunk) {
			t.Fatal("1 MiB was too much")
		}
	}
	if o.push(&engine.Chunk{Text: "x"}) {
		t.Fatal("more than 1 MiB was accepted")
	}
}

func TestAReaderThatIsTooSlowIsToBlameAndItsNeighbourGoesOn(t *testing.T) {
	device := small(strings.Repeat("x", 1500))
	device.ContextTokens, device.KVTokens = 2048, 8192
	r := newRig(t, &gate{}, device, nil)
	slow := ask("a", 1500)
	slow.Logprobs, slow.TopLogprobs = true, 20 // so that 1 MiB is made soon
	s, err := r.Generate(context.Background(), slow)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other, err := r.Generate(context.Background(), ask("b", 1500))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if got, _, err := read(other); len(got) != 1500 || err != nil {
		t.Errorf("the neighbour got %d bytes, %v", len(got), err)
	}
	eventually(t, "the slow one has left", func() bool { return r.Stats().Running == 0 })
	got, _, err := read(s)
	if !errors.Is(err, engine.ErrSlowReader) || !strings.Contains(err.Error(), "1024 KiB") || len(got) == 0 {
		t.Errorf("the slow one got %d bytes and ended with %v", len(got), err)
	}
	if err := r.Health(context.Background()); err != nil {
		t.Errorf("the engine says %v", err)
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	g := &gate{}
	r := newRig(t, g, small(strings.Repeat("x", 250)), nil)
	s, err := r.Generate(context.Background(), ask("a", 200))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, last, err := read(s); !errors.Is(err, engine.ErrClosed) && last.Finish == "" {
		t.Fatalf("stream ended with %+v, %v", last, err)
	}
	if err := r.Health(context.Background()); !errors.Is(err, engine.ErrClosed) {
		t.Fatalf("health is %v", err)
	}
}

func TestRequestsThatCanNeverRunNameTheirFieldAndTheNumbers(t *testing.T) {
	r := newRig(t, &gate{}, small("x"), nil)
	x := engine.Prompt{Text: "x"}
	for name, c := range map[string]struct {
		request engine.Request
		want    engine.InvalidError
	}{
		"a token outside the vocabulary": {engine.Request{Prompt: engine.Prompt{Tokens: []engine.Token{258}}},
			engine.InvalidError{Field: "prompt", Message: "token 258 at index 0 is outside the vocabulary of 258"}},
		"an empty text": {engine.Request{},
			engine.InvalidError{Field: "prompt", Message: "the prompt has no tokens"}},
		"a prompt beyond the context": {engine.Request{Prompt: engine.Prompt{Text: strings.Repeat("x", 256)}},
			engine.InvalidError{Field: "prompt", Code: engine.CodeContextLength, Message: "the prompt has 256 tokens; the context holds 256, output included"}},
		"a chat beyond the context": {*ask(strings.Repeat("x", 300), 1),
			engine.InvalidError{Field: "messages", Code: engine.CodeContextLength, Message: "the prompt has 303 tokens; the context holds 256, output included"}},
		"max_tokens beyond the context": {engine.Request{Prompt: x, MaxTokens: 256},
			engine.InvalidError{Field: "max_tokens", Code: engine.CodeContextLength, Message: "the prompt has 1 tokens and max_tokens is 256; the context holds 256"}},
		"min_tokens above max_tokens": {engine.Request{Prompt: x, MaxTokens: 2, MinTokens: 3},
			engine.InvalidError{Field: "min_tokens", Message: "min_tokens is 3; the request may make 0 to 2 tokens"}},
		"too many choices": {engine.Request{Prompt: x, Choices: 129},
			engine.InvalidError{Field: "n", Message: "n is 129; 1 to 128 are possible"}},
		"a bias for no token": {engine.Request{Prompt: x, Sampling: engine.Sampling{LogitBias: map[engine.Token]float32{258: 1}}},
			engine.InvalidError{Field: "logit_bias", Message: "token 258 is outside the vocabulary of 258"}},
		"an adapter that is not there": {engine.Request{Prompt: x, Adapter: "a"},
			engine.InvalidError{Field: "model", Code: "model_not_found", Message: `adapter "a" is not loaded`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.Generate(context.Background(), &c.request)
			if bad := (*engine.InvalidError)(nil); !errors.As(err, &bad) || *bad != c.want {
				t.Fatalf("got %v, want %v", err, &c.want)
			}
		})
	}
}

func TestRatesCountOnlyTimeWithWork(t *testing.T) {
	var r rate
	if r.perSecond() != nil {
		t.Fatal("a rate without work is known")
	}
	for range 100 { // 20 s of work, of which the last 10 s count
		r.add(200*time.Millisecond, 4)
	}
	for range 50 {
		r.add(200*time.Millisecond, 8)
	}
	if got := *r.perSecond(); got != 40 {
		t.Fatalf("got %v tokens per second, want 40", got)
	}
	if len(r.spans) > 101 {
		t.Fatalf("%d spans are kept", len(r.spans))
	}
}
