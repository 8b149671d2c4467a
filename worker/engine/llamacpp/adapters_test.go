package llamacpp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/weights"
)

// changing is an adapter for small.
func changing(seed uint64) lora {
	return lora{pairs: map[string]pair{
		"blk.0.attn_q.weight":   randomPair(64, 64, 4, seed),
		"blk.1.ffn_down.weight": randomPair(128, 64, 4, seed+1),
		"output.weight":         randomPair(64, 300, 2, seed+2),
	}}
}

func loadAdapter(t testing.TB, l *engine.Loaded, name string, file lora) {
	t.Helper()
	if err := l.Executor.(engine.Adapting).LoadAdapter(engine.Adapter{Name: name, Path: file.write(t)}); err != nil {
		t.Fatal(err)
	}
}

var someTokens = []engine.Token{5, 77, 299, 130, 41, 260, 9, 88, 150, 201}

// logitsOf runs tokens in a sequence from its beginning.
func logitsOf(t testing.TB, l *engine.Loaded, adapter string, seq engine.Seq, tokens []engine.Token) []float32 {
	t.Helper()
	return slices.Clone(step(t, l.Executor, engine.Batch{Adapter: adapter, KV: []engine.KVOp{{Kind: engine.KVDrop, Dst: seq}},
		Items: []engine.Item{{Seq: seq, Tokens: tokens, Logits: true}}})[0])
}

func TestAnAdapterChangesTheModelAsItsNumbersSay(t *testing.T) {
	file := changing(1)
	l, merged := openMade(t, small()), openMade(t, small(), file.merge(t))
	loadAdapter(t, l, "tuned", file)
	base, tuned := logitsOf(t, l, "", 0, someTokens), logitsOf(t, l, "tuned", 1, someTokens)
	want := logitsOf(t, merged, "", 0, someTokens)
	if d := distance(tuned, want); d > 1e-3 {
		t.Errorf("the adapter's logits are %g off those of a model with the change in its weights", d)
	}
	if d := distance(base, tuned); d < 1 || best(base) == best(tuned) {
		t.Errorf("the adapter changes logits by %g and the best token from %d to %d", d, best(base), best(tuned))
	}
	if again := logitsOf(t, l, "", 2, someTokens); !slices.Equal(again, base) {
		t.Errorf("without the adapter logits are %g off those before it", distance(again, base))
	}
}

func TestSequencesOfSeveralAdaptersGoOnSideBySide(t *testing.T) {
	files := map[string]lora{"": {}, "a": changing(1), "b": changing(10)}
	l := openMade(t, small())
	loadAdapter(t, l, "a", files["a"])
	loadAdapter(t, l, "b", files["b"])
	names := []string{"", "a", "b"}
	one := func(l *engine.Loaded, adapter string, seq, at int) []float32 {
		return slices.Clone(step(t, l.Executor, engine.Batch{Adapter: adapter, Items: []engine.Item{{Seq: engine.Seq(seq), Pos: at, Tokens: someTokens[at : at+1], Logits: true}}})[0])
	}
	last := map[string][]float32{}
	for at := range someTokens {
		for seq, name := range names { // each step has another adapter than the one before
			last[name] = one(l, name, seq, at)
		}
	}
	for _, name := range names {
		alone := openMade(t, small(), files[name].merge(t))
		var want []float32
		for at := range someTokens { // in the same steps: on some CPUs one of many tokens rounds otherwise
			want = one(alone, "", 0, at)
		}
		if d := distance(last[name], want); d > 1e-3 {
			t.Errorf("adapter %q: logits are %g off those of a run alone", name, d)
		}
	}
}

