package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/prefix"
)

func TestTheOwnerAnswersAndTheCallSaysWhoItIsMeantFor(t *testing.T) {
	f := newFleet(t, 3, whole)
	r := request()
	before := proto.Clone(r.Proto)
	s, err := f.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if text, finished, err := drain(s); text != "ab" || !finished || !errors.Is(err, io.EOF) {
		t.Errorf("got %q, finished %v, %v", text, finished, err)
	}
	if _, err := s.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end Next returns %v", err)
	}
	w := f.workers[0]
	if s.Worker() != w.Pod || s.Attempts() != 1 || s.PromptTokens() != 5 {
		t.Errorf("worker %s, attempts %d, prompt tokens %d", s.Worker(), s.Attempts(), s.PromptTokens())
	}
	got := w.seen()[0]
	if got.ExpectedInstanceId != w.Instance || got.ExpectedRevision != "r1" || got.ExpectedModelUid != "uid-1" ||
		got.RequestId != "req-1" || got.AttemptId == "" || got.MaxTokens != 7 || len(got.Stop) != 1 {
		t.Errorf("the worker sees %v", got)
	}
	if !proto.Equal(r.Proto, before) {
		t.Error("the caller's message was changed")
	}
	if err := w.ended(t); err != nil {
		t.Errorf("a finished call looks cancelled to the worker: %v", err)
	}
	eventually(t, "idle", func() bool { return len(f.InFlight()) == 0 })
}

func TestAPlaceThatWasTakenBeforeIsUsedForTheFirstTry(t *testing.T) {
	f := newFleet(t, 3, whole)
	f.workers[1].script = answer(status.Error(codes.Unavailable, "drains"))
	r := request()
	r.Place.Exclude = []placement.Process{{Pod: f.workers[0].Pod}}
	first, err := f.board.Place(&r.Place, f.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	r.Place.Exclude, r.First = nil, first
	s, err := f.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(f.workers[1].seen()) != 1 || s.Worker() != f.workers[0].Pod || s.Attempts() != 2 || len(f.tickets) != 1 {
		t.Errorf("%s answers after %d attempts and %d further places", s.Worker(), s.Attempts(), len(f.tickets))
	}
}

func TestAnAnswerWithoutTextIsAFinish(t *testing.T) {
	f := newFleet(t, 1, answer(nil, accepted(), finish()))
	s, err := f.Generate(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if text, finished, err := drain(s); text != "" || !finished || !errors.Is(err, io.EOF) {
		t.Errorf("got %q, finished %v, %v", text, finished, err)
	}
	if len(f.InFlight()) != 0 {
		t.Errorf("in flight %v", f.InFlight())
	}
}

func TestNothingAnsweredYetTheNextWorkerIsTriedOnce(t *testing.T) {
	die := func(f *fleet) { f.workers[0].kill() }
	for name, c := range map[string]struct {
		first   func(*workerv1.GenerateRequest, out) error
		before  func(*fleet)
		suspect bool
		why     error
	}{
		"the connection is refused":          {before: die, suspect: true, why: ErrRefused},
		"the worker drains":                  {first: answer(status.Error(codes.Unavailable, "drains")), suspect: true, why: ErrRefused},
		"it is another instance":             {first: answer(status.Error(codes.FailedPrecondition, "instance")), suspect: true, why: ErrRefused},
		"its engine fails":                   {first: answer(status.Error(codes.Internal, "engine")), why: ErrFailed},
		"its engine fails after it accepted": {first: answer(status.Error(codes.Internal, "engine"), accepted()), why: ErrFailed},
		"its engine is lost":                 {first: answer(engineGone(t)), suspect: true, why: ErrLost},
		"its engine is lost after a while":   {first: answer(engineGone(t), accepted()), suspect: true, why: ErrLost},
		"it ends without an answer":          {first: answer(nil, accepted()), why: ErrLost},
		"it cancels the call by itself":      {first: answer(status.Error(codes.Canceled, "stops")), why: ErrLost},
		"it goes away with an unknown error": {first: answer(errors.New("odd")), why: ErrFailed},
		"it is gone after it accepted":       {first: answer(status.Error(codes.Unavailable, "gone"), accepted()), suspect: true, why: ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 3, whole)
			if c.first != nil {
				f.workers[0].script = c.first
			}
			if c.before != nil {
				c.before(f)
			}
			f.expectWhole(t, t.Context(), f.workers[1])
			f.expectRetry(t, c.why)
			if got := f.suspected(f.workers[0]); got != c.suspect {
				t.Errorf("the first worker is suspect: %v, want %v", got, c.suspect)
			}
			if f.suspected(f.workers[1]) || len(f.workers[2].seen()) != 0 {
				t.Error("another worker than the second was drawn in")
			}
			if first, second := f.workers[0].seen(), f.workers[1].seen(); len(first) == 1 &&
				(first[0].RequestId != second[0].RequestId || first[0].AttemptId == second[0].AttemptId) {
				t.Errorf("attempts are %v and %v", first[0], second[0])
			}
		})
	}
}

