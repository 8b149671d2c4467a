package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/test/bench/worker/process"
	"github.com/ringfleet/ringfleet/test/bench/worker/programs"
	"github.com/ringfleet/ringfleet/test/bench/worker/timeline"
)

// glance is how often something that is about to be there is looked for.
const glance = 5 * time.Millisecond

// Worker is our own program, asked as a router asks it: by gRPC over mutual TLS.
type Worker struct {
	*process.Process
	conn   *grpc.ClientConn
	client workerv1.WorkerClient
	asked  atomic.Int64
}

// StartWorker starts a worker on the model, and returns when it says that the model is loaded.
func StartWorker(ctx context.Context, f *Fleet, p programs.Programs, flags ...string) (*Worker, error) {
	var address [2]string
	for i := range address {
		port, err := process.Port()
		if err != nil {
			return nil, err
		}
		address[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	args := append([]string{
		"--model=smol", "--model-uid=u", "--revision=r", "--namespace=" + namespace, "--pod-name=p", "--pod-uid=u",
		"--weights-dir=" + filepath.Dir(p.Weights), "--weights-file=" + filepath.Base(p.Weights), "--library-dir=" + p.Libraries,
		"--tls-dir=" + f.folder, "--grpc-address=" + address[0], "--http-address=" + address[1],
		"--threads=" + strconv.Itoa(Threads), "--max-sequences=" + strconv.Itoa(Sequences), "--context-tokens=" + strconv.Itoa(ContextTokens),
	}, flags...)
	run, err := process.Start(ctx, process.Spec{Path: p.Worker, Args: args})
	if err != nil {
		return nil, err
	}
	w := &Worker{Process: run}
	w.conn, err = grpc.NewClient("passthrough:///"+address[0], grpc.WithTransportCredentials(f.router),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(1<<20), // as routers have them
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: 10 * time.Second, Backoff: backoff.Config{BaseDelay: glance, Multiplier: 1, MaxDelay: glance},
		}))
	if err != nil {
		run.Stop()
		return nil, err
	}
	w.client = workerv1.NewWorkerClient(w.conn)
	if err := w.untilLoaded(ctx); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

// Stop ends the worker.
func (w *Worker) Stop() {
	_ = w.conn.Close() // nothing is asked any more
	w.Process.Stop()
}

func (w *Worker) untilLoaded(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.Ended():
			cancel()
		case <-ctx.Done():
		}
	}()
	reports, err := w.client.Watch(ctx, &workerv1.WatchRequest{})
	for err == nil {
		var r *workerv1.Report
		if r, err = reports.Recv(); err != nil {
			break
		}
		if r.GetModelLoaded() {
			return nil
		}
		if r.GetStage() == workerv1.Stage_STAGE_FAILED {
			return fmt.Errorf("the worker can't load its model: %s", r.GetMessage())
		}
	}
	select {
	case <-w.Ended():
		return w.Lost()
	default:
		return fmt.Errorf("hear from the worker: %w", err)
	}
}

// Tokenize returns the tokens of a text.
func (w *Worker) Tokenize(ctx context.Context, text string) ([]uint32, error) {
	r, err := w.client.Tokenize(ctx, &workerv1.TokenizeRequest{Prompt: &workerv1.TokenizeRequest_Text{Text: &workerv1.TextPrompt{Text: text}}})
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	return r.GetTokens(), nil
}

// Ask implements Engine.
func (w *Worker) Ask(ctx context.Context, q Request) (timeline.Answer, error) {
	greedy := 0.0
	n := note(q)
	stream, err := w.client.Generate(ctx, &workerv1.GenerateRequest{
		RequestId: strconv.FormatInt(w.asked.Add(1), 10), AttemptId: "1", CacheSalt: q.Salt, IgnoreEos: true,
		MaxTokens: uint32(q.MaxTokens), Sampling: &workerv1.Sampling{Temperature: &greedy}, //nolint:gosec // some hundreds
		Prompt: &workerv1.GenerateRequest_Tokens{Tokens: &workerv1.TokenPrompt{Tokens: q.Prompt}},
	})
	if err != nil {
		return n.Answer, fmt.Errorf("ask the worker: %w", err)
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return n.whole(q)
		}
		if err != nil {
			return n.Answer, fmt.Errorf("hear the worker's answer: %w", err)
		}
		if tokens := len(r.GetDelta().GetTokens()); tokens > 0 {
			n.came(tokens)
		}
		if u := r.GetFinish().GetUsage(); u != nil {
			n.Prompt, n.Completion, n.Cached = int(u.GetPromptTokens()), int(u.GetCompletionTokens()), int(u.GetCachedTokens())
		}
	}
}
