package grammar_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/engine/llamacpp"
	"github.com/ringfleet/ringfleet/worker/grammar"
	"github.com/ringfleet/ringfleet/worker/sampling"
)

// What a real model says with its real vocabulary, at a temperature at which it says anything, is an object or, where its
// length ends it, the beginning of one: something may follow it.
func TestARealModelWritesObjects(t *testing.T) {
	libs, model := os.Getenv("RINGFLEET_TEST_LIBS"), os.Getenv("RINGFLEET_TEST_WEIGHTS")
	if libs == "" || model == "" {
		t.Fatal("RINGFLEET_TEST_LIBS and RINGFLEET_TEST_WEIGHTS are not set: run make unit, or export " +
			"RINGFLEET_TEST_LIBS=$(go run ./hack/image libs) RINGFLEET_TEST_WEIGHTS=$(go run ./hack/image weights)")
	}
	loaded, err := llamacpp.Open(llamacpp.Options{LibraryDir: libs, WeightsPath: model, ContextTokens: 1024, MaxSequences: 8,
		KVType: llamacpp.F16, Threads: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loaded.Executor.Close(); err != nil {
			t.Error(err)
		}
	})
	v := grammar.New(loaded.Info.Vocab, loaded.Vocabulary.Piece, loaded.Vocabulary.EndsGeneration)
	text, err := loaded.Vocabulary.Render(engine.Chat{Messages: []byte(`[{"role":"user","content":"Name a cat and its age, as a JSON object."}]`)})
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := loaded.Vocabulary.Tokenize(text, true)
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for i, s := range []engine.Sampling{{}, {Temperature: 1, TopP: 0.95}, {Temperature: 1.5, TopK: 40}} {
		o := v.JSONObject()
		written, ended := write(t, loaded, engine.Seq(i), prompt, sampling.New(s, sampling.Options{Constraint: o}), 60)
		t.Logf("%+v: %q", s, written)
		if ended && !o.Complete() {
			t.Errorf("%q ended where it isn't complete", written)
		}
		if !o.Complete() {
			continue // and Next has found a token that may follow each time
		}
		whole++
		var members map[string]json.RawMessage
		if err := json.Unmarshal(written, &members); err != nil {
			t.Errorf("%q is no object: %v", written, err)
		}
	}
	if whole == 0 {
		t.Error("no output is a whole object")
	}
}

// write continues the prompt by at most n tokens and reports whether the model ended it.
func write(t *testing.T, l *engine.Loaded, seq engine.Seq, prompt []engine.Token, s *sampling.Sampler, n int) (out []byte, ended bool) {
	t.Helper()
	next, pos := prompt, 0
	for range n {
		r, err := l.Executor.Step(t.Context(), &engine.Batch{Items: []engine.Item{{Seq: seq, Pos: pos, Tokens: next, Logits: true}}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Next(r.Logits[0])
		if err != nil {
			t.Fatalf("after %q: %v", out, err)
		}
		s.Accept(c.Token)
		if l.Vocabulary.EndsGeneration(c.Token) {
			return out, true
		}
		out = append(out, l.Vocabulary.Piece(c.Token)...)
		pos += len(next)
		next = []engine.Token{c.Token}
	}
	return out, false
}
