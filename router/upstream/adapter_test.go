package upstream

import (
	"errors"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
)

// without is how a worker refuses a request for what it has not loaded.
func without(t *testing.T) func(*workerv1.GenerateRequest, out) error {
	t.Helper()
	s, err := status.New(codes.InvalidArgument, "not loaded").WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "model", Reason: "model_not_found", Description: `adapter "a" is not loaded`}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer(s.Err())
}

func adapted() Request {
	r := request()
	r.Proto.Adapter = "a"
	return r
}

func TestAWorkerWithoutTheAdapterIsNoAttemptAndNotSuspect(t *testing.T) {
	f := newFleet(t, 5, without(t))
	f.workers[3].script = answer(status.Error(codes.Internal, "engine"))
	f.workers[4].script = whole
	s, err := f.Generate(t.Context(), adapted())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Worker() != f.workers[4].Pod || s.Attempts() != 2 || len(f.suspects) != 0 {
		t.Errorf("%s answers after %d attempts, suspect are %v", s.Worker(), s.Attempts(), f.suspects)
	}
	if got := f.workers[4].seen()[0].GetAdapter(); got != "a" {
		t.Errorf("the worker is asked for adapter %q", got)
	}
	if why := f.retries[0].Why; why != ErrNoAdapter.Error() {
		t.Errorf("the first retry says %q", why)
	}
}

func TestAnAdapterThatNobodyHasIsNotLookedForWithoutEnd(t *testing.T) {
	for name, c := range map[string]struct{ workers, asked int }{"few workers": {2, 2}, "many workers": {mostWithout + 2, mostWithout}} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, c.workers, without(t))
			if _, err := f.Generate(t.Context(), adapted()); !errors.Is(err, ErrNoAdapter) {
				t.Errorf("got %v", err)
			}
			asked := 0
			for _, w := range f.workers {
				asked += len(w.seen())
			}
			if asked != c.asked {
				t.Errorf("%d workers were asked, want %d", asked, c.asked)
			}
		})
	}
}

func TestAWorkerThatMayHaveTheAdapterAndRefusesIsTheReason(t *testing.T) {
	f := newFleet(t, 2, without(t))
	f.workers[0].script = answer(status.Error(codes.Unavailable, "drains"))
	if _, err := f.Generate(t.Context(), adapted()); !errors.Is(err, placement.ErrNoWorker) {
		t.Errorf("got %v", err)
	}
}

func TestAModelThatItsWorkerDoesNotKnowIsTheWorkersFault(t *testing.T) {
	f := newFleet(t, 2, whole)
	f.workers[0].script = without(t)
	f.expectWhole(t, t.Context(), f.workers[1])
	f.expectRetry(t, ErrRefused)
	if !f.suspected(f.workers[0]) {
		t.Error("a worker that does not have its model is not suspect")
	}
}
