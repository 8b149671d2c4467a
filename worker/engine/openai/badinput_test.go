package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// odd are answers that no sound server gives. Each ends the request that gets it, and nothing else.
var odd = map[string]struct {
	answer func(d *double, w http.ResponseWriter, r *http.Request)
	part   string // of the error
}{
	"200 without a body":            {func(_ *double, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, "not of the protocol"},
	"a stream without an event":     {func(_ *double, w http.ResponseWriter, _ *http.Request) { say(w, "") }, "before the output did"},
	"garbage under a stream's type": {func(_ *double, w http.ResponseWriter, _ *http.Request) { say(w, "\x00\x01<html>\xff\n\n\n") }, "before the output did"},
	"a stream cut within an event": {func(_ *double, w http.ResponseWriter, _ *http.Request) {
		words(w, "a")
		say(w, `data: {"choices":[{"te`)
	}, "not of the protocol"},
	"a connection cut within an event": {func(_ *double, w http.ResponseWriter, _ *http.Request) {
		words(w, "a")
		say(w, `data: {"choices":[{"te`)
		cut(w)
	}, "EOF"},
	"more bytes promised than sent": {func(_ *double, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		words(w, "a")
	}, "EOF"},
	"packed bytes that nobody asked for": {func(_ *double, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		say(w, "\x1f\x8b\x08\x00\x00")
	}, "before the output did"},
	"a line that never ends": {func(_ *double, w http.ResponseWriter, r *http.Request) {
		say(w, "data: ")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<20)); err != nil {
				return
			}
		}
	}, "longer than any"},
	"a token below the vocabulary": {func(_ *double, w http.ResponseWriter, _ *http.Request) {
		say(w, `data: {"choices":[{"text":"a","token_ids":[-1]}]}`+"\n\n")
	}, "token -1, outside the vocabulary of 100"},
	"a token above the vocabulary": {func(_ *double, w http.ResponseWriter, _ *http.Request) {
		say(w, `data: {"choices":[{"text":"a","token_ids":[100]}]}`+"\n\n")
	}, "token 100, outside the vocabulary of 100"},
	"a token that no integer holds": {func(_ *double, w http.ResponseWriter, _ *http.Request) {
		say(w, `data: {"choices":[{"text":"a","token_ids":[99999999999]}]}`+"\n\n")
	}, "not of the protocol"},
	"more tokens than were asked for": {func(d *double, w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			say(w, `data: {"choices":[{"text":"a","token_ids":[1]}]}`+"\n\n")
		}
	}, "of at most 8 tokens"},
	"more text than so many tokens can have": {func(d *double, w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			say(w, `data: {"choices":[{"text":"a"}]}`+"\n\n")
		}
	}, "of at most 8 tokens"},
	"more calls of tools than anybody makes": {func(_ *double, w http.ResponseWriter, _ *http.Request) {
		var b strings.Builder
		for i := range 10_000 {
			fmt.Fprintf(&b, `,{"index":%d,"id":"c%d","function":{"name":"f"}}`, i, i)
		}
		say(w, `data: {"choices":[{"delta":{"tool_calls":[`+b.String()[1:]+`]}}]}`+"\n\n")
	}, "calls of tools"},
}

func TestAnOddAnswerEndsOneRequestAndLeavesItsNeighbourAlone(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	next := make(chan string)
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, r *http.Request, body map[string]any) {
			name, _ := body["prompt"].(string)
			if c, ok := odd[name]; ok {
				c.answer(d, w, r)
				return
			}
			words(w, "begun")
			for word := range next {
				words(w, word)
			}
			speak(w)
		}
	})
	neighbour := text("neighbour")
	neighbour.MaxTokens = 0
	s, err := w.Generate(context.Background(), neighbour)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // only cancels
	want := "begun"
	for name, c := range odd {
		_, _, err := run(w, text(name))
		if err == nil || isInvalid(err) || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%s: the error is %v, want %q in it", name, err, c.part)
		}
		next <- name
		want += name
		wait(t, name+": only the neighbour is inside", func() bool { return d.streams() == 1 && len(w.Stats().RequestIDs) == 1 })
	}
	close(next)
	if got, last, err := all(s); got != want || last.Finish != engine.FinishStop || err != nil {
		t.Errorf("the neighbour got %q, %+v, %v", got, last, err)
	}
	if state, _ := w.State(); !state.Loaded || state.Epoch != 1 {
		t.Errorf("the state is %+v", state)
	}
}

