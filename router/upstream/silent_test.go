package upstream

import (
	"errors"
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// silent is tokens without text, as special ones are.
func silent(tokens ...uint32) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{Tokens: tokens}}}
}

func TestTokensWithoutTextAreNoAnswerYet(t *testing.T) {
	t.Run("a worker that fails after them is replaced", func(t *testing.T) {
		f := newFleet(t, 2, whole)
		f.workers[0].script = answer(status.Error(codes.Internal, "engine"), accepted(), silent(7), silent(8))
		f.expectWhole(t, t.Context(), f.workers[1])
	})
	t.Run("they are counted with the first text", func(t *testing.T) {
		f := newFleet(t, 1, answer(nil, accepted(), silent(7), silent(8), delta("a"), silent(9), finish()))
		s, err := f.Generate(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var tokens []uint32
		text := ""
		for {
			e, err := s.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text += e.GetDelta().GetText()
			tokens = append(tokens, e.GetDelta().GetTokens()...)
		}
		if text != "a" || !slices.Equal(tokens, []uint32{7, 8, 9}) {
			t.Errorf("got %q of tokens %v", text, tokens)
		}
	})
}
