package llamacpp

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hybridgroup/yzma/pkg/llama"
	"go.uber.org/goleak"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// paths returns the pinned library and the demo model.
func paths(t testing.TB) (libs, model string) {
	t.Helper()
	libs, model = os.Getenv("RINGFLEET_TEST_LIBS"), os.Getenv("RINGFLEET_TEST_WEIGHTS")
	if libs == "" || model == "" {
		t.Fatal("RINGFLEET_TEST_LIBS and RINGFLEET_TEST_WEIGHTS are not set: run make unit, or export " +
			"RINGFLEET_TEST_LIBS=$(go run ./hack/image libs) RINGFLEET_TEST_WEIGHTS=$(go run ./hack/image weights)")
	}
	return libs, model
}

func options(t testing.TB) Options {
	libs, model := paths(t)
	return Options{LibraryDir: libs, WeightsPath: model, ContextTokens: 1024, MaxSequences: 8, KVType: F16, Threads: 1,
		Logger: slog.New(slog.DiscardHandler)}
}

// open loads the demo model with changes to its options.
func open(t testing.TB, change ...func(*Options)) *engine.Loaded {
	t.Helper()
	o := options(t)
	for _, c := range change {
		c(&o)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Executor.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func step(t testing.TB, x engine.Executor, b engine.Batch) [][]float32 {
	t.Helper()
	r, err := x.Step(context.Background(), &b)
	if err != nil {
		t.Fatal(err)
	}
	return r.Logits
}

func chat(t testing.TB, v engine.Vocabulary, messages string) []engine.Token {
	t.Helper()
	text, err := v.Render(engine.Chat{Messages: []byte(messages)})
	if err != nil {
		t.Fatal(err)
	}
	return tokens(t, v, text)
}

func tokens(t testing.TB, v engine.Vocabulary, text string) []engine.Token {
	t.Helper()
	out, err := v.Tokenize(text, true)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func greedy(t testing.TB, logits []float32) engine.Token {
	t.Helper()
	choice, err := sampling.New(engine.Sampling{}, sampling.Options{}).Next(logits)
	if err != nil {
		t.Fatal(err)
	}
	return choice.Token
}

// generate continues prompt greedily for at most n tokens in a sequence, and returns the text and the pieces' tokens.
func generate(t testing.TB, l *engine.Loaded, seq engine.Seq, prompt []engine.Token, n int) (string, []engine.Token) {
	t.Helper()
	var text strings.Builder
	var out []engine.Token
	pos, next := 0, prompt
	for range n {
		logits := step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: seq, Pos: pos, Tokens: next, Logits: true}}})
		pos += len(next)
		token := greedy(t, logits[0])
		if l.Vocabulary.EndsGeneration(token) {
			break
		}
		text.Write(l.Vocabulary.Piece(token))
		out = append(out, token)
		next = []engine.Token{token}
	}
	return text.String(), out
}

// paris has a system message of its own: with the template's, the weights of four bits answer in French verse.
const paris = `[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"What is the capital of France?"}]`

func TestTheDemoModelKnowsTheCapitalOfFrance(t *testing.T) {
	var percents []int
	l := open(t, func(o *Options) { o.Progress = func(p int) { percents = append(percents, p) } })
	text, out := generate(t, l, 0, chat(t, l.Vocabulary, paris), 40)
	if !strings.Contains(text, "Paris") || len(out) > 20 {
		t.Errorf("the answer is %q (%d tokens)", text, len(out))
	}
	if len(percents) == 0 || !slices.IsSorted(percents) || percents[len(percents)-1] != 100 {
		t.Errorf("the percentages were %v", percents)
	}
	i := l.Info
	if i.ContextTokens != 1024 || i.Vocab != 49152 || !strings.Contains(i.Model, "Smollm2 135M") || i.Caps.KVTokens != 1024 ||
		i.Caps.MaxSeqs != 8 || i.Caps.MaxStepTokens != 512 || i.Caps.KVBytesPerToken != 30*2*192*2 || !i.Caps.AbortMidStep ||
		!strings.Contains(i.Caps.Device, "1 thread") {
		t.Errorf("the model is described as %+v", i)
	}
}

