package upstream

import (
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// TestWorkersThatWereLostBeforeCount has requests that come back after they have lost a worker, or none, to workers that are
// all lost at work on them.
func TestWorkersThatWereLostBeforeCount(t *testing.T) {
	gone := status.Error(codes.Unavailable, "gone")
	for name, run := range map[string]func(f *fleet, lost int) error{
		"an answer": func(f *fleet, lost int) error {
			r := request()
			r.Lost = lost
			_, err := f.Generate(t.Context(), r)
			return err
		},
		"embeddings": func(f *fleet, lost int) error {
			r := texts()
			r.Lost = lost
			_, err := f.Embed(t.Context(), r)
			return err
		},
	} {
		for lost, more := range []int{2, 1, 0} {
			t.Run(name, func(t *testing.T) {
				f := newFleet(t, 3, answer(gone, accepted()))
				for _, w := range f.workers {
					w.embed = refuses(engineGone(t))
				}
				err := run(f, lost)
				asked := 0
				for _, w := range f.workers {
					asked += len(w.seen()) + len(w.embedded())
				}
				if asked != more {
					t.Errorf("%d workers are asked by a request that has lost %d", asked, lost)
				}
				var on *Error
				if !errors.As(err, &on) || !errors.Is(err, ErrLost) || on.Lost != mostLost {
					t.Errorf("got %+v", err)
				}
			})
		}
	}
}

func TestALossIsToldAlsoWhereAnotherWorkerRefuses(t *testing.T) {
	f := newFleet(t, 2, answer(status.Error(codes.Unavailable, "gone"), accepted()))
	f.workers[1].script = answer(status.Error(codes.FailedPrecondition, "another instance"))
	var on *Error
	if _, err := f.Generate(t.Context(), request()); !errors.As(err, &on) || !errors.Is(err, ErrRefused) || on.Lost != 1 {
		t.Errorf("got %+v", err)
	}
}

// TestUsageCountsWhatWasNamedOnceWhereTheAnswerIsForgottenLater has an answer that goes on at a second worker, is forgotten
// there because the router's memory is full, and comes to its finish.
func TestUsageCountsWhatWasNamedOnceWhereTheAnswerIsForgottenLater(t *testing.T) {
	named := func(text string, token uint32) *workerv1.GenerateResponse {
		d := delta(text)
		d.GetDelta().Tokens = []uint32{token}
		return d
	}
	for name, prompt := range map[string]uint32{"the first worker counts the prompt": 5, "it does not": 0} {
		t.Run(name, func(t *testing.T) {
			accept := accepted()
			accept.GetAccepted().PromptTokens = prompt
			end := finish()
			end.GetFinish().Usage = &workerv1.Usage{PromptTokens: 5, CompletionTokens: 5, CachedTokens: 4}
			f := newFleet(t, 2, answer(nil, accept, named("d", 103), named("e", 104), end))
			f.workers[0].script = answer(engineGone(t), accept, named("a", 100), named("b", 101), named("c", 102))
			s, err := f.Generate(t.Context(), story.request())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			got, err := collect(s, func(n int) {
				if n == 4 {
					s.kept.forget(crowded)
				}
			})
			const want = "FINISH_REASON_STOP, usage 5, 5, 4"
			if err != nil || s.Resumes() != 1 || got.text != "abcde" || got.finish != want {
				t.Errorf("%q ends with %s, want %s; resumed %d times, %v", got.text, got.finish, want, s.Resumes(), err)
			}
		})
	}
}

func TestAFinishedAnswerWaitsAMomentForTheEndOfItsCall(t *testing.T) {
	f := newFleet(t, 1, stay(accepted(), delta("a"), finish()))
	r := request()
	r.FirstByte, r.Idle = 0, 0
	s, err := f.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	over := running(func() {
		if e, err := s.Next(); e.GetFinish() == nil {
			t.Errorf("got %v, %v", e, err)
		}
	})
	eventually(t, "waiting", f.clock.HasWaiters)
	f.clock.Step(lastWord - 1)
	select {
	case <-over:
		t.Error("it does not wait for its call")
	default:
	}
	f.clock.Step(1)
	within(t, "the finish", over)
	if _, err := s.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("it ends with %v", err)
	}
	if f.workers[0].ended(t) == nil {
		t.Error("the worker's call goes on")
	}
	if len(f.outcomes) != 1 || f.outcomes[0] != f.workers[0].Pod+" good" || f.clock.HasWaiters() {
		t.Errorf("told of %q, timers left: %v", f.outcomes, f.clock.HasWaiters())
	}
}