func TestAnAdapterIsReplacedAndForgotten(t *testing.T) {
	l := openMade(t, small())
	x := l.Executor.(engine.Adapting)
	loadAdapter(t, l, "tuned", changing(1))
	first := logitsOf(t, l, "tuned", 0, someTokens)
	loadAdapter(t, l, "tuned", changing(10)) // while it is applied
	second := logitsOf(t, l, "tuned", 0, someTokens)
	if distance(first, second) < 1 {
		t.Error("after it was replaced, the old adapter goes on")
	}
	if err := x.UnloadAdapter("tuned"); err != nil {
		t.Fatal(err)
	}
	b := engine.Batch{Adapter: "tuned", KV: []engine.KVOp{{Kind: engine.KVDrop}}, Items: []engine.Item{{Tokens: someTokens}}}
	if _, err := l.Executor.Step(t.Context(), &b); err == nil || errors.Is(err, engine.ErrFatal) || !strings.Contains(err.Error(), `no adapter "tuned"`) {
		t.Errorf("a step with a forgotten adapter: %v", err)
	}
	if used := l.Executor.(*executor).ledger.used; used != len(someTokens) {
		t.Errorf("the refused step left %d cells", used)
	}
	if err := x.UnloadAdapter("tuned"); err == nil {
		t.Error("an adapter can be unloaded twice")
	}
	loadAdapter(t, l, "tuned", changing(1))
	if again := logitsOf(t, l, "tuned", 0, someTokens); !slices.Equal(again, first) {
		t.Error("loaded again, the adapter does something else")
	}
}

func TestAdaptersThatDontFitAreRefused(t *testing.T) {
	l := openMade(t, small())
	tied := small()
	tied.Tied = true
	sharing := openMade(t, tied)
	q := func(p pair) map[string]pair { return map[string]pair{"blk.0.attn_q.weight": p} }
	good := randomPair(64, 64, 4, 1)
	half, ranks := good, good
	half.second = nil
	ranks.rank = 8
	key := func(k string, v any) lora { return lora{keys: map[string]any{k: v}, pairs: q(good)} }
	cases := map[string]struct {
		in     *engine.Loaded
		file   lora
		reason string
		says   string
	}{
		"a model":                 {l, key("general.type", "model"), weights.Unsupported, `general.type is "model"`},
		"no type":                 {l, key("general.type", nil), weights.Unsupported, `general.type is ""`},
		"a number for a type":     {l, key("general.type", uint32(7)), weights.Unsupported, `general.type is ""`},
		"another method":          {l, key("adapter.type", "ia3"), weights.Unsupported, `adapter.type "ia3"`},
		"another architecture":    {l, key("general.architecture", "qwen2"), weights.Unsupported, "is for the architecture qwen2, the model is of llama"},
		"no scale":                {l, key("adapter.lora.alpha", nil), weights.Unsupported, "adapter.lora.alpha"},
		"a scale of another kind": {l, key("adapter.lora.alpha", uint32(8)), weights.Unsupported, "adapter.lora.alpha"},
		"one that is activated":   {l, key("adapter.alora.invocation_tokens", []uint32{1}), weights.Unsupported, "aLoRA"},
		"half a pair":             {l, lora{pairs: q(half)}, weights.Unsupported, "expected both"},
		"another width":           {l, lora{pairs: q(randomPair(32, 64, 4, 1))}, weights.Unsupported, "doesn't fit the model's [64 64 1 1]"},
		"another height":          {l, lora{pairs: q(randomPair(64, 32, 4, 1))}, weights.Unsupported, "doesn't fit"},
		"two ranks":               {l, lora{pairs: q(ranks)}, weights.Unsupported, "doesn't fit"},
		"an unknown matrix":       {l, lora{pairs: map[string]pair{"blk.7.attn_q.weight": good}}, weights.Unsupported, "which the model hasn't"},
		"a tensor of no pair":     {l, lora{pairs: q(good), others: []string{"blk.0.attn_q.bias"}}, weights.Unsupported, "neither .lora_a nor .lora_b"},
		"nothing to change":       {l, lora{others: []string{"blk.0.attn_norm.weight"}}, weights.Unsupported, "changes nothing"},
		"the output twice": {sharing, lora{pairs: map[string]pair{embeddings: {columns: 4, rows: 300, rank: 4, first: make([]float32, 1200), second: make([]float32, 256)}}},
			weights.Unsupported, "output too"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := c.file.write(t)
			refusedAdapter(t, c.in, path, c.reason, c.says)
		})
	}
	for name, c := range map[string]struct {
		content      []byte
		reason, says string
	}{
		"no GGUF": {[]byte("<html>"), weights.NotGGUF, "is not GGUF"},
		"nothing": {nil, weights.Truncated, "is empty"},
		"cut off": {bytesOf(t, changing(1))[:2000], weights.Truncated, "cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bad.gguf")
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			refusedAdapter(t, l, path, c.reason, c.says)
		})
	}
	refusedAdapter(t, l, filepath.Join(t.TempDir(), "gone.gguf"), weights.NotFound, "can't be opened")
	logitsOf(t, l, "", 0, someTokens) // the executor still works
}