func TestASmallerTrainingContextBoundsARequest(t *testing.T) {
	l := open(t, func(o *Options) { o.ContextTokens = 8448; o.KVType = Q8 })
	if l.Info.ContextTokens != 8192 || l.Executor.Caps().KVTokens != 8448 || l.Executor.Caps().KVBytesPerToken != 30*2*192/32*34 {
		t.Errorf("the model is described as %+v", l.Info)
	}
	if text, _ := generate(t, l, 0, tokens(t, l.Vocabulary, "The capital of France is the city of"), 1); text != " Paris" {
		t.Errorf("with a cache of Q8 the answer is %q", text)
	}
}

// distance is the greatest difference of two rows of logits. A step's shape changes the order of additions, and with
// quantised weights the differences seen are below 0.5 where logits spread over some 40.
func distance(a, b []float32) float64 {
	most := 0.0
	for i := range a {
		most = math.Max(most, math.Abs(float64(a[i]-b[i])))
	}
	return most
}

const tolerance = 1.0

func TestSequencesOfABatchAreAsAlone(t *testing.T) {
	l := open(t)
	texts := []string{"The quick brown fox jumps over the lazy", "Water boils at a temperature of", "In the beginning God created the heaven and the"}
	var alone [][]float32
	for i, text := range texts {
		prompt := tokens(t, l.Vocabulary, text)
		alone = append(alone, slices.Clone(step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: 7, Tokens: prompt, Logits: true}}})[0]))
		step(t, l.Executor, engine.Batch{KV: []engine.KVOp{{Kind: engine.KVDrop, Dst: 7}}})
		if i > 0 && distance(alone[0], alone[i]) < 2*tolerance {
			t.Fatalf("prompts 0 and %d have nearly equal logits, so the test compares nothing", i)
		}
	}
	var items []engine.Item
	for i, text := range texts {
		items = append(items, engine.Item{Seq: engine.Seq(i), Tokens: tokens(t, l.Vocabulary, text), Logits: i != 1})
	}
	together := step(t, l.Executor, engine.Batch{Items: items})
	if together[1] != nil {
		t.Error("an item that asked for no logits got some")
	}
	for _, i := range []int{0, 2} {
		if d := distance(alone[i], together[i]); d > tolerance || greedy(t, alone[i]) != greedy(t, together[i]) {
			t.Errorf("sequence %d: logits differ by %.3f, tokens are %d and %d", i, d, greedy(t, alone[i]), greedy(t, together[i]))
		}
	}
}

func TestAForkSharesItsPrefixAndGoesItsOwnWay(t *testing.T) {
	l := open(t)
	prefix := tokens(t, l.Vocabulary, "Here is a list of capitals. Germany: Berlin. Italy: Rome. Spain: Madrid.")
	france, japan := tokens(t, l.Vocabulary, " France:"), tokens(t, l.Vocabulary, " Japan:")
	step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: 0, Tokens: prefix}}})
	both := step(t, l.Executor, engine.Batch{
		KV: []engine.KVOp{{Kind: engine.KVFork, Src: 0, Dst: 1, N: len(prefix)}},
		Items: []engine.Item{{Seq: 0, Pos: len(prefix), Tokens: france, Logits: true},
			{Seq: 1, Pos: len(prefix), Tokens: japan, Logits: true}},
	})
	a, b := slices.Clone(both[0]), slices.Clone(both[1])
	for i, rest := range [][]engine.Token{france, japan} {
		whole := step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: engine.Seq(2 + i), Tokens: append(slices.Clone(prefix), rest...), Logits: true}}})[0]
		forked := [][]float32{a, b}[i]
		if d := distance(whole, forked); d > tolerance || greedy(t, whole) != greedy(t, forked) {
			t.Errorf("fork %d: logits differ by %.3f", i, d)
		}
	}
	if greedy(t, a) == greedy(t, b) {
		t.Error("both forks go on alike")
	}
	if used := l.Executor.(*executor).ledger.used; used != 3*len(prefix)+2*len(france)+2*len(japan) {
		t.Errorf("%d cells are used: the fork's prefix is not shared", used)
	}
}

