package sim

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

func device(o Options) (*Device, *clocktesting.FakeClock) {
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	o.Clock = c
	o.Sequences, o.KVTokens, o.ContextTokens = 2, 16, 16
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
		"a fork of more than there is":   {engine.Batch{KV: []engine.KVOp{{Kind: engine.KVFork, Dst: 1, N: 1}}}, engine.ErrFatal},
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

func TestForkTruncateAndDropChangeCells(t *testing.T) {
	d, _ := device(Options{Text: "x"})
	for i, step := range []struct {
		batch engine.Batch
		cells int
	}{
		{engine.Batch{Items: []engine.Item{{Tokens: []engine.Token{1, 2, 3}}}}, 3},
		{engine.Batch{KV: []engine.KVOp{{Kind: engine.KVFork, Src: 0, Dst: 1, N: 2}}}, 5},
		{engine.Batch{KV: []engine.KVOp{{Kind: engine.KVTruncate, Dst: 0, N: 1}}}, 3},
		{engine.Batch{KV: []engine.KVOp{{Kind: engine.KVDrop, Dst: 1}}}, 1},
	} {
		if _, err := d.Step(context.Background(), &step.batch); err != nil {
			t.Fatal(err)
		}
		if d.Cells() != step.cells {
			t.Fatalf("step %d: %d cells, want %d", i, d.Cells(), step.cells)
		}
	}
}
