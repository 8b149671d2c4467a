package mock

import (
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/ringfleet/ringfleet/api/worker/many"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/grpcserver"
)

// ModelUID is that of the model that GRPC's workers serve.
const ModelUID = "uid-bench"

// GRPC is a worker that speaks Ringfleet's contract.
type GRPC struct {
	workerv1.UnimplementedWorkerServer
	Pod  string
	Plan Plan
}

// Seats and blocks of a worker: enough that nothing waits.
const (
	seats  = 1 << 20
	blocks = 1 << 26
)

// Options are a server's options for such workers: a real worker's, but for as many streams at once as there are.
func Options(creds credentials.TransportCredentials) []grpc.ServerOption {
	return append(grpcserver.Options(creds), grpc.MaxConcurrentStreams(math.MaxUint32))
}

// Watch reports that the model is loaded and idle.
func (g *GRPC) Watch(r *workerv1.WatchRequest, s grpc.ServerStreamingServer[workerv1.Report]) error {
	tick := time.NewTicker(time.Duration(max(r.GetIntervalMilliseconds(), 100)) * time.Millisecond)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		err := s.Send(&workerv1.Report{
			InstanceId: g.Pod + "-1", Model: Model, ModelUid: ModelUID, PodName: g.Pod, Revision: "1", ModelLoaded: true,
			Stage: workerv1.Stage_STAGE_LOADED, Sequence: n, Resumes: true, GeneratesMany: true,
			Load: &workerv1.Load{MaxSequences: seats, KvBlockTokens: 16, KvBlocksTotal: new(uint64(blocks)), KvBlocksUsed: new(uint64(0))},
		})
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-s.Context().Done():
			return nil
		}
	}
}

// streamed is the stop string of requests that are answered token by token: the contract doesn't say whether a client
// streams.
const streamed = "stream"

// GenerateMany answers one request after the other, as a real worker does.
func (g *GRPC) GenerateMany(s many.Stream) error { return many.Serve(s, nil, g.Generate) }

// Generate answers as HTTP's worker does.
func (g *GRPC) Generate(r *workerv1.GenerateRequest, s grpc.ServerStreamingServer[workerv1.GenerateResponse]) error {
	accepted := &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Accepted{
		Accepted: &workerv1.Accepted{InstanceId: g.Pod + "-1", PromptTokens: 32, AttemptId: r.GetAttemptId()}}}
	if err := s.Send(accepted); err != nil {
		return err
	}
	if len(r.GetStop()) == 0 || r.GetStop()[0] != streamed {
		return g.finish(s, 64, &workerv1.Delta{Text: Text, Tokens: make([]uint32, 64)})
	}
	token := &workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{Text: Piece, Tokens: []uint32{7}}}}
	var err error
	if !g.Plan.beat(s.Context().Done(), func(int) bool { err = s.Send(token); return err == nil }) {
		return err
	}
	return g.finish(s, uint32(g.Plan.Tokens), nil)
}

func (g *GRPC) finish(s grpc.ServerStreamingServer[workerv1.GenerateResponse], tokens uint32, last *workerv1.Delta) error {
	if last != nil {
		if err := s.Send(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: last}}); err != nil {
			return err
		}
	}
	return s.Send(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Finish{Finish: &workerv1.Finish{
		Reason: workerv1.FinishReason_FINISH_REASON_STOP, Usage: &workerv1.Usage{PromptTokens: 32, CompletionTokens: tokens}}}})
}
