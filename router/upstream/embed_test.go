package upstream

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
)

type embed = func(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error)

// vectors answers with one vector, of that many numbers.
func vectors(width int) embed {
	return func(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
		return &workerv1.EmbedResponse{Vectors: []*workerv1.Vector{{Values: make([]float32, width)}}, PromptTokens: 3}, nil
	}
}

func refuses(err error) embed {
	return func(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) { return nil, err }
}

// waits ends with the call.
func waits(ctx context.Context, _ *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// embedders starts workers that embed, the first of them as first says.
func embedders(t *testing.T, n int, first embed) *fleet {
	t.Helper()
	f := newFleet(t, n, whole)
	for _, w := range f.workers {
		w.embed = vectors(2)
	}
	f.workers[0].embed = first
	return f
}

func texts() EmbedRequest {
	return EmbedRequest{Place: placement.Request{ModelUID: "uid-1", RequestID: "req-1", Key: key}, Limit: time.Minute,
		Inputs: []*workerv1.EmbedInput{{Input: &workerv1.EmbedInput_Text{Text: &workerv1.TextPrompt{Text: "x"}}}}}
}

func TestTheOwnerEmbedsAndTheCallSaysWhoItIsMeantFor(t *testing.T) {
	f := embedders(t, 2, vectors(2))
	got, err := f.Embed(t.Context(), texts())
	if err != nil {
		t.Fatal(err)
	}
	w := f.workers[0]
	if got.Worker != w.Pod || got.GetPromptTokens() != 3 || len(got.GetVectors()[0].GetValues()) != 2 {
		t.Errorf("got %v", got)
	}
	want := &workerv1.EmbedRequest{ExpectedInstanceId: w.Instance, ExpectedRevision: "r1", ExpectedModelUid: "uid-1", RequestId: "req-1", Inputs: texts().Inputs}
	if q := w.embedded()[0]; !proto.Equal(q, want) {
		t.Errorf("the worker sees %v, want %v", q, want)
	}
	if n := len(f.InFlight()); n != 0 {
		t.Errorf("%d pods have requests", n)
	}
}

func TestEmbeddingsAreTriedOnceMoreOnTheNextWorker(t *testing.T) {
	for name, c := range map[string]struct {
		first   func(f *fleet) embed
		suspect bool
		why     error
	}{
		"the connection is refused": {func(f *fleet) embed { f.workers[0].kill(); return nil }, true, ErrRefused},
		"the worker drains":         {func(*fleet) embed { return refuses(status.Error(codes.Unavailable, "drains")) }, true, ErrRefused},
		"it is another instance":    {func(*fleet) embed { return refuses(status.Error(codes.FailedPrecondition, "instance")) }, true, ErrRefused},
		"its engine fails":          {func(*fleet) embed { return refuses(status.Error(codes.Internal, "engine")) }, false, ErrFailed},
		"its heartbeats end": {func(f *fleet) embed {
			return func(ctx context.Context, r *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
				f.lose(0)
				return waits(ctx, r)
			}
		}, true, ErrLost},
		"its process is killed at work": {func(f *fleet) embed {
			return func(ctx context.Context, r *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
				go f.workers[0].kill()
				return waits(ctx, r)
			}
		}, true, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			f := embedders(t, 3, nil)
			f.workers[0].embed = c.first(f)
			got, err := f.Embed(t.Context(), texts())
			if err != nil || got.Worker != f.workers[1].Pod {
				t.Fatalf("got %v, %v", got, err)
			}
			f.expectRetry(t, c.why)
			if got := f.suspected(f.workers[0]); got != c.suspect {
				t.Errorf("the first worker is suspect: %v, want %v", got, c.suspect)
			}
		})
	}
}

func TestEmbeddingsThatNoOtherWorkerWouldMake(t *testing.T) {
	for name, c := range map[string]struct {
		first embed
		want  error
	}{
		"a full queue":              {refuses(status.Error(codes.ResourceExhausted, "full")), ErrBusy},
		"an engine that makes none": {refuses(status.Error(codes.Unimplemented, "none")), ErrNoEmbeddings},
		"an input that is too long": {refuses(status.Error(codes.InvalidArgument, "too long")), &InvalidError{Message: "too long"}},
		"an answer that is too large": {vectors(maxReceive/4 + 1), &InvalidError{Field: "input",
			Message: "The embeddings of the 1 inputs have more than 32 MiB together. Send fewer at once."}},
	} {
		t.Run(name, func(t *testing.T) {
			f := embedders(t, 2, c.first)
			_, err := f.Embed(t.Context(), texts())
			var got, want *InvalidError
			if errors.As(c.want, &want) {
				if !errors.As(err, &got) || *got != *want {
					t.Errorf("got %v, want %v", err, want)
				}
			} else if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if len(f.workers[1].embedded()) != 0 || len(f.suspects) != 0 {
				t.Error("another worker was tried, or one is suspect")
			}
		})
	}
}

func TestVectorsOfTheMostInputsAreTaken(t *testing.T) {
	f := embedders(t, 1, func(context.Context, *workerv1.EmbedRequest) (*workerv1.EmbedResponse, error) {
		out := &workerv1.EmbedResponse{}
		for range 2048 {
			out.Vectors = append(out.Vectors, &workerv1.Vector{Values: make([]float32, 4096)})
		}
		return out, nil
	})
	if got, err := f.Embed(t.Context(), texts()); err != nil || len(got.GetVectors()) != 2048 {
		t.Errorf("got %v", err)
	}
}

func TestEmbeddingsMayTakeTheirTimeAndNoMoreAndAreNotTriedElsewhere(t *testing.T) {
	f := embedders(t, 2, waits)
	got := make(chan error)
	go func() { _, err := f.Embed(t.Context(), texts()); got <- err }()
	eventually(t, "called", func() bool { return len(f.workers[0].embedded()) == 1 })
	f.clock.Step(time.Minute - time.Millisecond)
	select {
	case err := <-got:
		t.Fatalf("too early: %v", err)
	default:
	}
	f.clock.Step(time.Millisecond)
	if err := <-got; !errors.Is(err, ErrFirstByte) {
		t.Errorf("got %v", err)
	}
	if f.workers[0].ended(t) == nil || len(f.workers[1].embedded()) != 0 || len(f.InFlight()) != 0 {
		t.Error("the call goes on, or another worker was tried, or one is counted")
	}
}

func TestAClientThatGoesAwayEndsItsEmbeddings(t *testing.T) {
	f := embedders(t, 2, waits)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	go func() { _, err := f.Embed(ctx, texts()); got <- err }()
	eventually(t, "called", func() bool { return len(f.workers[0].embedded()) == 1 })
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if f.workers[0].ended(t) == nil || len(f.workers[1].embedded()) != 0 {
		t.Error("the call goes on, or another worker was tried")
	}
}

func TestEmbeddingsWithoutAWorkerSayWhy(t *testing.T) {
	r := texts()
	r.Place.ModelUID = "uid-2"
	if _, err := embedders(t, 1, nil).Embed(t.Context(), r); !errors.Is(err, placement.ErrNoWorker) {
		t.Errorf("got %v", err)
	}
	f := embedders(t, 2, refuses(status.Error(codes.Internal, "engine")))
	f.workers[1].embed = f.workers[0].embed
	if _, err := f.Embed(t.Context(), texts()); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), f.workers[1].Pod) {
		t.Errorf("got %v", err)
	}
}