func TestRequestsThatEndBadlyTakeNoPlaces(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d, func(o *Options) { o.MaxSequences, o.MaxWaiting = 1, 0 })
	good := d.generate
	for name, generate := range map[string]func(http.ResponseWriter, *http.Request, map[string]any){
		"a gateway's error":   func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { w.WriteHeader(http.StatusBadGateway) },
		"a refusal":           func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { w.WriteHeader(http.StatusBadRequest) },
		"a cut connection":    func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { cut(w) },
		"a cut stream":        func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { words(w, "a"); cut(w) },
		"a stream to no end":  func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { words(w, "a") },
		"what is no stream":   func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { fmt.Fprint(w, "{}") },
		"a reason to give up": func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { say(w, `data: {"error":"no"}`+"\n\n") },
	} {
		d.change(func(d *double) { d.generate = generate })
		for range 20 {
			if _, _, err := run(w, text("a")); err == nil || errors.Is(err, engine.ErrBusy) {
				t.Fatalf("%s: the error is %v", name, err)
			}
		}
		d.change(func(d *double) { d.generate = good })
		if _, _, err := run(w, text("a")); err != nil {
			t.Errorf("after 20 times %s: %v", name, err)
		}
		wait(t, "its place is free", func() bool { return len(w.Stats().RequestIDs) == 0 })
	}
}

func TestARequestThatIsCancelledLeavesItsNeighbourAlone(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	next := make(chan struct{})
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, r *http.Request, body map[string]any) {
			if body["prompt"] == "short" {
				d.hang(r)
				return
			}
			words(w, "a")
			for range next {
				words(w, "a")
			}
			speak(w)
		}
	})
	long := text("long")
	long.MaxTokens = 0
	s, err := w.Generate(context.Background(), long)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // only cancels
	for range 100 {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { _, err := w.Generate(ctx, text("short")); ended <- err }()
		wait(t, "both are inside", func() bool { return d.streams() == 2 })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("the cancelled request ended with %v", err)
		}
		next <- struct{}{}
		wait(t, "one is left", func() bool { return d.streams() == 1 })
	}
	close(next)
	if got, _, err := all(s); got != strings.Repeat("a", 101) || err != nil {
		t.Errorf("the other got %d bytes, %v", len(got), err)
	}
}

func TestASlowStreamThatGoesOnIsNeverCut(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d) // stalls after 30 s
	next := make(chan struct{})
	d.change(func(d *double) {
		d.generate = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			words(w, "a")
			for range next {
				words(w, "a")
			}
			speak(w)
		}
	})
	slow := text("slow")
	slow.MaxTokens = 0
	s, err := w.Generate(context.Background(), slow)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // only cancels
	got := 0
	for range 30 { // of 20 s: ten minutes
		if _, err := s.Next(); err != nil {
			t.Fatalf("after %d tokens: %v", got, err)
		}
		got++
		begin := w.clock.Now()
		w.pass("20 s pass", func() bool { return w.clock.Since(begin) >= 20*time.Second })
		next <- struct{}{}
	}
	close(next)
	if _, last, err := all(s); last.Finish != engine.FinishStop || err != nil {
		t.Errorf("it ended with %+v, %v", last, err)
	}
}

// keepsAwake writes without end what is no sign of work.
func keepsAwake(line string) func(http.ResponseWriter, *http.Request, map[string]any) {
	return func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		for tick := time.NewTicker(time.Millisecond); r.Context().Err() == nil; <-tick.C {
			say(w, line)
		}
	}
}

func TestSignsOfLifeWithoutWorkAreAStall(t *testing.T) {
	for name, line := range map[string]string{
		"comments":                   ": ping\n\n",
		"events without data":        "event: ping\n\n",
		"events without choices":     `data: {"choices":[]}` + "\n\n",
		"choices without output":     `data: {"choices":[{"text":"","delta":{"content":"","tool_calls":[]}}]}` + "\n\n",
		"the prompt's length anew":   `data: {"choices":[],"usage":{"prompt_tokens":5}}` + "\n\n",
		"empty lines without an end": "\n",
	} {
		d := newDouble(t, "vllm")
		d.generate = keepsAwake(line)
		w := watchIt(t, d)
		ended := make(chan error, 1)
		go func() { _, _, err := run(w, text("a")); ended <- err }()
		if s := w.until(name+" are a stall", func(s State) bool { return !s.Loaded }); s.Reason != Stalled {
			t.Errorf("%s: the state is %+v", name, s)
		}
		if err := <-ended; !errors.Is(err, ErrStalled) {
			t.Errorf("%s: the request ended with %v", name, err)
		}
	}
}

