package upstream

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

func TestHowACallEndsSaysSomethingOfItsWorkerOrNothing(t *testing.T) {
	fails := func(code codes.Code) func(*workerv1.GenerateRequest, out) error {
		return answer(status.Error(code, "x"), accepted(), delta("a"))
	}
	for name, c := range map[string]struct {
		script func(*workerv1.GenerateRequest, out) error
		want   []string
	}{
		"it finishes":                       {whole, []string{"w0 good"}},
		"its engine fails":                  {fails(codes.Internal), []string{"w0 failed"}},
		"its engine is closed":              {fails(codes.Unavailable), []string{"w0 failed"}},
		"it says what nobody understands":   {fails(codes.DataLoss), []string{"w0 failed"}},
		"it ends without a finish":          {answer(nil, delta("a")), []string{"w0 failed"}},
		"it refuses":                        {answer(status.Error(codes.FailedPrecondition, "x")), []string{"w0 failed"}},
		"its queue is full":                 {answer(status.Error(codes.ResourceExhausted, "x")), nil},
		"the request is wrong":              {answer(status.Error(codes.InvalidArgument, "x")), nil},
		"it is read too slowly":             {fails(codes.ResourceExhausted), nil},
		"its heartbeats end":                {stay(accepted(), delta("lose")), nil},
		"the client goes":                   {stay(accepted(), delta("cancel")), nil},
		"the client closes":                 {stay(accepted(), delta("close")), nil},
		"it stands still after a piece":     {stay(accepted(), delta("idle")), []string{"w0 failed"}},
		"it drains, and gives up its calls": {stay(accepted(), delta("drain")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, c.script)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := f.Generate(ctx, request())
			if err == nil {
				f.end(t, s, cancel)
			}
			if !slices.Equal(f.outcomes, c.want) {
				t.Errorf("told of %q, want %q", f.outcomes, c.want)
			}
		})
	}
}

// end ends an answer as its text says.
func (f *fleet) end(t *testing.T, s *Stream, cancel context.CancelFunc) {
	t.Helper()
	defer s.Close()
	e, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	switch e.GetDelta().GetText() {
	case "lose":
		f.lose(0)
	case "cancel":
		cancel()
	case "close":
		return
	case "idle":
		go func() {
			for s.at.patience.waiting.Load() == 0 {
				<-time.After(time.Millisecond)
			}
			f.clock.Step(time.Minute)
		}()
	case "drain":
		f.sync(func(_ int, w *Worker) { w.Draining = true })
		f.workers[0].kill()
	}
	_, _, _ = drain(s)
}

func TestAWorkerThatMakesNoFirstTokenIsToldOf(t *testing.T) {
	f := newFleet(t, 1, stay(accepted()))
	got := make(chan error)
	go func() { _, err := f.Generate(t.Context(), request()); got <- err }()
	eventually(t, "called", func() bool { return len(f.workers[0].seen()) == 1 })
	f.clock.Step(2 * time.Minute)
	if err := <-got; !errors.Is(err, ErrFirstByte) || !slices.Equal(f.outcomes, []string{"w0 no first byte"}) {
		t.Errorf("got %v, told of %q", err, f.outcomes)
	}
}

func TestAConnectionThatBreaksUnderManyCallsIsOneFailure(t *testing.T) {
	f := newFleet(t, 1, stay(accepted(), delta("a")))
	var all []*Stream
	for range 10 {
		s, err := f.Generate(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		all = append(all, s)
	}
	f.clock.Step(time.Second)
	f.workers[0].kill()
	for _, s := range all {
		if _, _, err := drain(s); !errors.Is(err, ErrLost) {
			t.Errorf("got %v", err)
		}
	}
	if want := []string{"w0 failed"}; !slices.Equal(f.outcomes, want) {
		t.Errorf("told of %q, want %q", f.outcomes, want)
	}
	f.clock.Step(time.Second)
	if _, err := f.Generate(t.Context(), request()); err == nil {
		t.Fatal("a worker that is gone answers")
	}
	if want := []string{"w0 failed", "w0 failed"}; !slices.Equal(f.outcomes, want) {
		t.Errorf("after another call told of %q, want %q", f.outcomes, want)
	}
}

func TestCallsAreMeasuredFromTheirBeginningAndBetweenTheirTokens(t *testing.T) {
	f := newFleet(t, 1, nil)
	f.workers[0].script = func(_ *workerv1.GenerateRequest, o out) error {
		f.clock.Step(300 * time.Millisecond)
		if err := answer(nil, accepted(), silent(1), delta("a"), silent(2, 3), delta("b"))(nil, o); err != nil {
			return err
		}
		<-o.Context().Done()
		return nil
	}
	s, err := f.Generate(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	if want := []Measure{{FirstToken: 300 * time.Millisecond, Usual: 250 * time.Microsecond, Tokens: 3}}; !slices.Equal(f.measures, want) {
		t.Errorf("an answer that was given up is measured as %+v, want %+v", f.measures, want)
	}
	_ = f.workers[0].ended(t)
	last := make(chan struct{})
	f.workers[0].script = func(_ *workerv1.GenerateRequest, o out) error {
		if err := answer(nil, accepted(), silent(1), delta("a"), silent(2, 3), delta("b"))(nil, o); err != nil {
			return err
		}
		<-last
		return answer(nil, finish())(nil, o)
	}
	s, err = f.Generate(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f.clock.Step(time.Second)
	close(last)
	if _, finished, _ := drain(s); !finished {
		t.Fatal("no finish")
	}
	if want := (Measure{Usual: 250 * time.Microsecond, BetweenTokens: 500 * time.Millisecond, Tokens: 3}); f.measures[1] != want {
		t.Errorf("an answer is measured as %+v, want %+v", f.measures[1], want)
	}
}