func TestATruncatedSequenceGoesOnFromThere(t *testing.T) {
	l := open(t)
	prompt := tokens(t, l.Vocabulary, "The capital of France is")
	other := tokens(t, l.Vocabulary, " banana banana banana")
	want := slices.Clone(step(t, l.Executor, engine.Batch{Items: []engine.Item{{Tokens: prompt, Logits: true}}})[0])
	step(t, l.Executor, engine.Batch{Items: []engine.Item{{Pos: len(prompt), Tokens: other}}})
	cut := len(prompt) - 2
	got := step(t, l.Executor, engine.Batch{
		KV:    []engine.KVOp{{Kind: engine.KVTruncate, N: cut}},
		Items: []engine.Item{{Pos: cut, Tokens: prompt[cut:], Logits: true}},
	})[0]
	if d := distance(want, got); d > tolerance || greedy(t, want) != greedy(t, got) {
		t.Errorf("logits differ by %.3f", d)
	}
}

func TestWithoutFreeCellsAStepChangesNothing(t *testing.T) {
	l := open(t, func(o *Options) { o.ContextTokens = 256 })
	prompt := tokens(t, l.Vocabulary, "The capital of France is")
	step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: 0, Tokens: prompt}}})
	long := slices.Repeat(prompt, 256/len(prompt)-1)
	_, err := l.Executor.Step(t.Context(), &engine.Batch{
		KV:    []engine.KVOp{{Kind: engine.KVFork, Src: 0, Dst: 1, N: 3}, {Kind: engine.KVTruncate, Dst: 0, N: 3}},
		Items: []engine.Item{{Seq: 2, Tokens: append(long, make([]engine.Token, 256-len(long)-2)...)}},
	})
	if !errors.Is(err, engine.ErrNoKV) {
		t.Fatalf("got %v", err)
	}
	// Sequence 0 still has all of its cells, so it goes on at its end and says Paris; 1 and 2 have none.
	items := []engine.Item{{Seq: 0, Pos: len(prompt), Tokens: tokens(t, l.Vocabulary, " the city of"), Logits: true},
		{Seq: 1, Tokens: prompt}, {Seq: 2, Tokens: prompt}}
	got := greedy(t, step(t, l.Executor, engine.Batch{Items: items})[0])
	if piece := string(l.Vocabulary.Piece(got)); piece != " Paris" {
		t.Errorf("sequence 0 goes on with %q", piece)
	}
}

func TestEveryCellCanBeUsed(t *testing.T) {
	l := open(t, func(o *Options) { o.ContextTokens = 256; o.MaxSequences = 256 })
	var items []engine.Item
	for s := range 128 {
		items = append(items, engine.Item{Seq: engine.Seq(s), Tokens: []engine.Token{10, 20}, Logits: s%8 == 0})
	}
	step(t, l.Executor, engine.Batch{Items: items})
	_, err := l.Executor.Step(t.Context(), &engine.Batch{Items: []engine.Item{{Seq: 200, Tokens: []engine.Token{1}}}})
	if !errors.Is(err, engine.ErrNoKV) {
		t.Fatalf("the 257th cell: %v", err)
	}
	step(t, l.Executor, engine.Batch{KV: []engine.KVOp{{Kind: engine.KVDrop, Dst: 64}},
		Items: []engine.Item{{Seq: 255, Tokens: []engine.Token{1, 2}, Logits: true}}})
}

// ending is a context that ends when its Err has been asked for n times: within a step, at a place that doesn't depend on
// the machine.
type ending struct {
	context.Context
	mu   sync.Mutex
	left int
}

func (e *ending) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left--; e.left >= 0 {
		return nil
	}
	return context.Canceled
}

