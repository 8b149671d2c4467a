package measure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringfleet/ringfleet/worker/engine"
)

// bench drives an executor. Sequence 0 and those behind it are the streams that run; idle ones come last.
type bench struct {
	x      engine.Executor
	r      *report
	of     scale
	vocab  int
	lens   []int // cells of each sequence
	random rand.PCG
}

// text returns n random tokens.
func (b *bench) text(n int) []engine.Token {
	out := make([]engine.Token, n)
	for i := range out {
		out[i] = engine.Token(b.random.Uint64() % uint64(b.vocab))
	}
	return out
}

// step runs one step, and books the cells that it adds.
func (b *bench) step(ctx context.Context, ops []engine.KVOp, items ...engine.Item) (*engine.Result, time.Duration, error) {
	start := time.Now()
	result, err := b.x.Step(ctx, &engine.Batch{KV: ops, Items: items})
	took := time.Since(start)
	if err != nil {
		return nil, took, err
	}
	for _, op := range ops {
		b.lens[op.Dst] = op.N
	}
	for _, it := range items {
		b.lens[it.Seq] += len(it.Tokens)
	}
	return result, took, nil
}

// clear frees all cells.
func (b *bench) clear(ctx context.Context) error {
	var ops []engine.KVOp
	for seq := range b.lens {
		ops = append(ops, engine.KVOp{Kind: engine.KVDrop, Dst: engine.Seq(seq)})
	}
	_, _, err := b.step(ctx, ops)
	return err
}

// prefill adds tokens to a sequence, in as many steps as it takes, and returns the last logits.
func (b *bench) prefill(ctx context.Context, seq engine.Seq, tokens []engine.Token) (logits []float32, took time.Duration, err error) {
	for len(tokens) > 0 {
		n := min(len(tokens), b.x.Caps().MaxStepTokens)
		result, t, err := b.step(ctx, nil, engine.Item{Seq: seq, Pos: b.lens[seq], Tokens: tokens[:n], Logits: n == len(tokens)})
		if err != nil {
			return nil, 0, err
		}
		took += t
		tokens, logits = tokens[n:], result.Logits[0]
	}
	return slices.Clone(logits), took, nil
}

