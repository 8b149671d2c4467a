package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

func device(o Options) (*Device, *clocktesting.FakeClock) {
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	o.Clock = c
	o.Sequences, o.KVTokens, o.ContextTokens, o.StepTokens = 2, 16, 16, 32
	return New(o).Executor.(*Device), c
}

func TestLogitsSpellTheTextThenEnd(t *testing.T) {
	d, _ := device(Options{Text: "hi"})
	history := []engine.Token{'?', Answer}
	var got []engine.Token
	for pos := 0; ; {
		r, err := d.Step(context.Background(), &engine.Batch{Items: []engine.Item{{Pos: pos, Tokens: history[pos:], Logits: true}}})
		if err != nil {
			t.Fatal(err)
		}
		pos = len(history)
		best := engine.Token(0)
		for i, v := range r.Logits[0] {
			if v > r.Logits[0][best] {
				best = engine.Token(i)
			}
		}
		if got = append(got, best); best == End {
			break
		}
		history = append(history, best)
	}
	if len(got) != 3 || got[0] != 'h' || got[1] != 'i' {
		t.Fatalf("spelled %v", got)
	}
}

func TestAStepTakesWhatTheTimingModelSays(t *testing.T) {
	d, c := device(Options{Text: "x", Step: time.Second, PerPromptToken: time.Minute, PerStream: time.Hour})
	start := c.Now()
	batch := &engine.Batch{Items: []engine.Item{{Seq: 0, Tokens: []engine.Token{1, 2, 3}}, {Seq: 1, Tokens: []engine.Token{1}, Logits: true}}}
	if _, err := d.Step(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	if got, want := c.Since(start), time.Second+3*time.Minute+time.Hour; got != want {
		t.Fatalf("took %s, want %s", got, want)
	}
}

func TestBatchesThatBreakTheContractAreRefused(t *testing.T) {
	run := func(seq engine.Seq, pos, n int) engine.Item {
		return engine.Item{Seq: seq, Pos: pos, Tokens: make([]engine.Token, n)}
	}
	for name, c := range map[string]struct {
		batch engine.Batch
		want  error
	}{
		"a gap in the positions":         {engine.Batch{Items: []engine.Item{run(0, 1, 1)}}, engine.ErrFatal},
		"a sequence that does not exist": {engine.Batch{Items: []engine.Item{run(2, 0, 1)}}, engine.ErrFatal},
		"an item without tokens":         {engine.Batch{Items: []engine.Item{run(0, 0, 0)}}, engine.ErrFatal},
		"more cells than there are":      {engine.Batch{Items: []engine.Item{run(0, 0, 17)}}, engine.ErrNoKV},
		"more tokens than a step takes":  {engine.Batch{Items: []engine.Item{run(0, 0, 33)}}, engine.ErrFatal},
		"two items of a sequence":        {engine.Batch{Items: []engine.Item{run(0, 0, 1), run(0, 1, 1)}}, engine.ErrFatal},
		"a token that does not exist":    {engine.Batch{Items: []engine.Item{{Tokens: []engine.Token{vocab}}}}, engine.ErrFatal},
		"a fork of more than there is":   {engine.Batch{KV: []engine.KVOp{{Kind: engine.KVFork, Dst: 1, N: 1}}}, engine.ErrFatal},
		"an adapter that is not loaded":  {engine.Batch{Adapter: "a"}, engine.ErrFatal},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := device(Options{Text: "x"})
			if _, err := d.Step(context.Background(), &c.batch); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if d.Cells() != 0 {
				t.Fatalf("%d cells are in use after a refusal", d.Cells())
			}
		})
	}
}