func TestAStepThatIsBrokenOffIsNoError(t *testing.T) {
	var log bytes.Buffer
	path := written(t, small())
	l := open(t, func(o *Options) {
		o.WeightsPath, o.Logger = path, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	log.Reset() // of what the load has to say
	b := engine.Batch{Items: []engine.Item{{Tokens: inputsOf(300)[0], Logits: true}}}
	if _, err := l.Executor.Step(&ending{Context: context.Background(), left: 5}, &b); !errors.Is(err, engine.ErrAborted) {
		t.Fatal(err)
	}
	if log.Len() > 0 {
		t.Errorf("it is logged as one: %s", log.String())
	}
	step(t, l.Executor, b)
	lines.write(llama.LogLevelError, "a real one\n")
	if !strings.Contains(log.String(), "a real one") {
		t.Error("after it errors aren't logged")
	}
}

func TestAStepWithoutAPromptRunsToItsEndAndAsksNobody(t *testing.T) {
	path := written(t, small())
	l := open(t, func(o *Options) { o.WeightsPath = path })
	inputs := inputsOf(4)[0]
	step(t, l.Executor, engine.Batch{Items: []engine.Item{{Tokens: inputs[:2]}}}) // a prompt, which does ask
	ctx := &ending{Context: context.Background(), left: 1000}
	for i, token := range inputs[2:] {
		b := engine.Batch{Items: []engine.Item{{Pos: 2 + i, Tokens: []engine.Token{token}, Logits: true}}}
		if _, err := l.Executor.Step(ctx, &b); err != nil {
			t.Fatal(err)
		}
	}
	if asked := 1000 - ctx.left; asked > 2 {
		t.Errorf("it asked its context %d times in two steps, besides once before each", asked)
	}
	ctx.left = 5
	if _, err := l.Executor.Step(ctx, &engine.Batch{Items: []engine.Item{{Seq: 1, Tokens: inputs}}}); !errors.Is(err, engine.ErrAborted) {
		t.Errorf("the next prompt does not ask: %v", err)
	}
}

func TestAStepEndsSoonAfterItsContext(t *testing.T) {
	l := open(t)
	prompt := tokens(t, l.Vocabulary, "The capital of France is")
	step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: 1, Tokens: prompt}}})
	long := slices.Repeat(prompt, 300/len(prompt))
	for _, after := range []int{0, 5, 700} { // before, within the first and within the second part of the step
		ctx := &ending{Context: context.Background(), left: after}
		_, err := l.Executor.Step(ctx, &engine.Batch{
			KV:    []engine.KVOp{{Kind: engine.KVFork, Src: 1, Dst: 2, N: len(prompt)}},
			Items: []engine.Item{{Seq: 0, Tokens: long, Logits: true}, {Seq: 3, Tokens: prompt}},
		})
		if !errors.Is(err, engine.ErrAborted) {
			t.Fatalf("after %d looks: %v", after, err)
		}
		if ctx.left < -20 {
			t.Errorf("after %d looks: the library went on for %d more", after, -ctx.left)
		}
	}
	// What the step had filled is free again, the operations before it are done, and others have kept their cells.
	got := step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: 0, Tokens: prompt, Logits: true},
		{Seq: 2, Pos: len(prompt), Tokens: tokens(t, l.Vocabulary, " the city of"), Logits: true}}})
	if piece := string(l.Vocabulary.Piece(greedy(t, got[1]))); piece != " Paris" {
		t.Errorf("sequence 2 goes on with %q", piece)
	}
	if used := l.Executor.(*executor).ledger.used; used != 2*len(prompt)+3 {
		t.Errorf("%d cells are used", used)
	}
}

func TestAPrefillThatIsBrokenOffLeavesItsNeighboursAsTheyWere(t *testing.T) {
	l, alone := openMade(t, small()), openMade(t, small())
	open := func(l *engine.Loaded) {
		step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: 1, Tokens: someTokens}}})
	}
	next := func(l *engine.Loaded) []float32 {
		return slices.Clone(step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: 1, Pos: len(someTokens), Tokens: []engine.Token{7}, Logits: true}}})[0])
	}
	open(l)
	open(alone)
	long := inputsOf(900)[0]
	step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: 0, Tokens: long[:stepTokens]}}})
	ctx := &ending{Context: context.Background(), left: 40}
	_, err := l.Executor.Step(ctx, &engine.Batch{Items: []engine.Item{{Seq: 0, Pos: stepTokens, Tokens: long[stepTokens:]}}})
	if !errors.Is(err, engine.ErrAborted) || ctx.left < -20 {
		t.Fatalf("%v after %d looks more", err, -ctx.left)
	}
	if got, want := next(l), next(alone); !slices.Equal(got, want) {
		t.Errorf("the neighbour's logits are %g off", distance(got, want))
	}
	// The cells of the first step are still there, and the prefill can go on.
	step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: 0, Pos: stepTokens, Tokens: long[stepTokens:]}}})
}