func TestEveryTryTellsWhatThePromptIsKnownBy(t *testing.T) {
	for name, c := range map[string]struct {
		chain  prefix.Chain
		hash   uint64
		blocks uint32
	}{
		"a prompt of three blocks":          {prefix.Chain{7, 8, 9}, 9, 3},
		"a prompt that is shorter than one": {nil, 0, 0},
		"a chain without blocks":            {prefix.Chain{}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 3, whole)
			f.workers[0].script = answer(status.Error(codes.Internal, "engine"))
			r := request()
			r.Place.Chain, r.Place.PromptBytes = c.chain, 200
			s, err := f.Generate(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for _, w := range f.workers[:2] {
				if got := w.seen()[0]; got.GetPrefixHash() != c.hash || got.GetPrefixBlocks() != c.blocks || (got.GetPrefixBytes() == 200) != (c.blocks > 0) {
					t.Errorf("%s is told %d of %d blocks and %d bytes", w.Pod, got.GetPrefixHash(), got.GetPrefixBlocks(), got.GetPrefixBytes())
				}
			}
		})
	}
}

func TestAProcessKilledAfterItAcceptedIsReplacedByTheNext(t *testing.T) {
	f := newFleet(t, 2, whole)
	in := make(chan struct{})
	f.workers[0].script = func(_ *workerv1.GenerateRequest, o out) error {
		if err := o.Send(accepted()); err != nil {
			return err
		}
		close(in)
		<-o.Context().Done()
		return o.Context().Err()
	}
	go func() { <-in; f.workers[0].kill() }()
	f.expectWhole(t, t.Context(), f.workers[1])
	if !f.suspected(f.workers[0]) {
		t.Error("the killed worker is not suspect")
	}
}

func TestARequestIsNeverTriedOnAThirdWorker(t *testing.T) {
	f := newFleet(t, 3, answer(status.Error(codes.Internal, "engine")))
	if _, err := f.Generate(t.Context(), request()); !errors.Is(err, ErrFailed) {
		t.Errorf("got %v", err)
	}
	if len(f.workers[0].seen()) != 1 || len(f.workers[1].seen()) != 1 || len(f.workers[2].seen()) != 0 {
		t.Error("the wrong workers were tried")
	}
}

func TestErrorsThatNoOtherWorkerWouldMend(t *testing.T) {
	field, err := status.New(codes.InvalidArgument, "max_tokens is too large").WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "max_tokens", Reason: "context_length_exceeded", Description: "at most 2048"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		code error
		want error
	}{
		"a full queue":                      {status.Error(codes.ResourceExhausted, "full"), ErrBusy},
		"a role that may not call":          {status.Error(codes.PermissionDenied, "no"), ErrFailed},
		"a method that it doesn't have":     {status.Error(codes.Unimplemented, "no"), ErrFailed},
		"an invalid request":                {field.Err(), &InvalidError{"max_tokens", "context_length_exceeded", "at most 2048"}},
		"an invalid request without detail": {status.Error(codes.InvalidArgument, "bad"), &InvalidError{Message: "bad"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 2, answer(c.code))
			_, err := f.Generate(t.Context(), request())
			var got, want *InvalidError
			switch {
			case errors.As(c.want, &want):
				if !errors.As(err, &got) || *got != *want {
					t.Errorf("got %v, want %v", err, want)
				}
			case !errors.Is(err, c.want):
				t.Errorf("got %v, want %v", err, c.want)
			}
			if len(f.workers[1].seen()) != 0 || len(f.suspects) != 0 {
				t.Error("another worker was tried, or one is suspect")
			}
		})
	}
}

