package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ringfleet/ringfleet/api/worker/many"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
)

// laned is a fleet whose workers serve GenerateMany, and the calls that they have got.
type laned struct {
	*fleet
	calls atomic.Int32
}

// newLaned makes one where serve, if it is not nil, does what a worker does with the nth call, from 1.
func newLaned(t *testing.T, workers int, script func(*workerv1.GenerateRequest, out) error, serve func(n int32, s many.Stream) error) *laned {
	t.Helper()
	if !lanes {
		t.Skip("this is of lanes")
	}
	l := &laned{}
	count := func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		n := l.calls.Add(1)
		if serve != nil && strings.HasSuffix(info.FullMethod, "/GenerateMany") {
			return serve(n, &grpc.GenericServerStream[workerv1.GenerateRequest, workerv1.GenerateResponse]{ServerStream: s})
		}
		return handle(srv, s)
	}
	f := &fleet{clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), serving: []grpc.ServerOption{grpc.StreamInterceptor(count)}}
	f.build(t, workers, f.clock, script)
	l.fleet = f
	return l
}

// acceptance is that of q.
func acceptance(q *workerv1.GenerateRequest) *workerv1.GenerateResponse {
	r := accepted()
	r.GetAccepted().AttemptId = q.GetAttemptId()
	return r
}

// accept accepts q on s and sends the responses.
func accept(s many.Stream, q *workerv1.GenerateRequest, responses ...*workerv1.GenerateResponse) error {
	for _, r := range append([]*workerv1.GenerateResponse{acceptance(q)}, responses...) {
		if err := s.Send(r); err != nil {
			return err
		}
	}
	return nil
}

// over is the end of q.
func over(q *workerv1.GenerateRequest) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Ended{Ended: &workerv1.Ended{AttemptId: q.GetAttemptId()}}}
}

// resting is how many lanes rest.
func (l *laned) resting() int {
	l.Client.mu.Lock()
	defer l.Client.mu.Unlock()
	n := 0
	for _, p := range l.peers {
		n += len(p.lanes)
	}
	if n != l.lanes {
		panic("lanes are counted wrong")
	}
	return n
}

