package upstream

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/placement"
)

// benchTokens is how many tokens an answer has here.
const benchTokens = 200

// benchFleet is a worker that answers with that many tokens of one word each.
func benchFleet(b *testing.B) *fleet {
	b.Helper()
	word := &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{Text: " word", Tokens: []uint32{5000}}}}
	f := &fleet{}
	f.build(b, 1, clock.RealClock{}, func(_ *workerv1.GenerateRequest, o out) error {
		if err := o.Send(accepted()); err != nil {
			return err
		}
		for range benchTokens {
			if err := o.Send(word); err != nil {
				return err
			}
		}
		return o.Send(finish())
	})
	f.workers[0].mute = true
	f.place = func(q *placement.Request, now time.Time) (ticket, error) { return f.board.Place(q, now) }
	f.options.Outcome, f.options.Measured = nil, nil
	return f
}

// BenchmarkStream is an answer of 200 tokens over a real connection, the worker's side of it included. gRPC alone is what the
// same costs without this package.
func BenchmarkStream(b *testing.B) {
	b.Run("upstream", func(b *testing.B) {
		f := benchFleet(b)
		b.ReportAllocs()
		for b.Loop() {
			r := request()
			r.Resume = true
			s, err := f.Generate(b.Context(), r)
			if err != nil {
				b.Fatal(err)
			}
			for {
				if _, err := s.Next(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					b.Fatal(err)
				}
			}
			s.Close()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchTokens, "ns/token")
	})
	b.Run("gRPC alone", func(b *testing.B) {
		f := benchFleet(b)
		conn, err := f.dial(f.workers[0].Worker)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		client := workerv1.NewWorkerClient(conn)
		b.ReportAllocs()
		for b.Loop() {
			call, err := client.Generate(b.Context(), request().Proto)
			if err != nil {
				b.Fatal(err)
			}
			for {
				if _, err := call.Recv(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchTokens, "ns/token")
	})
}

// BenchmarkRead is what a token costs to read: into an event, and into a fresh message.
func BenchmarkRead(b *testing.B) {
	data, err := proto.Marshal(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{Text: " word", Tokens: []uint32{5000}}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("event", func(b *testing.B) {
		var e event
		b.ReportAllocs()
		for b.Loop() {
			_ = e.read(data)
		}
	})
	b.Run("fresh", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = proto.Unmarshal(data, &workerv1.GenerateResponse{})
		}
	})
}

// BenchmarkFingerprint is a request with a long prompt.
func BenchmarkFingerprint(b *testing.B) {
	c, r := New(Options{}), request()
	r.Proto.Prompt = &workerv1.GenerateRequest_Chat{Chat: &workerv1.ChatPrompt{Messages: []byte(strings.Repeat("x", 220<<10))}}
	b.SetBytes(220 << 10)
	b.ReportAllocs()
	for b.Loop() {
		q := newSearch(&r.Place, nil, r.Proto, 0)
		_ = c.hash(&q)
	}
}
