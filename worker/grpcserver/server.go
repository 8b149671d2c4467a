// Package grpcserver is the worker's side of api/worker/v1: it checks that a call is meant for this very process, hands
// requests to the engine and streams what comes back, and reports how the worker is. It owns no engine and no state of the
// worker, and it neither queues nor schedules. code.go alone turns errors into codes. It never logs a prompt or an answer.
package grpcserver

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"k8s.io/utils/clock"

	"github.com/ringfleet/ringfleet/api/identity"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/worker/engine"
	"github.com/ringfleet/ringfleet/worker/metrics"
)

// Identity says who this worker is. Only Instance changes: when the engine is another process.
type Identity struct {
	Instance, Model, ModelUID, Revision, PodName, PodUID string
	// RingWeightPercent is how many points it has on the routers' rings, in per cent of what a worker has; 0 means 100.
	RingWeightPercent uint32
}

// Status is how the worker is at one moment.
type Status struct {
	Stage    workerv1.Stage
	Percent  *uint32
	Reason   string
	Message  string
	Draining bool
	// Engine is nil until the model is loaded, and again when the engine is lost.
	Engine engine.Engine
	// Shape is the model's for reports; nil where it isn't known. Nobody changes it.
	Shape *workerv1.ModelShape
}

// Worker is the process that the server speaks for.
type Worker interface {
	Identity() Identity
	// Status returns how the worker is, and a channel that is closed when that is no longer so.
	Status() (Status, <-chan struct{})
	// Drain makes the worker report draining and refuse requests. It returns at once.
	Drain()
}

// Recorder counts what goes by.
type Recorder interface {
	Accepted(promptTokens int)
	Generated(tokens int)
	FirstToken(after time.Duration)
	NextTokens(tokens int, after time.Duration)
	Ended(o metrics.Outcome, tokens int, sinceFirst, whole time.Duration)
}

// Server implements the Worker service.
type Server struct {
	workerv1.UnimplementedWorkerServer

	worker   Worker
	recorder Recorder
	log      logr.Logger
	clock    clock.WithTicker
	stop     chan struct{} // closed when streams that have no end of their own must end
	reports  counter
	prefixes prefixes
}

// New returns a server. Call StopStreams before a graceful stop, which waits for streams.
func New(w Worker, r Recorder, log logr.Logger, c clock.WithTicker) *Server {
	return &Server{worker: w, recorder: r, log: log, clock: c, stop: make(chan struct{})}
}

// StopStreams ends every Watch, and every GenerateMany when the request that runs on it has ended. It must be called once.
func (s *Server) StopStreams() { close(s.stop) }

// The limits of a connection.
const (
	maxReceive = 16 << 20 // bytes of one message; a chat of a full long context is some MiB
	maxStreams = 1024
	minPing    = 5 * time.Second
	// How many bytes of a request may lie unread, so that most prompts come whole, and how many of a connection may be under
	// way. Sizes that gRPC does not adapt: to adapt them it asks for an echo of each message, and begins with windows in which
	// a long prompt has to wait.
	streamWindow     = 1 << 20
	connectionWindow = 8 << 20
)

// Options are a grpc.Server's options for this service.
func Options(creds credentials.TransportCredentials) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.MaxRecvMsgSize(maxReceive),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(identity.Keepalive()),
	}
}

// Tokenize returns the tokens of a prompt.
func (s *Server) Tokenize(ctx context.Context, q *workerv1.TokenizeRequest) (*workerv1.TokenizeResponse, error) {
	var p engine.Prompt
	var err error
	switch x := q.GetPrompt().(type) {
	case *workerv1.TokenizeRequest_Chat:
		p, err = chatPrompt(x.Chat)
	case *workerv1.TokenizeRequest_Text:
		p.Text = x.Text.GetText()
	default:
		err = &engine.InvalidError{Field: "prompt", Message: "there is none"}
	}
	if err != nil {
		return nil, status(err)
	}
	e, err := s.ready()
	if err != nil {
		return nil, status(err)
	}
	tokens, err := e.Tokenize(ctx, p)
	if err != nil {
		return nil, status(err)
	}
	return &workerv1.TokenizeResponse{Tokens: wire(tokens)}, nil
}

// Drain refuses new requests from now on.
func (s *Server) Drain(_ context.Context, q *workerv1.DrainRequest) (*workerv1.DrainResponse, error) {
	id := s.worker.Identity()
	if err := expect("instance", q.GetExpectedInstanceId(), id.Instance); err != nil {
		return nil, status(err)
	}
	s.worker.Drain()
	now, _ := s.worker.Status()
	if now.Engine == nil {
		return &workerv1.DrainResponse{}, nil
	}
	st := now.Engine.Stats()
	return &workerv1.DrainResponse{InFlight: uint32(st.Running + st.Waiting)}, nil
}

// ready returns the engine, or why no request is taken.
func (s *Server) ready() (engine.Engine, error) {
	now, _ := s.worker.Status()
	switch {
	case now.Draining:
		return nil, engine.ErrDraining
	case now.Engine == nil:
		return nil, engine.ErrNotLoaded
	}
	return now.Engine, nil
}

func wire(tokens []engine.Token) []uint32 {
	out := make([]uint32, len(tokens))
	for i, t := range tokens {
		out[i] = uint32(t)
	}
	return out
}
