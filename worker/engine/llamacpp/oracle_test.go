package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/hybridgroup/yzma/pkg/llama"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/modelfile/ggufgen"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/scheduler"
)

// position is what the model said after some tokens.
type position struct {
	tokens []engine.Token
	logits []float32
}

// witness stands between the scheduler and the executor. It keeps the text of every sequence as the scheduler's operations
// and items make it, compares their lengths with the library's own after each step, and keeps all logits.
type witness struct {
	*executor
	t       testing.TB
	seqs    [][]engine.Token
	said    []position
	forks   int
	cells   int // of all sequences together
	confuse bool
}

// Caps lets the scheduler know of so few cells that requests push each other out. There may be more.
func (w *witness) Caps() engine.Caps {
	c := w.executor.Caps()
	c.KVTokens = w.cells
	return c
}

func (w *witness) Step(ctx context.Context, b *engine.Batch) (*engine.Result, error) {
	passed := *b
	if w.confuse {
		passed.KV = w.confused(b.KV)
	}
	r, err := w.executor.Step(ctx, &passed)
	if err != nil && !errors.Is(err, engine.ErrAborted) {
		w.t.Errorf("a step: %v", err)
		return r, err
	}
	for _, op := range b.KV {
		switch op.Kind {
		case engine.KVFork:
			w.forks++
			w.seqs[op.Dst] = slices.Clone(w.seqs[op.Src][:op.N])
		case engine.KVTruncate:
			w.seqs[op.Dst] = w.seqs[op.Dst][:min(op.N, len(w.seqs[op.Dst]))]
		case engine.KVDrop:
			w.seqs[op.Dst] = nil
		}
	}
	for i, it := range b.Items {
		if err != nil {
			break
		}
		if it.Pos != len(w.seqs[it.Seq]) {
			w.t.Errorf("sequence %d goes on at %d with %d tokens", it.Seq, it.Pos, len(w.seqs[it.Seq]))
		}
		w.seqs[it.Seq] = append(slices.Clip(w.seqs[it.Seq]), it.Tokens...)
		if it.Logits {
			w.said = append(w.said, position{w.seqs[it.Seq], slices.Clone(r.Logits[i])})
		}
	}
	for seq, tokens := range w.seqs {
		if last, err := llama.MemorySeqPosMax(w.memory, llama.SeqId(seq)); err != nil || int(last) != len(tokens)-1 {
			w.t.Errorf("the library's sequence %d ends at %d, the scheduler's at %d (%v)", seq, last, len(tokens)-1, err)
		}
	}
	return r, err
}

// confused takes the cells of forks from other sequences that are as long: what a cache does whose hashes leave out the
// tokens.
func (w *witness) confused(ops []engine.KVOp) []engine.KVOp {
	out := slices.Clone(ops)
	for i, op := range out {
		for seq, tokens := range w.seqs {
			other := engine.Seq(seq)
			touched := slices.ContainsFunc(ops, func(op engine.KVOp) bool { return op.Dst == other })
			if op.Kind == engine.KVFork && other != op.Src && !touched && len(tokens) >= op.N {
				out[i].Src = other
			}
		}
	}
	return out
}

// crowd are 40 requests that share beginnings, some with two choices, and need more cells than there are.
func crowd(l *engine.Loaded, prefix func(l *engine.Loaded, i int) []engine.Token) (all []*engine.Request) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 40 {
		q := &engine.Request{ID: fmt.Sprint(i), MaxTokens: 20, IgnoreEOS: true, Priority: i % 3,
			Prompt: engine.Prompt{Tokens: slices.Concat(prefix(l, i%3), randomTokens(l, r, 1+r.IntN(16)))}}
		if i%6 == 5 {
			q.Choices, q.Sampling = 2, engine.Sampling{Temperature: 1, TopP: 0.5, Seed: uint64(i)}
		}
		all = append(all, q)
	}
	return all
}

// randomTokens are tokens of words.
func randomTokens(l *engine.Loaded, r *rand.Rand, n int) (out []engine.Token) {
	for range n {
		out = append(out, engine.Token(300+r.IntN(l.Info.Vocab-300)))
	}
	return out
}

func randomPrefix(l *engine.Loaded, i int) []engine.Token {
	return randomTokens(l, rand.New(rand.NewPCG(uint64(i), 7)), 64+16*i)
}