// hold runs n requests at the same time, and lets all end.
func (l *laned) hold(t *testing.T, n int) {
	t.Helper()
	var all []*Stream
	for range n {
		s, err := l.Generate(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	for _, s := range all {
		if _, _, err := drain(s); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		s.Close()
	}
}

func TestRequestsFollowOneAnotherOnALane(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	for range 5 {
		l.expectWhole(t, t.Context(), l.workers[0])
	}
	if n := l.calls.Load(); n != 1 {
		t.Errorf("5 requests took %d calls", n)
	}
	l.hold(t, 3)
	if n := l.calls.Load(); n != 3 || l.resting() != 3 {
		t.Errorf("with 3 at a time there are %d calls, and %d lanes rest", n, l.resting())
	}
}

func TestAWorkerThatDoesNotSayThatItServesLanesGetsCalls(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	l.Sync(nil)
	l.sync(func(_ int, w *Worker) { w.Many = false })
	l.hold(t, 2)
	if n := l.calls.Load(); n != 2 || l.resting() != 0 {
		t.Errorf("2 requests took %d calls, and %d lanes rest", n, l.resting())
	}
}

func TestARefusedRequestLeavesItsLane(t *testing.T) {
	refuses := true
	l := newLaned(t, 1, func(q *workerv1.GenerateRequest, o out) error {
		if refuses {
			return status.Error(codes.ResourceExhausted, "full")
		}
		return whole(q, o)
	}, nil)
	if _, err := l.Generate(t.Context(), request()); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v", err)
	}
	refuses = false
	l.expectWhole(t, t.Context(), l.workers[0])
	if n := l.calls.Load(); n != 1 {
		t.Errorf("they took %d calls", n)
	}
}

func TestARequestThatIsCancelledEndsItsLane(t *testing.T) {
	l := newLaned(t, 1, stay(accepted(), delta("a")), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := l.Generate(ctx, request())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := l.workers[0].ended(t); !errors.Is(err, context.Canceled) {
		t.Errorf("the worker's context ended with %v", err)
	}
	s.Close()
	if l.resting() != 0 {
		t.Error("the lane rests")
	}
}

func TestWhatIsSentOnALaneThatTheWorkerHasEndedIsSentOnceMore(t *testing.T) {
	end := func(n int32, s many.Stream) error {
		if n > 1 {
			return many.Serve(s, nil, whole)
		}
		q, err := s.Recv()
		if err != nil {
			return err
		}
		if err := accept(s, q, delta("a"), delta("b"), finish(), over(q)); err != nil {
			return err
		}
		_, err = s.Recv() // the next request finds nobody
		return err
	}
	l := newLaned(t, 1, whole, end)
	l.expectWhole(t, t.Context(), l.workers[0])
	l.expectWhole(t, t.Context(), l.workers[0])
	if n := l.calls.Load(); n != 2 || len(l.retries) != 0 || len(l.suspects) != 0 || len(l.outcomes) != 2 {
		t.Errorf("%d calls, retries %v, suspects %v, outcomes %v", n, l.retries, l.suspects, l.outcomes)
	}
}

func TestALaneThatHasEndedMeanwhileIsNotAsked(t *testing.T) {
	stop := make(chan struct{})
	l := newLaned(t, 1, whole, func(n int32, s many.Stream) error {
		if n <= 3 {
			return many.Serve(s, stop, whole)
		}
		return many.Serve(s, nil, whole)
	})
	l.hold(t, 3)
	close(stop)
	l.hold(t, 1) // whether the end has come by then or not
	if n := l.calls.Load(); n != 4 || len(l.retries) != 0 || len(l.suspects) != 0 {
		t.Errorf("%d calls, retries %v, suspects %v", n, l.retries, l.suspects)
	}
}

func TestWhatAnswersAnotherRequestIsNeverHandedOut(t *testing.T) {
	for name, responses := range map[string][]*workerv1.GenerateResponse{
		"a piece that is late":       {delta("secret")},
		"another one's acceptance":   {accepted(), delta("secret")},
		"another one's end":          {over(&workerv1.GenerateRequest{AttemptId: "other"}), delta("secret")},
		"a finish that is late":      {finish()},
		"an end that names nobody":   {over(nil)},
		"an empty response, as well": {{}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLaned(t, 1, whole, func(_ int32, s many.Stream) error {
				if _, err := s.Recv(); err != nil {
					return err
				}
				for _, r := range responses {
					if err := s.Send(r); err != nil {
						return err
					}
				}
				<-s.Context().Done()
				return nil
			})
			if s, err := l.Generate(t.Context(), request()); !errors.Is(err, ErrFailed) || s != nil {
				t.Errorf("got %v, %v", s, err)
			}
			if l.resting() != 0 {
				t.Error("the lane rests")
			}
		})
	}
}

func TestWhatIsAnotherOnesInTheMiddleEndsTheAnswer(t *testing.T) {
	other := &workerv1.GenerateRequest{AttemptId: "other"}
	for name, breach := range map[string]func(q *workerv1.GenerateRequest) *workerv1.GenerateResponse{
		"another one's end":        func(*workerv1.GenerateRequest) *workerv1.GenerateResponse { return over(other) },
		"another one's acceptance": func(*workerv1.GenerateRequest) *workerv1.GenerateResponse { return acceptance(other) },
		"a second one of its own":  acceptance,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLaned(t, 1, whole, func(_ int32, s many.Stream) error {
				q, err := s.Recv()
				if err != nil {
					return err
				}
				if err := accept(s, q, delta("mine"), breach(q), delta("secret"), finish(), over(q)); err != nil {
					return err
				}
				<-s.Context().Done()
				return nil
			})
			s, err := l.Generate(t.Context(), request())
			if err != nil {
				t.Fatal(err)
			}
			if text, finished, err := drain(s); text != "mine" || finished || !errors.Is(err, ErrFailed) {
				t.Errorf("got %q, finished %v, %v", text, finished, err)
			}
			s.Close()
			if l.resting() != 0 {
				t.Error("the lane rests")
			}
		})
	}
}

