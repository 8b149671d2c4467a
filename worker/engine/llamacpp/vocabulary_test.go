package llamacpp

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringfleet/ringfleet/worker/engine"
)

func TestTokensMakeTheirTextAgain(t *testing.T) {
	v := open(t).Vocabulary
	for name, text := range map[string]string{
		"words": "Hello, world!", "nothing": "", "spaces": "a  b\n\n\tc", "other scripts": "Grüße, 世界 👍🏽", "a NUL": "a\x00b",
		"only NULs": "\x00\x00", "a long text": strings.Repeat("one two three ", 70), "bytes that are no text": "\xff\xfeab",
	} {
		t.Run(name, func(t *testing.T) {
			var got []byte
			for _, token := range tokens(t, v, text) {
				got = append(got, v.Piece(token)...)
			}
			if want := strings.ToValidUTF8(text, "\uFFFD"); string(got) != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestSpecialTokensAreRecognisedWhereAskedAndHaveNoPiece(t *testing.T) {
	v := open(t).Vocabulary
	const text = "<|im_start|>user\nHi<|im_end|>"
	special := tokens(t, v, text)
	if want := []engine.Token{1, 4093, 198, 26843, 2}; !slices.Equal(special, want) {
		t.Errorf("got %v, want %v", special, want)
	}
	plain, err := v.Tokenize(text, false)
	if err != nil || len(plain) <= len(special) || plain[0] == 1 {
		t.Errorf("as plain text: %v, %v", plain, err)
	}
	if v.Piece(1) != nil && len(v.Piece(1)) > 0 {
		t.Errorf("the piece of <|im_start|> is %q", v.Piece(1))
	}
	if !v.EndsGeneration(2) || v.EndsGeneration(26843) {
		t.Error("<|im_end|> must end generation, and Hi must not")
	}
	for _, none := range []engine.Token{-1, 49152, 1 << 30} {
		if v.Piece(none) != nil || v.EndsGeneration(none) {
			t.Errorf("token %d is none", none)
		}
	}
}

func TestATextFarBeyondTheContextIsRefusedByItsBeginning(t *testing.T) {
	v := open(t).Vocabulary // of 1024 tokens
	_, err := v.Tokenize(strings.Repeat("<|im_start|>", 1<<20), true)
	var bad *engine.InvalidError
	if !errors.As(err, &bad) || bad.Code != engine.CodeContextLength || !strings.Contains(bad.Message, "the context holds 1024") {
		t.Errorf("got %v", err)
	}
	spaces := strings.Repeat(" ", firstBytes+firstBytes/2) // 64 to a token: longer than the context, but not far
	if out := tokens(t, v, spaces); len(out) != len(spaces)/64 {
		t.Errorf("%d bytes are %d tokens", len(spaces), len(out))
	}
}

func TestAVocabularyServesManyGoroutinesBesideAStep(t *testing.T) {
	l := open(t)
	want := tokens(t, l.Vocabulary, "The quick brown fox jumps over the lazy dog.")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				got, err := l.Vocabulary.Tokenize("The quick brown fox jumps over the lazy dog.", true)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("got %v, %v", got, err)
					return
				}
				for _, token := range got {
					_ = l.Vocabulary.Piece(token)
				}
				if _, err := l.Vocabulary.Render(engine.Chat{Messages: []byte(paris)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 5 {
		step(t, l.Executor, engine.Batch{Items: []engine.Item{{Pos: i * len(want), Tokens: want, Logits: true}}})
	}
	wg.Wait()
}

func TestAPromptGetsTheModelsFirstTokenOnce(t *testing.T) {
	l := open(t)
	v := l.Vocabulary.(*vocabulary)
	v.bos = 1 // as for a model that wants one; this model's file says that it doesn't
	for text, want := range map[string][]engine.Token{"Hi": {1, 26843}, "<|im_start|>Hi": {1, 26843}, "": {1}} {
		if got := tokens(t, v, text); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}