// textPrefix is a text, on which a model that was trained is surer than on a row of random words.
func textPrefix(l *engine.Loaded, i int) []engine.Token {
	out, err := l.Vocabulary.Tokenize([]string{
		"The history of the city begins with a small settlement on the river. Traders came from the south with salt and cloth, " +
			"and farmers from the hills brought grain. By the end of the century there was a market, a church and a wall. ",
		"To bake bread, mix flour, water, salt and yeast, and knead the dough for ten minutes. Let it rest in a warm place until " +
			"it has doubled. Shape it, wait again, and put it into a hot oven. It is done when it sounds hollow. ",
		"The planets of the solar system move around the sun on ellipses. The inner ones are made of rock, the outer ones of gas " +
			"and ice. Between them lies a belt of asteroids. The largest planet is Jupiter. ",
	}[i], true)
	if err != nil {
		panic(err)
	}
	return out
}

// serve runs requests through the scheduler over l and returns what was said, and what happened meanwhile.
func serve(t *testing.T, l *engine.Loaded, cells int, requests []*engine.Request, confuse bool) (*witness, engine.Stats) {
	t.Helper()
	w := &witness{executor: l.Executor.(*executor), t: t, seqs: make([][]engine.Token, l.Executor.Caps().MaxSeqs), cells: cells, confuse: confuse}
	watched := *l
	watched.Executor = w
	e, err := scheduler.New(&watched, scheduler.Options{MaxSequences: 8, MaxWaiting: len(requests), StepTokens: 64, MaxIdle: 12,
		IdleBlocks: 24, Clock: clock.RealClock{}, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	var streams []engine.Stream
	for _, q := range requests {
		s, err := e.Generate(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	for i, s := range streams {
		for err = nil; err == nil; _, err = s.Next() {
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	stats := e.Stats()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	return w, stats
}

// chains sorts positions into runs of which each is a beginning of the next.
func chains(said []position) (all [][]position) {
	sorted := slices.SortedFunc(slices.Values(said), func(a, b position) int { return slices.Compare(a.tokens, b.tokens) })
	for _, p := range sorted {
		last := len(all) - 1
		if last >= 0 {
			before := all[last][len(all[last])-1].tokens
			if len(before) <= len(p.tokens) && slices.Equal(before, p.tokens[:len(before)]) {
				all[last] = append(all[last], p)
				continue
			}
		}
		all = append(all, []position{p})
	}
	return all
}

// key is a text as a map has it.
func key(tokens []engine.Token) string { return fmt.Sprint(tokens) }

// layout is how positions are computed without any sharing: in so many sequences side by side, in pieces of so many tokens.
// Where scattered is set, the later cells of a sequence lie before its first ones, as they do where cells have been given
// back: the library adds up attention in the order of the cells, and rounds.
type layout struct {
	beside, piece int
	scattered     bool
}

// filler is a sequence that holds the first cells until the others have begun.
const filler, fillerTokens = engine.Seq(23), 256

// again computes the logits of all positions.
func again(t *testing.T, l *engine.Loaded, all [][]position, how layout) map[string]position {
	t.Helper()
	out := map[string]position{}
	for group := range slices.Chunk(all, how.beside) {
		var drops []engine.KVOp
		for seq := range filler + 1 {
			drops = append(drops, engine.KVOp{Kind: engine.KVDrop, Dst: seq})
		}
		b := engine.Batch{KV: drops}
		if how.scattered {
			b.Items = []engine.Item{{Seq: filler, Tokens: make([]engine.Token, fillerTokens)}}
		}
		step(t, l.Executor, b)
		done := make([]int, len(group)) // tokens of each that were computed
		for pieces(&b, group, done, how.piece) {
			rows := step(t, l.Executor, b)
			for i, it := range b.Items {
				done[it.Seq] += len(it.Tokens)
				if rows[i] != nil {
					text := group[it.Seq][at(group[it.Seq], done[it.Seq]-1)].tokens
					out[key(text)] = position{text, slices.Clone(rows[i])}
				}
			}
			b.KV = []engine.KVOp{{Kind: engine.KVDrop, Dst: filler}}
		}
	}
	return out
}

// pieces makes the next items of b and returns whether there are any.
func pieces(b *engine.Batch, group [][]position, done []int, piece int) bool {
	b.Items = b.Items[:0]
	for seq, chain := range group {
		if i := at(chain, done[seq]); i < len(chain) {
			next := chain[i].tokens
			to := min(done[seq]+piece, len(next))
			b.Items = append(b.Items, engine.Item{Seq: engine.Seq(seq), Pos: done[seq], Tokens: next[done[seq]:to], Logits: to == len(next)})
		}
	}
	return len(b.Items) > 0
}

// at is the first position of a chain behind so many tokens.
func at(chain []position, tokens int) int {
	i := slices.IndexFunc(chain, func(p position) bool { return len(p.tokens) > tokens })
	if i < 0 {
		return len(chain)
	}
	return i
}

// verdict is how logits compare with those of runs alone.
type verdict struct {
	positions  int
	mean, most float64 // of the difference's size in that of the logits
	near       int     // positions whose best token is within 0.1 logit of the best alone
}

func (v verdict) share() float64 { return float64(v.near) / float64(v.positions) }

func compare(said []position, alone map[string]position) (v verdict) {
	for _, p := range said {
		want := alone[key(p.tokens)].logits
		var off, size, mean float64
		for _, x := range want {
			mean += float64(x) / float64(len(want))
		}
		for i, x := range want {
			d, m := float64(x-p.logits[i]), float64(x)-mean
			off += d * d
			size += m * m
		}
		e := math.Sqrt(off / size)
		v.positions++
		v.mean += e
		v.most = max(v.most, e)
		if slices.Max(want)-want[best(p.logits)] <= 0.1 {
			v.near++
		}
	}
	v.mean /= float64(v.positions)
	return v
}

func (v verdict) String() string {
	return fmt.Sprintf("%d positions, mean relative error %.2g, greatest %.2g; best token within 0.1 logit of the best alone in %.1f %%",
		v.positions, v.mean, v.most, 100*v.share())
}

// singly is one stream after the other; control differs from it in all that may change how a stream is rounded.
var singly, control = layout{beside: 1, piece: 8}, layout{beside: 20, piece: 24, scattered: true}

// exactly makes options those of a model, a cache and a kernel that round to 32 bits only.
func exactly(t *testing.T) func(*Options) {
	m := small()
	m.Vocab = 600
	path := written(t, m)
	return func(o *Options) { o.WeightsPath, o.KVType, o.FlashAttention = path, F32, FlashOff }
}

// roughly are those of a model that rounds as real ones do.
func roughly(t *testing.T) func(*Options) {
	m := ggufgen.Golden()
	m.Vocab = 600
	path := written(t, m)
	return func(o *Options) { o.WeightsPath = path }
}

func TestTheSchedulersLogitsAreThoseOfRunsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		model  func(*Options)
		cells  int
		prefix func(l *engine.Loaded, i int) []engine.Token
		exact  bool
	}{
		"a model that rounds nothing": {exactly(t), 400, randomPrefix, true},
		"a model that rounds":         {roughly(t), 400, randomPrefix, false},
		"the demo model":              {func(*Options) {}, 320, textPrefix, false},
	} {
		t.Run(name, func(t *testing.T) {
			var w *witness
			var stats engine.Stats
			// Who arrives when is up to the machine: with fewer cells each time, some load makes everything happen.
			for cells := c.cells; ; cells -= 32 {
				l := open(t, c.model, func(o *Options) { o.ContextTokens, o.MaxSequences = 512, 24 })
				w, stats = serve(t, l, cells, crowd(l, c.prefix), false)
				if *stats.Preemptions > 0 && *stats.Evictions > 0 && *stats.CacheHits > 0 && w.forks >= 10 && len(w.said) >= 800 {
					break
				}
				if cells <= 192 {
					t.Fatalf("%d preemptions, %d evictions, %d tokens hit, %d forks, %d positions: the load tries too little", *stats.Preemptions,
						*stats.Evictions, *stats.CacheHits, w.forks, len(w.said))
				}
			}
			all := chains(w.said)
			plain := open(t, c.model, func(o *Options) { o.ContextTokens, o.MaxSequences = 4096, 24 })
			alone := again(t, plain, all, singly)
			got := compare(w.said, alone)
			expected := compare(slices.Collect(maps.Values(again(t, plain, all, control))), alone)
			t.Logf("%d preemptions, %d evictions, %d forks, %d of %d prompt tokens hit", *stats.Preemptions, *stats.Evictions, w.forks,
				*stats.CacheHits, *stats.CacheQueries)
			t.Log("scheduler:", got)
			t.Log("control:  ", expected)
			// Of tokens that are as good as each other rounding chooses one, among single streams too.
			fine := got.mean <= 1.3*expected.mean && got.share() >= expected.share()-0.01
			if c.exact {
				fine = got.mean <= 1e-5 && got.most <= 1e-3 && got.share() == 1
			}
			if !fine {
				t.Errorf("scheduler: %v\ncontrol: %v", got, expected)
			}
		})
	}
}

func TestTheCheckOfLogitsSeesMixedUpCells(t *testing.T) {
	l := open(t, exactly(t), func(o *Options) { o.ContextTokens, o.MaxSequences = 2048, 24 })
	w, _ := serve(t, l, 400, crowd(l, randomPrefix), true)
	plain := open(t, exactly(t), func(o *Options) { o.ContextTokens, o.MaxSequences = 4096, 24 })
	got := compare(w.said, again(t, plain, chains(w.said), singly))
	t.Log("confused: ", got)
	if got.mean < 0.1 || got.share() > 0.9 {
		t.Errorf("forks took other sequences' cells, and yet: %v", got)
	}
}
