package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/sim"
)

func adapting() sim.Options {
	o := random()
	o.Adapters = true
	return o
}

// with asks for an adapter.
func with(adapter string) *engine.Request {
	q := ask("a", 30)
	q.Adapter = adapter
	return q
}

func TestAdaptersChangeTheTextAndAreUnknownBeforeAndAfter(t *testing.T) {
	r := newRig(t, &gate{}, adapting(), nil)
	ctx, bad := context.Background(), (*engine.InvalidError)(nil)
	if _, err := r.Generate(ctx, with("one")); !errors.As(err, &bad) || bad.Field != "model" {
		t.Fatalf("an adapter that was never loaded: %v", err)
	}
	if err := r.UnloadAdapter(ctx, "one"); !errors.As(err, &bad) {
		t.Fatalf("unloading it: %v", err)
	}
	base := all(t, r, with(""))[0].Text
	if err := r.LoadAdapter(ctx, engine.Adapter{Name: "one", Path: "1"}); err != nil {
		t.Fatal(err)
	}
	first := all(t, r, with("one"))[0].Text
	if err := r.LoadAdapter(ctx, engine.Adapter{Name: "one", Path: "2"}); err != nil {
		t.Fatal(err)
	}
	second := all(t, r, with("one"))[0].Text
	if base == first || first == second || all(t, r, with(""))[0].Text != base {
		t.Fatalf("texts are %q, %q, %q", base, first, second)
	}
	if err := r.LoadAdapter(ctx, engine.Adapter{Name: "one"}); err == nil {
		t.Fatal("a file that can't be read was loaded")
	}
	if got := all(t, r, with("one"))[0].Text; got != second {
		t.Fatalf("after a load that failed: %q, before it %q", got, second)
	}
	if err := r.UnloadAdapter(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Generate(ctx, with("one")); !errors.As(err, &bad) {
		t.Fatalf("an adapter that was unloaded: %v", err)
	}
	none := newRig(t, &gate{}, random(), nil)
	if err := none.LoadAdapter(ctx, engine.Adapter{Name: "one", Path: "1"}); !errors.As(err, &bad) {
		t.Fatalf("an engine without adapters: %v", err)
	}
}

func TestReplacingAnAdapterWaitsForItsRequestsAndLaterOnesWaitForThat(t *testing.T) {
	g := &gate{}
	r := newRig(t, g, adapting(), nil)
	ctx := context.Background()
	load := func(path string) error { return r.LoadAdapter(ctx, engine.Adapter{Name: "one", Path: path}) }
	if err := load("1"); err != nil {
		t.Fatal(err)
	}
	want := all(t, r, with("one"))[0].Text
	g.close()
	old, err := r.Generate(ctx, with("one"))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	var group sync.WaitGroup
	group.Go(func() {
		if err := load("2"); err != nil {
			t.Error(err)
		}
	})
	s := r.Engine.(*scheduler)
	eventually(t, "the change waits", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.controls.changing("one")
	})
	// A caller that goes away while it waits does not hold anything up.
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.Generate(gone, with("one")); !errors.Is(err, context.Canceled) {
		t.Fatalf("a caller that had gone got %v", err)
	}
	group.Go(func() {
		if got := all(t, r, with("one"))[0].Text; got == want {
			t.Errorf("the later request ran with the old adapter: %q", got)
		}
	})
	eventually(t, "the later request waits", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.controls.held == 1
	})
	g.open()
	if got, _, err := read(old); got != want || err != nil {
		t.Errorf("the old request got %q, %v; want %q", got, err, want)
	}
	group.Wait()
}