func TestARequestThatIsLargerThanAWorkerTakesIsNotItsAnswer(t *testing.T) {
	large := strings.Repeat("x", 4<<20) // what gRPC's servers take where nobody says otherwise
	calls := map[string]func(*fleet) error{
		"for an answer": func(f *fleet) error {
			r := request()
			r.Proto.Stop = []string{large}
			_, err := f.Generate(t.Context(), r)
			return err
		},
		"for embeddings": func(f *fleet) error {
			r := texts()
			r.Inputs[0].GetText().Text = large
			_, err := f.Embed(t.Context(), r)
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			f := embedders(t, 2, vectors(2))
			if err := call(f); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), " of 4194304") {
				t.Errorf("got %v", err)
			}
			if len(f.retries) != 0 || len(f.suspects) != 0 {
				t.Error("another worker was tried, or one is suspect")
			}
		})
	}
}

func TestAnAnswerThatIsLargerThanTheRouterTakesIsInvalid(t *testing.T) {
	f := newFleet(t, 2, answer(nil, delta(strings.Repeat("x", maxEvent))))
	_, err := f.Generate(t.Context(), request())
	var got *InvalidError
	if !errors.As(err, &got) || got.Message != "A part of the answer has more than 512 KiB." {
		t.Errorf("got %v", err)
	}
}

func TestWithoutAnybodyElseTheErrorSaysWhy(t *testing.T) {
	t.Run("a refusal becomes the placer's error", func(t *testing.T) {
		f := newFleet(t, 1, whole)
		f.workers[0].kill()
		_, err := f.Generate(t.Context(), request())
		var no *placement.NoWorkerError
		if !errors.As(err, &no) || no.Candidates != 1 || no.Excluded != 1 {
			t.Errorf("got %v", err)
		}
	})
	t.Run("two refusals are no worker as well", func(t *testing.T) {
		f := newFleet(t, 2, answer(status.Error(codes.Unavailable, "drains")))
		if _, err := f.Generate(t.Context(), request()); !errors.Is(err, ErrRefused) || !errors.Is(err, placement.ErrNoWorker) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a failed engine stays one", func(t *testing.T) {
		f := newFleet(t, 1, answer(status.Error(codes.Internal, "engine")))
		if _, err := f.Generate(t.Context(), request()); !errors.Is(err, ErrFailed) || errors.Is(err, placement.ErrNoWorker) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an unknown model has no worker", func(t *testing.T) {
		f := newFleet(t, 1, whole)
		r := request()
		r.Place.ModelUID = "uid-2"
		if _, err := f.Generate(t.Context(), r); !errors.Is(err, placement.ErrNoWorker) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a closed client takes nothing", func(t *testing.T) {
		f := newFleet(t, 1, whole)
		f.Close()
		if _, err := f.Generate(t.Context(), request()); !errors.Is(err, ErrRefused) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAfterTheFirstPieceADeathEndsTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		script func(*workerv1.GenerateRequest, out) error
		then   func(*fleet)
		want   error
	}{
		"the process is killed":    {stay(accepted(), delta("a")), func(f *fleet) { f.workers[0].kill() }, ErrLost},
		"its heartbeats end":       {stay(accepted(), delta("a")), func(f *fleet) { f.lose(0) }, ErrLost},
		"the client is closed":     {stay(accepted(), delta("a")), func(f *fleet) { f.Close() }, ErrLost},
		"its engine fails":         {answer(status.Error(codes.Internal, "x"), accepted(), delta("a")), func(*fleet) {}, ErrFailed},
		"it is read too slowly":    {answer(status.Error(codes.ResourceExhausted, "x"), accepted(), delta("a")), func(*fleet) {}, ErrSlowReader},
		"it ends without a finish": {answer(nil, accepted(), delta("a")), func(*fleet) {}, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 2, whole)
			f.workers[0].script = c.script
			s, err := f.Generate(t.Context(), request())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c.then(f)
			text, finished, err := drain(s)
			if text != "a" || finished || !errors.Is(err, c.want) {
				t.Errorf("got %q, finished %v, %v; want %v", text, finished, err, c.want)
			}
			if _, again := s.Next(); !errors.Is(again, err) {
				t.Errorf("the next Next returns %v", again)
			}
			if len(f.workers[1].seen()) != 0 {
				t.Error("the second worker was tried")
			}
			if n := len(f.InFlight()); n != 0 {
				t.Errorf("%d pods have requests", n)
			}
		})
	}
}

