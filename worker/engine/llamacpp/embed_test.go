package llamacpp

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/ringfleet/ringfleet/api/modelfile"
	"github.com/ringfleet/ringfleet/worker/engine"
)

// inputsOf are random tokens of these numbers.
func inputsOf(lengths ...int) (all [][]engine.Token) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range lengths {
		in := make([]engine.Token, n)
		for i := range in {
			in[i] = engine.Token(r.IntN(300))
		}
		all = append(all, in)
	}
	return all
}

func embedded(t testing.TB, l *engine.Loaded, inputs [][]engine.Token) [][]float32 {
	t.Helper()
	vectors, err := l.Executor.(engine.Embedder).Embed(t.Context(), inputs)
	if err != nil || len(vectors) != len(inputs) {
		t.Fatalf("%d vectors of %d inputs: %v", len(vectors), len(inputs), err)
	}
	return vectors
}

func TestEmbeddingsAreTheStatesPooledAsTheModelSays(t *testing.T) {
	inputs := inputsOf(1, 7, 100, 3, 250, 300) // as several groups, the last of them longer than the context that is kept
	for name, c := range map[string]struct {
		change []func([]byte) []byte
		from   func(n int) (int, int) // the states that are averaged
	}{
		"mean where it doesn't say": {nil, func(n int) (int, int) { return 0, n }},
		"mean where it says none":   {[]func([]byte) []byte{with("llama.pooling_type", uint32(llama.PoolingTypeNone))}, func(n int) (int, int) { return 0, n }},
		"mean":                      {[]func([]byte) []byte{with("llama.pooling_type", uint32(llama.PoolingTypeMean))}, func(n int) (int, int) { return 0, n }},
		"the first":                 {[]func([]byte) []byte{with("llama.pooling_type", uint32(llama.PoolingTypeCLS))}, func(int) (int, int) { return 0, 1 }},
		"the last":                  {[]func([]byte) []byte{with("llama.pooling_type", uint32(llama.PoolingTypeLast))}, func(n int) (int, int) { return n - 1, n }},
	} {
		t.Run(name, func(t *testing.T) {
			path := written(t, small(), c.change...)
			l := open(t, func(o *Options) { o.WeightsPath = path })
			if !l.Info.Caps.Embeddings {
				t.Error("the model says that it makes no embeddings")
			}
			x := l.Executor.(*executor)
			x.embedder.tokens = 64 // so that inputs take several passes
			got := embedded(t, l, inputs)
			m := referenceOf(t, path)
			for i, in := range inputs {
				from, to := c.from(len(in))
				want := make([]float64, 64)
				for _, s := range m.states(&cells{}, in)[from:to] {
					add(want, s)
				}
				if length, likeness := cosine(got[i], want); math.Abs(length-1) > 1e-5 || likeness < 0.99999 {
					t.Errorf("input %d of %d tokens: the vector has length %f and cosine %f to the right one", i, len(in), length, likeness)
				}
			}
			if x.embedder.context != 0 {
				t.Error("a context for long inputs is kept")
			}
		})
	}
}

func referenceOf(t *testing.T, path string) *reference {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	head, err := modelfile.ReadGGUF(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return newReference(t, f, head)
}

// cosine returns the length of a and its cosine to b.
func cosine(a []float32, b []float64) (length, likeness float64) {
	var dot, other float64
	for i, x := range a {
		length += float64(x) * float64(x)
		other += b[i] * b[i]
		dot += float64(x) * b[i]
	}
	return math.Sqrt(length), dot / math.Sqrt(length*other)
}

func TestEmbeddingsLeaveSequencesAlone(t *testing.T) {
	l, alone := openMade(t, small()), openMade(t, small())
	half := len(someTokens) / 2
	step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: 3, Tokens: someTokens[:half]}}})
	embedded(t, l, inputsOf(5, 40))
	got := slices.Clone(step(t, l.Executor, engine.Batch{Items: []engine.Item{{Seq: 3, Pos: half, Tokens: someTokens[half:], Logits: true}}})[0])
	step(t, alone.Executor, engine.Batch{Items: []engine.Item{{Seq: 3, Tokens: someTokens[:half]}}})
	want := step(t, alone.Executor, engine.Batch{Items: []engine.Item{{Seq: 3, Pos: half, Tokens: someTokens[half:], Logits: true}}})[0]
	if !slices.Equal(got, want) {
		t.Errorf("logits are %g off", distance(got, want))
	}
	again := embedded(t, l, inputsOf(5, 40))
	if first := embedded(t, alone, inputsOf(5, 40)); !slices.Equal(first[1], again[1]) {
		t.Error("the second time, vectors are others")
	}
	if l.Executor.(*executor).embedder.context == 0 {
		t.Error("the context for short inputs isn't kept")
	}
}

func TestInputsThatCantBeEmbeddedAreInvalid(t *testing.T) {
	l := openMade(t, small())
	ranking := openMade(t, small(), with("llama.pooling_type", uint32(llama.PoolingTypeRank)))
	if ranking.Info.Caps.Embeddings {
		t.Error("a model that ranks says that it makes embeddings")
	}
	good := []engine.Token{1}
	for name, c := range map[string]struct {
		in     *engine.Loaded
		inputs [][]engine.Token
		code   string
		says   string
	}{
		"nothing":          {l, [][]engine.Token{good, {}}, "", "input 1 is empty"},
		"an unknown token": {l, [][]engine.Token{{300}}, "", "the token 300, which is none of 300"},
		"a negative token": {l, [][]engine.Token{{-1}}, "", "the token -1"},
		"too many tokens":  {l, inputsOf(1025), engine.CodeContextLength, "1025 tokens, the model takes at most 1024"},
		"a model of ranks": {ranking, [][]engine.Token{good}, "", "makes no embeddings"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.in.Executor.(engine.Embedder).Embed(t.Context(), c.inputs)
			var bad *engine.InvalidError
			if !errors.As(err, &bad) || bad.Field != "input" || bad.Code != c.code || !strings.Contains(bad.Message, c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
	if none, err := l.Executor.(engine.Embedder).Embed(t.Context(), nil); err != nil || len(none) != 0 {
		t.Errorf("no inputs: %v, %v", none, err)
	}
}

func TestEmbeddingEndsSoonAfterItsContext(t *testing.T) {
	l := openMade(t, small())
	for _, after := range []int{0, 5, 60} { // before, within the first and within a later pass
		ctx := &ending{Context: context.Background(), left: after}
		l.Executor.(*executor).embedder.tokens = 64
		_, err := l.Executor.(engine.Embedder).Embed(ctx, inputsOf(200))
		if !errors.Is(err, engine.ErrAborted) || ctx.left < -20 {
			t.Errorf("after %d looks: %v, and %d looks more", after, err, -ctx.left)
		}
	}
	embedded(t, l, inputsOf(200))
}

func TestTheDemoModelTellsTextsApart(t *testing.T) {
	l := open(t)
	vectors := embedded(t, l, [][]engine.Token{
		tokens(t, l.Vocabulary, "A cat is sleeping on the sofa."),
		tokens(t, l.Vocabulary, "A kitten lies asleep on the couch."),
		tokens(t, l.Vocabulary, "Interest rates rose by half a percent last quarter."),
	})
	first := make([]float64, len(vectors[0]))
	for i, x := range vectors[0] {
		first[i] = float64(x)
	}
	_, same := cosine(vectors[1], first)
	_, other := cosine(vectors[2], first)
	if len(first) != 576 || same < other+0.05 {
		t.Errorf("of %d numbers, the like text has cosine %.3f, the other %.3f", len(first), same, other)
	}
}