func TestAWorkerThatEndsEachStreamAtOnceHasRefused(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(strconv.Itoa(workers), func(t *testing.T) {
			l := newLaned(t, workers, whole, func(int32, many.Stream) error { return nil })
			if _, err := l.Generate(t.Context(), request()); !errors.Is(err, placement.ErrNoWorker) {
				t.Errorf("got %v", err)
			}
			if l.suspecting() || int(l.calls.Load()) != workers {
				t.Errorf("after %d calls the request is suspected: %v", l.calls.Load(), l.suspecting())
			}
		})
	}
}

func TestAWorkerThatTakesNoLaneAfterAllGetsCalls(t *testing.T) {
	l := newLaned(t, 1, whole, func(int32, many.Stream) error { return status.Error(codes.Unimplemented, "what is that") })
	l.hold(t, 2)
	l.sync(func(_ int, w *Worker) { w.Many = true })
	l.hold(t, 1)
	if n := l.calls.Load(); n != 4 && n != 5 || l.resting() != 0 { // two at a time may both have tried
		t.Errorf("3 requests took %d calls, and %d lanes rest", n, l.resting())
	}
	if len(l.retries) != 0 || len(l.suspects) != 0 {
		t.Errorf("retries %v, suspects %v", l.retries, l.suspects)
	}
}