func TestAnErrorWhoseBodyNeverComesIsAStall(t *testing.T) {
	d := newDouble(t, "vllm")
	d.generate = func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		w.WriteHeader(http.StatusInternalServerError)
		w.(http.Flusher).Flush()
		d.hang(r)
	}
	w := watchIt(t, d)
	ended := make(chan error, 1)
	go func() { _, _, err := run(w, text("a")); ended <- err }()
	w.until("it is stalled", func(s State) bool { return s.Reason == Stalled })
	if err := <-ended; !errors.Is(err, ErrStalled) {
		t.Errorf("the request ended with %v", err)
	}
}

func TestAnAnswerThatNeverComesEndsAfterTheStallTime(t *testing.T) {
	for name, ask := range map[string]func(*watched) error{
		"tokens": func(w *watched) error {
			_, err := w.Tokenize(context.Background(), engine.Prompt{Text: "a"})
			return err
		},
		"embeddings": func(w *watched) error {
			_, err := w.Embed(context.Background(), &engine.EmbedRequest{Inputs: []engine.Prompt{{Text: "a"}}})
			return err
		},
	} {
		d := newDouble(t, "vllm")
		d.paths[embeddingsPath] = embedding(false)
		w := watchIt(t, d)
		hangs := func(_ http.ResponseWriter, r *http.Request, _ map[string]any) {
			d.count(1)
			defer d.count(-1)
			d.hang(r)
		}
		d.change(func(d *double) { d.paths["/tokenize"], d.paths[embeddingsPath] = hangs, hangs })
		var err error
		var asked sync.WaitGroup
		over := make(chan struct{})
		asked.Go(func() { defer close(over); err = ask(w) })
		wait(t, name+" are asked for", func() bool { return d.streams() == 1 })
		w.pass(name+": the call ends", func() bool {
			select {
			case <-over:
				return true
			default:
				return false
			}
		})
		asked.Wait()
		if !errors.Is(err, ErrStalled) {
			t.Errorf("%s: the error is %v", name, err)
		}
		wait(t, name+": the connection is closed", func() bool { return d.streams() == 0 })
	}
}