func TestForksShareCellsAndARefusedStepChangesNone(t *testing.T) {
	d, _ := device(Options{Text: "x"})
	three, one := []engine.Token{1, 2, 3}, []engine.Token{1}
	for i, step := range []struct {
		batch engine.Batch
		err   error
		cells int
	}{
		{engine.Batch{Items: []engine.Item{{Tokens: three}}}, nil, 3},
		{engine.Batch{KV: []engine.KVOp{{Kind: engine.KVFork, Src: 0, Dst: 1, N: 2}}}, nil, 3},
		{engine.Batch{Items: []engine.Item{{Seq: 1, Pos: 2, Tokens: one}}}, nil, 4},
		{engine.Batch{KV: []engine.KVOp{{Kind: engine.KVDrop, Dst: 1}}, Items: []engine.Item{{Pos: 9, Tokens: one}}}, engine.ErrFatal, 4},
		{engine.Batch{KV: []engine.KVOp{{Kind: engine.KVTruncate, Dst: 0, N: 1}}}, nil, 3},
		{engine.Batch{KV: []engine.KVOp{{Kind: engine.KVDrop, Dst: 1}}}, nil, 1},
	} {
		if _, err := d.Step(context.Background(), &step.batch); !errors.Is(err, step.err) {
			t.Fatalf("step %d: %v", i, err)
		}
		if d.Cells() != step.cells {
			t.Fatalf("step %d: %d cells, want %d", i, d.Cells(), step.cells)
		}
	}
}

// after returns the logits after tokens, computed in runs with the given adapters.
func after(t *testing.T, adapters []string, runs ...[]engine.Token) string {
	t.Helper()
	d, _ := device(Options{Random: true, Adapters: true})
	if err := d.LoadAdapter(engine.Adapter{Name: "a", Path: "a.gguf"}); err != nil {
		t.Fatal(err)
	}
	pos, out := 0, ""
	for i, run := range runs {
		b := engine.Batch{Adapter: adapters[i], Items: []engine.Item{{Pos: pos, Tokens: run, Logits: true}}}
		r, err := d.Step(context.Background(), &b)
		if err != nil {
			t.Fatal(err)
		}
		pos += len(run)
		out = fmt.Sprint(r.Logits[0])
	}
	return out
}

func TestRandomLogitsDependOnEveryCellAndOnNothingElse(t *testing.T) {
	base := []string{"", ""}
	whole := after(t, base, []engine.Token{1, 2, 3})
	if whole != after(t, base, []engine.Token{1, 2}, []engine.Token{3}) {
		t.Error("the logits depend on how tokens were cut into steps")
	}
	for name, other := range map[string]string{
		"another token":         after(t, base, []engine.Token{9, 2, 3}),
		"another order":         after(t, base, []engine.Token{2, 1, 3}),
		"another length":        after(t, base, []engine.Token{1, 2, 3, 3}),
		"an adapter":            after(t, []string{"a"}, []engine.Token{1, 2, 3}),
		"an adapter in part":    after(t, []string{"a", ""}, []engine.Token{1}, []engine.Token{2, 3}),
		"an adapter at the end": after(t, []string{"", "a"}, []engine.Token{1, 2}, []engine.Token{3}),
	} {
		if other == whole {
			t.Errorf("%s does not change the logits", name)
		}
	}
}

func TestAnAbortedStepLeavesCellsToTruncate(t *testing.T) {
	d, c := device(Options{Text: "x", Step: time.Hour, AbortMidStep: true})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	item := engine.Item{Tokens: []engine.Token{1, 2, 3}}
	go func() {
		_, err := d.Step(ctx, &engine.Batch{Items: []engine.Item{item}})
		done <- err
	}()
	for !c.HasWaiters() {
		runtime.Gosched()
	}
	cancel()
	if err := <-done; !errors.Is(err, engine.ErrAborted) {
		t.Fatal(err)
	}
	if _, err := d.Step(context.Background(), &engine.Batch{Items: []engine.Item{item}}); !errors.Is(err, engine.ErrFatal) {
		t.Fatalf("a step over what was left: %v", err)
	}
	if _, err := d.Step(context.Background(), &engine.Batch{KV: []engine.KVOp{{Kind: engine.KVTruncate}}}); err != nil || d.Cells() != 0 {
		t.Fatalf("%d cells after the truncation, %v", d.Cells(), err)
	}
}

func TestEmbeddingsAreUnitVectorsOfTheirInputs(t *testing.T) {
	d, _ := device(Options{Embeddings: true})
	v, err := d.Embed(context.Background(), [][]engine.Token{{1, 2}, {1, 2}, {2, 1}})
	if err != nil {
		t.Fatal(err)
	}
	if l := v[0][0]*v[0][0] + v[0][1]*v[0][1]; l < 0.999 || l > 1.001 || v[0][0] != v[1][0] || v[0][0] == v[2][0] {
		t.Fatalf("got %v", v)
	}
}