func TestARequestThatIsOverTakesNoLane(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	l.hold(t, 3)
	ran := len(l.workers[0].seen())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Generate(ctx, request()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := l.resting(); n != 3 || len(l.workers[0].seen()) != ran {
		t.Errorf("%d lanes rest, and %d requests were run", n, len(l.workers[0].seen())-ran)
	}
}

func TestLanesWhoseConnectionBreaksAreNotAsked(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	l.hold(t, 3)
	w := l.workers[0]
	w.kill()
	w.serve.Wait()
	listener, err := net.Listen("tcp", w.Address)
	if err != nil {
		t.Fatal(err)
	}
	w.server = grpc.NewServer(l.serving...)
	workerv1.RegisterWorkerServer(w.server, w)
	w.serve.Go(func() { _ = w.server.Serve(listener) })
	eventually(t, "an answer", func() bool { // until the router has seen the end, and connects again, it is a refusal
		s, err := l.Generate(t.Context(), request())
		if err != nil {
			return false
		}
		defer s.Close()
		text, _, err := drain(s)
		return text == "ab" && errors.Is(err, io.EOF)
	})
	if l.resting() != 1 {
		t.Errorf("%d lanes rest", l.resting())
	}
}

func TestAnAnswerThatIsTooLargeEndsItsLane(t *testing.T) {
	large := false
	l := newLaned(t, 1, func(q *workerv1.GenerateRequest, o out) error {
		if large {
			return answer(nil, accepted(), delta(strings.Repeat("x", maxEvent)))(q, o)
		}
		return whole(q, o)
	}, nil)
	l.hold(t, 1)
	large = true
	if _, err := l.Generate(t.Context(), request()); err == nil {
		t.Error("it is taken")
	}
	if l.resting() != 0 {
		t.Error("the lane rests")
	}
	large = false
	l.expectWhole(t, t.Context(), l.workers[0])
}

func TestARequestThatIsTooLargeIsToldSoOnALaneThatRested(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	l.hold(t, 1)
	r := request()
	r.Proto.Prompt = &workerv1.GenerateRequest_Text{Text: &workerv1.TextPrompt{Text: strings.Repeat("x", 5<<20)}}
	if _, err := l.Generate(t.Context(), r); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	l.expectWhole(t, t.Context(), l.workers[0])
}

func TestAWorkerThatIsSilentOnALaneThatRestedIsLateAsOnACall(t *testing.T) {
	silent := false
	l := newLaned(t, 1, func(q *workerv1.GenerateRequest, o out) error {
		if silent {
			return stay()(q, o)
		}
		return whole(q, o)
	}, nil)
	l.hold(t, 1)
	silent = true
	got := make(chan error)
	go func() { _, err := l.Generate(t.Context(), request()); got <- err }()
	eventually(t, "asked", func() bool { return len(l.workers[0].seen()) == 2 })
	l.clock.Step(request().FirstByte)
	if err := <-got; !errors.Is(err, ErrFirstByte) {
		t.Errorf("got %v", err)
	}
	if l.resting() != 0 || l.calls.Load() != 1 {
		t.Errorf("%d lanes rest after %d calls", l.resting(), l.calls.Load())
	}
}

func TestTheLanesOfALostWorkerEnd(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	s, err := l.Generate(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	l.hold(t, 2)
	l.lose(0)
	if _, _, err := drain(s); !errors.Is(err, ErrLost) && !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	s.Close()
	if l.resting() != 0 {
		t.Errorf("%d lanes rest", l.resting())
	}
}

func TestAWorkersNextInstanceTakesLanesOnlyWhereItSaysSo(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	w := l.workers[0]
	w.Instance += "-next" // placed before the client is told of it
	l.publish(l.clock.Now())
	l.hold(t, 1)
	if n := l.resting(); n != 0 {
		t.Errorf("%d lanes rest at an instance that was not heard", n)
	}
	l.sync(func(_ int, w *Worker) { w.Many = true })
	l.hold(t, 1)
	if n := l.resting(); n != 1 {
		t.Errorf("%d lanes rest", n)
	}
}

func TestALaneWhoseRequestDoesNotEndIsNotKept(t *testing.T) {
	l := newLaned(t, 1, func(q *workerv1.GenerateRequest, o out) error {
		if err := whole(q, o); err != nil {
			return err
		}
		<-o.Context().Done() // it has nothing left to say, and does not end
		return o.Context().Err()
	}, nil)
	s, err := l.Generate(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if text, finished, err := drain(s); text != "ab" || !finished || !errors.Is(err, io.EOF) {
			t.Errorf("got %q, finished %v, %v", text, finished, err)
		}
		s.Close()
	}()
	for waits := true; waits; { // for as long as it waits for the last word
		select {
		case <-done:
			waits = false
		case <-time.After(time.Millisecond):
			l.clock.Step(lastWord)
		}
	}
	if l.resting() != 0 {
		t.Error("the lane rests")
	}
}

func TestLanesThatRestForLongAreEnded(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	l.hold(t, 4)
	l.clock.Step(laneRest / 2)
	l.hold(t, 2)
	l.clock.Step(laneRest / 2)
	eventually(t, "two that were of use in the last half", func() bool { return l.resting() == 2 })
	l.clock.Step(laneRest)
	eventually(t, "none without a request", func() bool { return l.resting() == 0 })
	if l.clock.HasWaiters() {
		t.Error("a timer is left")
	}
}

func TestNoRequestTakesALaneThatHasRestedForLong(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	l.hold(t, 3)
	l.Client.mu.Lock()
	l.sweeper.Stop() // it may come late
	l.Client.mu.Unlock()
	l.clock.Step(time.Hour)
	l.hold(t, 1)
	if n := l.calls.Load(); n != 4 || l.resting() != 1 {
		t.Errorf("%d calls were made, and %d lanes rest", n, l.resting())
	}
}

func TestALaneThatIsOldIsNotKept(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	s, err := l.Generate(t.Context(), request()) // it lasts that long
	if err != nil {
		t.Fatal(err)
	}
	l.clock.Step(laneAge)
	if _, _, err := drain(s); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	s.Close()
	if l.resting() != 0 {
		t.Error("an old lane rests")
	}
}

func TestNoRequestTakesALaneThatIsOld(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	for since := time.Duration(0); since < laneAge; since += laneRest / 2 {
		l.hold(t, 1)
		l.clock.Step(laneRest / 2)
	}
	if n := l.calls.Load(); n != 1 {
		t.Errorf("there were %d calls in the first %s", n, laneAge)
	}
	l.hold(t, 1)
	if n := l.calls.Load(); n != 2 {
		t.Errorf("there were %d calls after %s", n, laneAge)
	}
}

func TestLanesAreBounded(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	l.hold(t, mostLanes+5)
	if n := l.resting(); n != mostLanes {
		t.Errorf("%d lanes rest, want %d", n, mostLanes)
	}
}

func TestWhereTooManyLanesRestTheOneThatDidSoLongestIsEnded(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	l.hold(t, 2)
	more := mostAllLanes - 2 // those of other workers
	add := func(n int) {
		l.Client.mu.Lock()
		l.lanes += n
		l.Client.mu.Unlock()
	}
	s, err := l.Generate(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	add(more + 1)
	l.hold(t, 1) // takes the one that rests, and gives it back
	if _, _, err := drain(s); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	s.Close() // there is no room: this one rests, the other one ends
	add(-more - 1)
	if n := l.resting(); n != 1 || l.calls.Load() != 2 {
		t.Errorf("%d lanes rest, and %d calls were made", n, l.calls.Load())
	}
}

func TestTheLanesOfAWorkerThatIsGoneAreEnded(t *testing.T) {
	l := newLaned(t, 1, whole, nil)
	l.hold(t, 3)
	l.Sync(nil)
	if n := l.resting(); n != 0 {
		t.Errorf("%d lanes rest", n)
	}
}

func TestALaneIsKeptWhereWhatFollowsTheFinishIsTheEndOfItsRequest(t *testing.T) {
	response := func(r *workerv1.GenerateResponse) func(*workerv1.GenerateRequest) *workerv1.GenerateResponse {
		return func(*workerv1.GenerateRequest) *workerv1.GenerateResponse { return r }
	}
	for name, c := range map[string]struct {
		last func(q *workerv1.GenerateRequest) *workerv1.GenerateResponse
		kept int
	}{
		"an end": {over, 1},
		"an end with a status": {func(q *workerv1.GenerateRequest) *workerv1.GenerateResponse {
			r := over(q)
			r.GetEnded().Status = []byte("x")
			return r
		}, 1},
		"an end with something behind": {func(q *workerv1.GenerateRequest) *workerv1.GenerateResponse {
			r := over(q)
			r.ProtoReflect().SetUnknown([]byte{0x78, 0x01})
			return r
		}, 1},
		"an end without an id": {response(over(nil)), 0},
		"another one's end":    {response(over(&workerv1.GenerateRequest{AttemptId: "other"})), 0},
		"a delta":              {response(delta("a1")), 0},
		"nothing":              {response(&workerv1.GenerateResponse{}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLaned(t, 1, whole, func(_ int32, s many.Stream) error {
				q, err := s.Recv()
				if err != nil {
					return err
				}
				if err := accept(s, q, delta("a"), delta("b"), finish(), c.last(q)); err != nil {
					return err
				}
				<-s.Context().Done()
				return nil
			})
			s, err := l.Generate(t.Context(), request())
			if err != nil {
				t.Fatal(err)
			}
			if text, finished, err := drain(s); text != "ab" || !finished || !errors.Is(err, io.EOF) {
				t.Errorf("got %q, finished %v, %v", text, finished, err)
			}
			s.Close()
			if n := l.resting(); n != c.kept {
				t.Errorf("%d lanes rest, want %d", n, c.kept)
			}
		})
	}
}