func TestStreamsOfSeveralAdaptersShareTheStepsAndGetTheirText(t *testing.T) {
	r := newRig(t, &gate{}, adapting(), nil)
	names := []string{"", "one", "two"}
	for _, name := range names[1:] {
		if err := r.LoadAdapter(context.Background(), engine.Adapter{Name: name, Path: name}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{}
	for _, name := range names {
		want[name] = all(t, r, with(name))[0].Text
	}
	var group sync.WaitGroup
	for i := range 30 {
		group.Go(func() {
			name := names[i%3]
			if got := all(t, r, with(name))[0].Text; got != want[name] {
				t.Errorf("adapter %q says %q, alone %q", name, got, want[name])
			}
		})
	}
	group.Wait()
}

func embedder() sim.Options {
	o := small(strings.Repeat("x", 100))
	o.Embeddings = true
	return o
}

func inputs(n, length int) *engine.EmbedRequest {
	q := &engine.EmbedRequest{ID: "e"}
	for i := range n {
		q.Inputs = append(q.Inputs, engine.Prompt{Text: strings.Repeat(string(rune('a'+i%26)), length)})
	}
	return q
}

func TestEmbeddingsComeInTheOrderOfTheirInputs(t *testing.T) {
	r := newRig(t, &gate{}, embedder(), nil)
	got, err := r.Embed(context.Background(), inputs(20, 10)) // 200 tokens in parts of at most 32
	if err != nil || len(got.Vectors) != 20 || got.PromptTokens != 200 {
		t.Fatalf("got %+v, %v", got, err)
	}
	for i := range 20 {
		one, err := r.Embed(context.Background(), &engine.EmbedRequest{Inputs: inputs(20, 10).Inputs[i : i+1]})
		if err != nil || !slices.Equal(one.Vectors[0], got.Vectors[i]) {
			t.Fatalf("input %d: %v, %v; among others %v", i, one, err, got.Vectors[i])
		}
	}
}

func TestEmbeddingsThatCanNotBeMadeAreRefusedWithTheNumbers(t *testing.T) {
	r, none := newRig(t, &gate{}, embedder(), nil), newRig(t, &gate{}, small("x"), nil)
	for name, c := range map[string]struct {
		engine engine.Engine
		q      *engine.EmbedRequest
		want   engine.InvalidError
	}{
		"no inputs":            {r, &engine.EmbedRequest{}, engine.InvalidError{Field: "input", Message: "there are no inputs"}},
		"an empty input":       {r, inputs(2, 0), engine.InvalidError{Field: "input", Message: "input 0 has no tokens"}},
		"a long input":         {r, inputs(1, 257), engine.InvalidError{Field: "input", Code: engine.CodeContextLength, Message: "input 0 has 257 tokens; the context holds 256"}},
		"a model without them": {none, inputs(1, 1), engine.InvalidError{Field: "model", Message: "this model makes no embeddings"}},
		"a token out of range": {r, &engine.EmbedRequest{Inputs: []engine.Prompt{{Tokens: []engine.Token{258}}}}, engine.InvalidError{Field: "prompt", Message: "token 258 at index 0 is outside the vocabulary of 258"}},
		"a chat as an input":   {r, &engine.EmbedRequest{Inputs: []engine.Prompt{{Chat: &engine.Chat{}}}}, engine.InvalidError{Field: "input", Message: "input 0 is a chat"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.engine.Embed(context.Background(), c.q)
			if bad := (*engine.InvalidError)(nil); !errors.As(err, &bad) || *bad != c.want {
				t.Fatalf("got %v, want %v", err, &c.want)
			}
		})
	}
}

// turns notes who has the device: a step or a part of an embedding.
type turns struct {
	*sim.Device
	mu   sync.Mutex // guards seen
	seen []string
}

func (x *turns) note(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = append(x.seen, what)
}

func (x *turns) Step(ctx context.Context, b *engine.Batch) (*engine.Result, error) {
	if len(b.Items) > 0 {
		x.note("step")
	}
	return x.Device.Step(ctx, b)
}

func (x *turns) Embed(ctx context.Context, in [][]engine.Token) ([][]float32, error) {
	n := 0
	for _, i := range in {
		n += len(i)
	}
	x.note(fmt.Sprintf("embed %d", n))
	return x.Device.Embed(ctx, in)
}

func TestEmbeddingsAndStreamsTakeTurns(t *testing.T) {
	device := &turns{}
	g := &gate{wrap: func(d *sim.Device) engine.Executor {
		device.Device = d
		return device
	}}
	r := newRig(t, g, embedder(), nil)
	g.close()
	stream, err := r.Generate(context.Background(), ask("a", 60))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	eventually(t, "the stream's first step", func() bool { return r.Stats().Running == 1 })
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := r.Embed(context.Background(), inputs(30, 20)); err != nil { // 600 tokens
			t.Error(err)
		}
	})
	eventually(t, "the embedding waits", func() bool { return r.Stats().Waiting == 1 })
	g.open()
	if got, _, err := read(stream); len(got) != 60 || err != nil {
		t.Errorf("the stream got %d bytes, %v", len(got), err)
	}
	group.Wait()
	device.mu.Lock()
	defer device.mu.Unlock()
	parts := 0
	for i, what := range device.seen {
		if !strings.HasPrefix(what, "embed") {
			continue
		}
		if parts++; what != "embed 20" { // one input, as two are more than the 32 tokens of a step
			t.Fatalf("a part of %s", what)
		}
		if i+1 < len(device.seen) && device.seen[i+1] != "step" && parts < 30 {
			t.Fatalf("two parts without a step between them: %v", device.seen)
		}
	}
	if parts != 30 {
		t.Fatalf("%d parts", parts)
	}
}