func TestAWorkerLostBeforeTheFirstPieceIsReplaced(t *testing.T) {
	f := newFleet(t, 2, whole)
	f.workers[0].script = stay(accepted())
	go func() {
		for len(f.workers[0].seen()) == 0 {
			<-time.After(time.Millisecond)
		}
		f.lose(0)
	}()
	f.expectWhole(t, t.Context(), f.workers[1])
	_ = f.workers[0].ended(t)
}

func TestTheFirstPieceMayTakeItsTimeAndNoMoreAndIsNotTriedElsewhere(t *testing.T) {
	f := newFleet(t, 2, stay(accepted()))
	got := make(chan error)
	go func() { _, err := f.Generate(t.Context(), request()); got <- err }()
	eventually(t, "called", func() bool { return len(f.workers[0].seen()) == 1 })
	f.clock.Step(2*time.Minute - time.Millisecond)
	select {
	case err := <-got:
		t.Fatalf("too early: %v", err)
	default:
	}
	f.clock.Step(time.Millisecond)
	if err := <-got; !errors.Is(err, ErrFirstByte) {
		t.Errorf("got %v", err)
	}
	if f.workers[0].ended(t) == nil || len(f.workers[1].seen()) != 0 || len(f.suspects) != 0 {
		t.Error("the call goes on, or another worker was tried, or one is suspect")
	}
}