func TestBatchesThatBreakTheContractChangeNothing(t *testing.T) {
	l := open(t)
	prompt := tokens(t, l.Vocabulary, "The capital of France is")
	step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: 0, Tokens: prompt}}})
	one := []engine.Token{5}
	cases := map[string]engine.Batch{
		"a gap":                   {Items: []engine.Item{{Seq: 0, Pos: len(prompt) + 1, Tokens: one}}},
		"a position twice":        {Items: []engine.Item{{Seq: 0, Pos: len(prompt) - 1, Tokens: one}}},
		"an unknown token":        {Items: []engine.Item{{Seq: 1, Tokens: []engine.Token{49152}}}},
		"a negative token":        {Items: []engine.Item{{Seq: 1, Tokens: []engine.Token{-1}}}},
		"an unknown sequence":     {Items: []engine.Item{{Seq: 8, Tokens: one}}},
		"a negative sequence":     {Items: []engine.Item{{Seq: -1, Tokens: one}}},
		"an item without tokens":  {Items: []engine.Item{{Seq: 1}}},
		"a sequence twice":        {Items: []engine.Item{{Seq: 1, Tokens: one}, {Seq: 1, Pos: 1, Tokens: one}}},
		"too many tokens":         {Items: []engine.Item{{Seq: 1, Tokens: make([]engine.Token, 513)}}},
		"a fork of too much":      {KV: []engine.KVOp{{Kind: engine.KVFork, Src: 0, Dst: 1, N: len(prompt) + 1}}},
		"a fork to itself":        {KV: []engine.KVOp{{Kind: engine.KVFork, Src: 0, Dst: 0, N: 1}}},
		"a fork to nowhere":       {KV: []engine.KVOp{{Kind: engine.KVFork, Src: 0, Dst: 99, N: 1}}},
		"a negative cut":          {KV: []engine.KVOp{{Kind: engine.KVTruncate, Dst: 0, N: -1}}},
		"a good drop, then a gap": {KV: []engine.KVOp{{Kind: engine.KVDrop, Dst: 0}}, Items: []engine.Item{{Seq: 0, Pos: 1, Tokens: one}}},
		"an operation of no kind": {KV: []engine.KVOp{{Kind: 17, Dst: 0}}},
	}
	for name, b := range cases {
		_, err := l.Executor.Step(t.Context(), &b)
		if err == nil || errors.Is(err, engine.ErrFatal) || errors.Is(err, engine.ErrNoKV) {
			t.Errorf("%s: %v", name, err)
		}
	}
	got := step(t, l.Executor, engine.Batch{Items: []engine.Item{{Pos: len(prompt), Tokens: tokens(t, l.Vocabulary, " the city of"), Logits: true}}})
	if piece := string(l.Vocabulary.Piece(greedy(t, got[0]))); piece != " Paris" {
		t.Errorf("the sequence goes on with %q", piece)
	}
}

func TestAFailedPassQuotesTheLinesOfThatPassOnly(t *testing.T) {
	x := open(t).Executor.(*executor)
	lines.write(llama.LogLevelError, "a line of the load\n")
	unknown := engine.Token(x.caps.Vocab)
	x.caps.Vocab++ // so that the library has to refuse it
	_, err := x.Step(context.Background(), &engine.Batch{Items: []engine.Item{{Tokens: []engine.Token{unknown}, Logits: true}}})
	if !errors.Is(err, engine.ErrFatal) || !strings.Contains(err.Error(), "invalid token") || strings.Contains(err.Error(), "a line of the load") {
		t.Errorf("got %v", err)
	}
}

func TestAnExecutorBelongsToOneGoroutine(t *testing.T) {
	l := open(t)
	x := l.Executor.(*executor)
	x.busy.Store(true) // as while another goroutine's Step runs
	if _, err := x.Step(t.Context(), &engine.Batch{}); err == nil || !strings.Contains(err.Error(), "another goroutine") {
		t.Errorf("Step: %v", err)
	}
	if err := x.Close(); err == nil || !strings.Contains(err.Error(), "another goroutine") {
		t.Errorf("Close: %v", err)
	}
	x.busy.Store(false)
}

func TestAClosedModelRefusesEverything(t *testing.T) {
	l := open(t)
	for range 2 {
		if err := l.Executor.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Executor.Step(t.Context(), &engine.Batch{}); !errors.Is(err, engine.ErrFatal) {
		t.Errorf("Step: %v", err)
	}
	if _, err := l.Vocabulary.Tokenize("x", true); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("Tokenize: %v", err)
	}
	if p := l.Vocabulary.Piece(100); p != nil {
		t.Errorf("Piece: %q", p)
	}
}