func TestTheQueueOfEmbeddingsIsBoundedAndItsCallersMayLeave(t *testing.T) {
	g := &gate{}
	r := newRig(t, g, embedder(), func(o *Options) { o.MaxWaiting = 2 })
	g.close()
	stream, err := r.Generate(context.Background(), ask("a", 60))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	eventually(t, "the stream runs", func() bool { return r.Stats().Running == 1 })
	gone := errors.New("the caller has gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			if _, err := r.Embed(ctx, inputs(3, 30)); !errors.Is(err, gone) {
				t.Errorf("got %v", err)
			}
		})
	}
	eventually(t, "both wait", func() bool { return r.Stats().Waiting == 2 })
	if _, err := r.Embed(context.Background(), inputs(1, 1)); !errors.Is(err, engine.ErrBusy) {
		t.Fatalf("one more got %v", err)
	}
	cancel(gone)
	group.Wait()
	eventually(t, "nobody waits", func() bool { return r.Stats().Waiting == 0 })
	g.open()
	if _, err := r.Embed(context.Background(), inputs(1, 1)); err != nil {
		t.Fatal(err)
	}
}

func TestClosingEndsEmbeddingsAndChangesOfAdapters(t *testing.T) {
	g := &gate{}
	device := embedder()
	device.Adapters = true
	r := newRig(t, g, device, nil)
	if err := r.LoadAdapter(context.Background(), engine.Adapter{Name: "one", Path: "1"}); err != nil {
		t.Fatal(err)
	}
	g.close()
	stream, err := r.Generate(context.Background(), with("one"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := r.Embed(context.Background(), inputs(3, 30)); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("the embedding got %v", err)
		}
	})
	group.Go(func() {
		if err := r.UnloadAdapter(context.Background(), "one"); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("the change got %v", err)
		}
	})
	s := r.Engine.(*scheduler)
	eventually(t, "both wait", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.controls.embeds) == 1 && len(s.controls.changes) == 1
	})
	s.stop()
	g.open()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	if _, err := r.Embed(context.Background(), inputs(1, 1)); !errors.Is(err, engine.ErrClosed) {
		t.Fatalf("after the close: %v", err)
	}
}

// slowly is a vocabulary that lets a test see when a prompt comes, and waits for it.
type slowly struct {
	sim.Vocabulary
	comes, goes chan struct{}
}

func (v slowly) Tokenize(text string, special bool) ([]engine.Token, error) {
	v.comes <- struct{}{}
	<-v.goes
	return v.Vocabulary.Tokenize(text, special)
}

// changing is a device that does so with adapters.
type changing struct {
	*sim.Device
	comes, goes chan struct{}
}

func (d changing) LoadAdapter(a engine.Adapter) error {
	d.comes <- struct{}{}
	<-d.goes
	return d.Device.LoadAdapter(a)
}

func TestARequestThatCameJustBeforeItsAdapterIsReplacedWaitsForTheNewOne(t *testing.T) {
	device := sim.Options{Text: "hi", ContextTokens: 256, Sequences: 4, KVTokens: 512, Adapters: true}
	words, files := slowly{comes: make(chan struct{}), goes: make(chan struct{})}, changing{comes: make(chan struct{}), goes: make(chan struct{})}
	loaded := sim.New(device)
	loaded.Vocabulary = words
	r := rigOf(t, &gate{wrap: func(d *sim.Device) engine.Executor {
		files.Device = d
		return files
	}}, device, loaded, nil)
	s := r.Engine.(*scheduler)
	var group sync.WaitGroup
	load := func() {
		group.Go(func() {
			if err := r.LoadAdapter(context.Background(), engine.Adapter{Name: "tuned", Path: "tuned.gguf"}); err != nil {
				t.Error(err)
			}
		})
		<-files.comes
	}
	load()
	files.goes <- struct{}{}
	group.Wait()

	q := with("tuned")
	q.Prompt = engine.Prompt{Text: strings.Repeat("a prompt", 8)}
	q.Name = engine.PromptName{Hash: 1, Blocks: 1, Bytes: 64}
	var stream engine.Stream
	var arrived atomic.Bool
	group.Go(func() {
		var err error
		if stream, err = r.Generate(context.Background(), q); err != nil {
			t.Error(err)
		}
		arrived.Store(true)
	})
	<-words.comes
	load()
	words.goes <- struct{}{}
	eventually(t, "the request has come or waits", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return arrived.Load() || s.controls.held == 1
	})
	if arrived.Load() {
		t.Error("the request has come while its adapter was replaced")
	}
	files.goes <- struct{}{}
	group.Wait()
	if _, _, err := read(stream); err != nil {
		t.Error(err)
	}
	_ = stream.Close()
	if news, _, _ := s.Prompts(0, 10); len(news) != 1 || news[0].Held != 1 {
		t.Errorf("%+v", news)
	}
}