func TestOddTokensOfThePromptAreNone(t *testing.T) {
	d := newDouble(t, "vllm")
	w := watchIt(t, d)
	for name, answer := range map[string]string{
		"nothing": "", "garbage": "<html>", "no tokens": `{}`, "null": `{"tokens":null}`, "one below the vocabulary": `{"tokens":[1,-1]}`,
		"one above the vocabulary": `{"tokens":[100]}`, "texts": `{"tokens":["a"]}`,
	} {
		d.change(func(d *double) {
			d.paths["/tokenize"] = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { fmt.Fprint(w, answer) }
		})
		if got, err := w.Tokenize(context.Background(), engine.Prompt{Text: "a"}); err == nil || isInvalid(err) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestEmbeddingsOfSeveralLengthsAreAnError(t *testing.T) {
	d := newDouble(t, "vllm")
	d.paths[embeddingsPath] = embedding(false)
	w := watchIt(t, d)
	d.change(func(d *double) {
		d.paths[embeddingsPath] = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			fmt.Fprint(w, `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,1]}]}`)
		}
	})
	got, err := w.Embed(context.Background(), &engine.EmbedRequest{Inputs: []engine.Prompt{{Text: "a"}, {Text: "b"}}})
	if err == nil || isInvalid(err) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestFiguresThatCantBeAreUnknown(t *testing.T) {
	for name, page := range map[string]string{
		"too many requests":  "vllm:num_requests_running 1e300\nvllm:num_requests_waiting 1e300\n",
		"too many tokens":    "vllm:prefix_cache_queries_total 1e30\nvllm:prefix_cache_hits_total 1e25\n",
		"too many blocks":    "vllm:cache_config_info{block_size=\"9007199254740991\",num_gpu_blocks=\"9007199254740991\"} 1\nvllm:kv_cache_usage_perc 1\n",
		"too long a prefill": "vllm:num_preemptions_total 1e19\n",
	} {
		f, err := parseMetrics(strings.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		d := &Driver{o: Options{MaxSequences: 4}, about: about{kind: VLLM}, seen: f}
		s := d.Stats()
		bad := s.Running < 0 || s.Waiting < 0 || s.Running > math.MaxInt32 || s.Waiting > math.MaxInt32
		for _, n := range []*int64{s.CacheQueries, s.CacheHits, s.KVBlocksTotal, s.KVBlocksUsed, s.Preemptions} {
			bad = bad || n != nil && (*n < 0 || *n > 1<<53)
		}
		if bad {
			t.Errorf("%s: the figures are %+v", name, s)
		}
	}
}

func TestWhatAServerSaysOfItselfThatCantBeIsUnknown(t *testing.T) {
	for name, said := range map[string]string{
		"negative": "-1", "beyond any model": "9223372036854775807",
	} {
		d := newDouble(t, "llamacpp")
		d.paths[modelsPath] = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			fmt.Fprintf(w, `{"data":[{"id":"m","owned_by":"llamacpp","max_model_len":%s,"meta":{"n_vocab":%s}}]}`, said, said)
		}
		d.paths["/props"] = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			fmt.Fprintf(w, `{"total_slots":%s,"default_generation_settings":{"n_ctx":%s}}`, said, said)
		}
		w := watchIt(t, d, func(o *Options) { o.ContextTokens = 99 })
		if i := w.Info(); i.ContextTokens != 99 || i.Vocab != 0 || i.Caps.MaxSeqs != 4 {
			t.Errorf("%s: it is described as %+v", name, i)
		}
		if _, _, err := run(w, text("a")); err != nil {
			t.Errorf("%s: a request ended with %v", name, err)
		}
	}
}

// asking puts a question to a server that does not answer it before refuse is called, and returns how it ends.
func asking(t *testing.T, d *double, w *watched) (ended <-chan error, refuse func()) {
	t.Helper()
	refused := make(chan struct{})
	d.change(func(d *double) {
		d.paths[embeddingsPath] = func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			d.count(1)
			defer d.count(-1)
			select {
			case <-refused:
			case <-r.Context().Done():
			}
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	end := make(chan error, 1)
	go func() {
		_, err := w.Embed(context.Background(), &engine.EmbedRequest{ID: "e", Inputs: []engine.Prompt{{Text: "a"}}})
		end <- err
	}()
	wait(t, "it is asked", func() bool { return d.streams() == 1 })
	return end, func() { close(refused) }
}

func TestCloseEndsAQuestionThatIsNotAnswered(t *testing.T) {
	d := newDouble(t, "vllm")
	d.paths[embeddingsPath] = embedding(false)
	w := watchIt(t, d)
	ended, _ := asking(t, d, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, engine.ErrClosed) {
		t.Errorf("it ended with %v", err)
	}
}

func TestADrainWaitsForEmbeddings(t *testing.T) {
	d := newDouble(t, "vllm")
	d.paths[embeddingsPath] = embedding(false)
	w := watchIt(t, d)
	ended, refuse := asking(t, d, w)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.Drain(over); !errors.Is(err, context.Canceled) {
		t.Errorf("with embeddings inside the drain ended with %v", err)
	}
	refuse()
	<-ended
	if err := w.Drain(context.Background()); err != nil {
		t.Errorf("without them it ended with %v", err)
	}
}

func TestMoreEmbeddingsThanTheBoundAreBusy(t *testing.T) {
	d := newDouble(t, "vllm")
	d.paths[embeddingsPath] = embedding(false)
	w := watchIt(t, d, func(o *Options) { o.MaxSequences, o.MaxWaiting = 1, 0 })
	ended, refuse := asking(t, d, w)
	if s := w.Stats(); s.Running+s.Waiting != 1 || len(s.RequestIDs) != 1 {
		t.Errorf("the figures are %+v", s)
	}
	if _, err := w.Embed(context.Background(), &engine.EmbedRequest{Inputs: []engine.Prompt{{Text: "a"}}}); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("the second ended with %v", err)
	}
	refuse()
	<-ended
	if s := w.Stats(); s.Running+s.Waiting != 0 {
		t.Errorf("afterwards the figures are %+v", s)
	}
}

func TestATextThatNoContextHoldsIsNotSent(t *testing.T) {
	d := newDouble(t, "vllm") // of 512 tokens
	w := watchIt(t, d)
	before := d.times(completionPath)
	_, _, err := run(w, text(strings.Repeat("a", 10<<20)))
	invalid := (*engine.InvalidError)(nil)
	if !errors.As(err, &invalid) || invalid.Code != engine.CodeContextLength || !strings.Contains(invalid.Message, "10485760 bytes") {
		t.Errorf("the error is %v", err)
	}
	if n := d.times(completionPath) - before; n != 0 {
		t.Errorf("the server got %d requests", n)
	}
}