func bytesOf(t *testing.T, l lora) []byte {
	t.Helper()
	b, err := os.ReadFile(l.write(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// refusedAdapter expects a refusal that names the file.
func refusedAdapter(t *testing.T, l *engine.Loaded, path, reason, says string) {
	t.Helper()
	err := l.Executor.(engine.Adapting).LoadAdapter(engine.Adapter{Name: "bad", Path: path})
	var refused *engine.LoadError
	if !errors.As(err, &refused) || refused.Reason != reason || !strings.Contains(refused.Message, says) || !strings.Contains(refused.Message, path) {
		t.Errorf("got %v, want %s with %q", err, reason, says)
	}
}

func TestTheEmbeddingsCanBeAdapted(t *testing.T) {
	l := openMade(t, small())
	p := pair{columns: 4, rows: 64, rank: 4} // a row of 4 for each token; 64 rows of 4
	p.first, p.second = make([]float32, 4*300), make([]float32, 64*4)
	for i := range p.first {
		p.first[i] = float32(i%7) - 3
	}
	for i := range p.second {
		p.second[i] = float32(i%5) - 2
	}
	loadAdapter(t, l, "words", lora{pairs: map[string]pair{embeddings: p}})
	if d := distance(logitsOf(t, l, "", 0, someTokens), logitsOf(t, l, "words", 1, someTokens)); d < 0.1 {
		t.Errorf("logits change by %g", d)
	}
}

func TestOnlySoManyAdaptersAreLoaded(t *testing.T) {
	l := openMade(t, small())
	path := changing(1).write(t)
	x := l.Executor.(engine.Adapting)
	for i := range maxAdapters {
		if err := x.LoadAdapter(engine.Adapter{Name: fmt.Sprint(i), Path: path}); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.LoadAdapter(engine.Adapter{Name: "more", Path: path}); err == nil || !strings.Contains(err.Error(), "at most 64") {
		t.Errorf("one more: %v", err)
	}
	if err := x.LoadAdapter(engine.Adapter{Name: "63", Path: path}); err != nil {
		t.Errorf("one is replaced: %v", err)
	}
	logitsOf(t, l, "63", 0, someTokens) // the graph has room
}

func TestAnAdapterChangesWhatTheDemoModelSays(t *testing.T) {
	l := open(t)
	prompt := tokens(t, l.Vocabulary, "The capital of France is the city of")
	p := randomPair(1536, 576, 8, 3)
	for i := range p.second {
		p.second[i] *= 30
	}
	loadAdapter(t, l, "odd", lora{pairs: map[string]pair{"blk.29.ffn_down.weight": p}})
	for i, want := range []bool{true, false, true, false} {
		name := []string{"", "odd"}[i%2]
		piece := string(l.Vocabulary.Piece(best(logitsOf(t, l, name, engine.Seq(i), prompt))))
		if (piece == " Paris") != want {
			t.Errorf("with adapter %q the model says %q", name, piece)
		}
	}
}
