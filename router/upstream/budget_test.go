package upstream

import (
	"errors"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

func TestTheBudgetPaysForAPartOfWhatRuns(t *testing.T) {
	for _, c := range []struct{ active, want int }{{0, 3}, {14, 3}, {18, 3}, {19, 4}, {99, 20}, {1000, 200}} {
		b := budget{active: c.active}
		got := 0
		for b.spend() {
			got++
		}
		if got != c.want {
			t.Errorf("with %d calls it pays for %d retries, want %d", c.active, got, c.want)
		}
		b.refund()
		if !b.spend() || b.spend() {
			t.Errorf("with %d calls it does not pay again for one that has ended", c.active)
		}
	}
}

// TestFailuresOfAllWorkersDoNotDoubleTheirWork starts calls on an engine that fails, and holds the retries until all failed
// once: three are retried, and the others get the failure at once.
func TestFailuresOfAllWorkersDoNotDoubleTheirWork(t *testing.T) {
	f := newFleet(t, 2, answer(status.Error(codes.Internal, "engine"), accepted()))
	f.workers[1].script = stay(accepted(), delta("a"))
	const requests = 12
	var failed sync.WaitGroup
	failed.Add(requests - retryLeast)
	got := make(chan *Stream, requests)
	for range requests {
		go func() {
			s, err := f.Generate(t.Context(), request())
			if err == nil {
				got <- s
				return
			}
			if !errors.Is(err, ErrFailed) {
				t.Errorf("got %v", err)
			}
			failed.Done()
		}()
	}
	failed.Wait()
	for range retryLeast {
		(<-got).Close()
	}
	if n := len(f.workers[1].seen()); n != retryLeast {
		t.Errorf("%d requests were tried again, want %d", n, retryLeast)
	}
}

func TestLostWorkersAndEnginesAreRetriedWhateverTheBudget(t *testing.T) {
	for name, end := range map[string]func(*workerv1.GenerateRequest, out) error{
		"a connection":                   answer(status.Error(codes.Unavailable, "gone"), accepted()),
		"an engine":                      answer(engineGone(t), accepted()),
		"an engine before it has spoken": answer(engineGone(t)),
	} {
		t.Run(name, func(t *testing.T) { retriedWhateverTheBudget(t, end) })
	}
}

func retriedWhateverTheBudget(t *testing.T, end func(*workerv1.GenerateRequest, out) error) {
	f := newFleet(t, 2, end)
	f.workers[1].script = stay(accepted(), delta("a"))
	var all []*Stream
	for range 3 * retryLeast {
		s, err := f.Generate(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	for _, s := range all {
		s.Close()
	}
}