// decoding times steps of so many streams, one token each, and returns the median.
func (b *bench) decoding(ctx context.Context, streams int) (time.Duration, error) {
	const warm = 4
	var times []time.Duration
	for i := range warm + b.of.steps {
		var items []engine.Item
		for seq := range streams {
			items = append(items, engine.Item{Seq: engine.Seq(seq), Pos: b.lens[seq], Tokens: b.text(1), Logits: true})
		}
		_, took, err := b.step(ctx, nil, items...)
		if err != nil {
			return 0, err
		}
		if i >= warm {
			times = append(times, took)
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// prompt shows what the first passes cost, in which the driver loads its kernels.
func (b *bench) prompt(ctx context.Context) error {
	tokens := b.text(b.x.Caps().MaxStepTokens)
	for _, name := range []string{"first prompt", "second prompt"} {
		if err := b.clear(ctx); err != nil {
			return err
		}
		_, took, err := b.prefill(ctx, 0, tokens)
		if err != nil {
			return err
		}
		b.r.figure(name, ms(took), fmt.Sprintf("%d tokens, %.0f tokens/s", len(tokens), float64(len(tokens))/took.Seconds()))
	}
	return nil
}

func (b *bench) decode(ctx context.Context) error {
	for _, n := range b.of.streams {
		if err := b.clear(ctx); err != nil {
			return err
		}
		for seq := range n {
			if _, _, err := b.prefill(ctx, engine.Seq(seq), b.text(32)); err != nil {
				return err
			}
		}
		took, err := b.decoding(ctx, n)
		if err != nil {
			return err
		}
		b.r.figure(fmt.Sprintf("step of %d streams", n), ms(took), fmt.Sprintf("%.0f tokens/s", float64(n)/took.Seconds()))
	}
	return nil
}

// share forks a prefix. It needs more cells than there are, were they copied, and says the same as a run alone.
func (b *bench) share(ctx context.Context) error {
	if err := b.clear(ctx); err != nil {
		return err
	}
	prefix, suffix := b.text(b.of.prefix), b.text(16)
	_, cold, err := b.prefill(ctx, 0, prefix)
	if err != nil {
		return err
	}
	forks := min(len(b.lens)-2, 2*b.of.cells/b.of.prefix)
	var ops []engine.KVOp
	for seq := 1; seq <= forks; seq++ {
		ops = append(ops, engine.KVOp{Kind: engine.KVFork, Src: 0, Dst: engine.Seq(seq), N: b.of.prefix})
	}
	_, forking, err := b.step(ctx, ops)
	if err != nil {
		return err
	}
	b.r.figure("fork a prefix", ms(forking), fmt.Sprintf("%d forks of %d tokens: %d cells where there are %d; computing it took %.1f ms",
		forks, b.of.prefix, forks*b.of.prefix, b.of.cells, ms(cold)))
	forked, warm, err := b.prefill(ctx, 1, suffix)
	if err != nil {
		return err
	}
	alone, _, err := b.prefill(ctx, engine.Seq(forks+1), slices.Concat(prefix, suffix))
	if err != nil {
		return err
	}
	off := distance(forked, alone)
	b.r.figure("go on behind it", ms(warm), fmt.Sprintf("%d tokens; logits are %.2g of their size off those of a run alone", len(suffix), off))
	const most = 0.1
	if !(off <= most) {
		return fmt.Errorf("behind a fork logits are %.2g of their size off those of a run alone, at most %.1f is rounding", off, most)
	}
	return nil
}

// distance is the size of the difference in that of the second.
func distance(a, b []float32) float64 {
	var off, size float64
	for i, x := range b {
		d := float64(x - a[i])
		off, size = off+d*d, size+float64(x)*float64(x)
	}
	return math.Sqrt(off / size)
}

// idle shows what cells cost that no running stream uses.
func (b *bench) idle(ctx context.Context) error {
	const streams, each = 16, 512
	if err := b.clear(ctx); err != nil {
		return err
	}
	filled, next := 0, len(b.lens)-1
	for _, cells := range b.of.idle {
		for ; filled < cells; filled, next = filled+each, next-1 {
			if _, _, err := b.prefill(ctx, engine.Seq(next), b.text(each)); err != nil {
				return err
			}
		}
		var ops []engine.KVOp
		for seq := range streams {
			ops = append(ops, engine.KVOp{Kind: engine.KVDrop, Dst: engine.Seq(seq)})
		}
		if _, _, err := b.step(ctx, ops); err != nil {
			return err
		}
		took, err := b.decoding(ctx, streams)
		if err != nil {
			return err
		}
		b.r.figure(fmt.Sprintf("step of %d streams beside %d idle cells", streams, cells), ms(took), "")
	}
	return nil
}

// abort ends a step's context in its middle and shows when the step ends.
func (b *bench) abort(ctx context.Context) error {
	if err := b.clear(ctx); err != nil {
		return err
	}
	tokens := b.text(b.x.Caps().MaxStepTokens)
	_, whole, err := b.prefill(ctx, 0, tokens)
	if err != nil {
		return err
	}
	if err := b.clear(ctx); err != nil {
		return err
	}
	half, cancel := context.WithTimeout(ctx, whole/2)
	defer cancel()
	_, took, err := b.step(half, nil, engine.Item{Tokens: tokens, Logits: true})
	outcome := "the step went on to its end"
	if errors.Is(err, engine.ErrAborted) {
		outcome = "the step was broken off"
	} else if err != nil {
		return err
	}
	able := b.x.Caps().AbortMidStep
	b.r.figure("a step whose context ends in its middle", ms(took), fmt.Sprintf("a whole one takes %.1f ms; %s; the driver says that it can be: %t",
		ms(whole), outcome, able))
	if _, _, err := b.prefill(ctx, 1, tokens[:16]); err != nil {
		return fmt.Errorf("after that nothing runs: %w", err)
	}
	return nil
}