func TestAStreamThatStandsStillEndsAndAReaderThatIsSlowIsNoReason(t *testing.T) {
	f := newFleet(t, 1, stay(accepted(), delta("a"), delta("b")))
	s, err := f.Generate(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	f.clock.Step(time.Hour) // nobody waits for the worker
	if e, err := s.Next(); e.GetDelta().GetText() != "b" {
		t.Fatalf("got %v, %v", e, err)
	}
	got := make(chan error)
	go func() { _, err := s.Next(); got <- err }()
	eventually(t, "waiting", func() bool { return s.at.patience.waiting.Load() > 0 && f.clock.HasWaiters() })
	f.clock.Step(time.Minute)
	if err := <-got; !errors.Is(err, ErrIdle) {
		t.Errorf("got %v", err)
	}
	if f.workers[0].ended(t) == nil {
		t.Error("the worker's call goes on")
	}
}

func TestAClientThatGoesAwayEndsTheWorkersCall(t *testing.T) {
	t.Run("before the first piece", func(t *testing.T) {
		f := newFleet(t, 2, stay(accepted()))
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() { _, err := f.Generate(ctx, request()); got <- err }()
		eventually(t, "called", func() bool { return len(f.workers[0].seen()) == 1 })
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if f.workers[0].ended(t) == nil || len(f.workers[1].seen()) != 0 {
			t.Error("the call goes on, or another worker was tried")
		}
	})
	t.Run("in the middle, nobody reading", func(t *testing.T) {
		f := newFleet(t, 1, stay(accepted(), delta("a")))
		ctx, cancel := context.WithCancel(t.Context())
		s, err := f.Generate(ctx, request())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		cancel()
		if f.workers[0].ended(t) == nil {
			t.Error("the call goes on")
		}
		if _, _, err := drain(s); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("by Close, twice", func(t *testing.T) {
		f := newFleet(t, 1, stay(accepted(), delta("a")))
		s, err := f.Generate(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		if got := f.InFlight()["w0"]; got != 1 {
			t.Errorf("%d in flight", got)
		}
		s.Close()
		s.Close()
		if f.workers[0].ended(t) == nil || len(f.InFlight()) != 0 {
			t.Error("the call goes on, or is counted")
		}
	})
}

func TestSyncClosesConnectionsOfWorkersThatAreGoneOnceTheirStreamsHaveEnded(t *testing.T) {
	more := make(chan struct{})
	f := newFleet(t, 1, func(r *workerv1.GenerateRequest, o out) error {
		if err := answer(nil, accepted(), delta("a"))(r, o); err != nil {
			return err
		}
		<-more
		return answer(nil, delta("b"), finish())(r, o)
	})
	s, err := f.Generate(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f.Sync(nil)
	if n := f.connections(); n != 1 {
		t.Errorf("%d connections under a running stream", n)
	}
	close(more)
	if text, finished, err := drain(s); text != "ab" || !finished || !errors.Is(err, io.EOF) {
		t.Errorf("got %q, finished %v, %v", text, finished, err)
	}
	if n := f.connections(); n != 0 {
		t.Errorf("%d connections to a worker that is gone", n)
	}
	f.expectWhole(t, t.Context(), f.workers[0])
	f.lose()
	if n := f.connections(); n != 1 {
		t.Errorf("%d connections to a worker that is there", n)
	}
	f.Sync(nil)
	if n := f.connections(); n != 0 {
		t.Errorf("%d idle connections to a worker that is gone", n)
	}
}

func TestAWorkerMayBeDeclaredLostWhileItIsReportedAsUnreachable(t *testing.T) {
	f := newFleet(t, 2, whole)
	lost := make(chan struct{}, 10)
	f.options.Suspect = func(string, string) { // as a table does that publishes what it is told
		done := make(chan struct{})
		go func() { f.lose(0); close(done) }()
		<-done
		lost <- struct{}{}
	}
	f.workers[0].kill()
	f.expectWhole(t, t.Context(), f.workers[1])
	select {
	case <-lost:
	case <-time.After(hang):
		t.Fatal("closing the connection waits for its dialler")
	}
	if n := f.connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func (f *fleet) connections() int {
	f.Client.mu.Lock()
	defer f.Client.mu.Unlock()
	return len(f.peers)
}

func TestABurstSurvivesTheDeathOfAWorkerWithoutAnErrorBeforeTheFirstPiece(t *testing.T) {
	f := &fleet{}
	gate := make(chan struct{})
	f.build(t, 3, clock.RealClock{}, func(r *workerv1.GenerateRequest, o out) error {
		if err := o.Send(accepted()); err != nil {
			return err
		}
		select {
		case <-gate:
		case <-o.Context().Done():
			return o.Context().Err()
		}
		return answer(nil, delta("a"), delta("b"), finish())(r, o)
	})
	const requests = 60
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			r := request()
			r.Place.Key, r.Place.RequestID = fmt.Appendf(nil, "session-%d", i/2), fmt.Sprintf("req-%d", i)
			s, err := f.Generate(t.Context(), r)
			if err != nil {
				t.Errorf("request %d: %v", i, err)
				return
			}
			defer s.Close()
			if text, finished, err := drain(s); text != "ab" || !finished || !errors.Is(err, io.EOF) {
				t.Errorf("request %d: %q, finished %v, %v", i, text, finished, err)
			}
		})
	}
	running := func() (n int) {
		for _, w := range f.workers {
			n += len(w.seen())
		}
		return n
	}
	eventually(t, "all running", func() bool { return running() == requests })
	dead := len(f.workers[0].seen())
	f.workers[0].kill()
	eventually(t, "all running again", func() bool { return running() == requests+dead })
	close(gate)
	all.Wait()
	if len(f.InFlight()) != 0 || dead == 0 {
		t.Errorf("in flight %v; the dead worker had %d", f.InFlight(), dead)
	}
}

// TestAWorkerThatClosesItsConnectionsCostsNoError has a worker send each connection away after a millisecond.
func TestAWorkerThatClosesItsConnectionsCostsNoError(t *testing.T) {
	var connections connections
	f := &fleet{serving: []grpc.ServerOption{grpc.StatsHandler(&connections),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: time.Millisecond})}}
	f.build(t, 1, clock.RealClock{}, whole)
	for range 500 {
		f.expectWhole(t, t.Context(), f.workers[0])
		_ = f.workers[0].ended(t)
		f.age()
	}
	if n := connections.Load(); len(f.retries) != 0 || len(f.suspects) != 0 || n < 2 {
		t.Errorf("%d connections, retries %v, suspects %v", n, f.retries, f.suspects)
	}
}

// connections counts those that begin.
type connections struct{ atomic.Int32 }

func (*connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*connections) HandleRPC(context.Context, stats.RPCStats)                         {}
func (*connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, begins := s.(*stats.ConnBegin); begins {
		c.Add(1)
	}
}

// age makes the lanes that rest too old to take a request.
func (f *fleet) age() {
	f.Client.mu.Lock()
	defer f.Client.mu.Unlock()
	for _, p := range f.peers {
		for _, l := range p.lanes {
			l.opened = l.opened.Add(-laneAge)
		}
	}
}
