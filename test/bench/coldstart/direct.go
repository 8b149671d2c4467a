package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/ringfleet/ringfleet/api/v1alpha1"
	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/test/cluster"
)

// glance is how often a process or a port that is about to be there is looked for.
const glance = 5 * time.Millisecond

// direct is what a caller sees who goes straight to a worker that has yet to start.
type direct struct {
	began time.Time // its process was first seen
	token time.Time // the first token of the first request
}

// straight waits for the process of a pod, listens to its reports as a router does, and sends it one request when it
// says that the model is loaded. Processes in before are not looked at.
func straight(ctx context.Context, uid, id string, before map[int]bool, creds credentials.TransportCredentials) (direct, error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.Hangs)
	defer cancel()
	var d direct
	pid, err := appears(ctx, uid, before)
	if err != nil {
		return d, err
	}
	d.began = time.Now()
	address, err := cluster.Address(pid)
	if err != nil {
		return d, fmt.Errorf("find the address of process %d: %w", pid, err)
	}
	conn, err := grpc.NewClient(net.JoinHostPort(address.String(), strconv.Itoa(v1alpha1.PortGRPCNumber)), grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: glance, Multiplier: 1, MaxDelay: glance}, MinConnectTimeout: time.Second}))
	if err != nil {
		return d, err
	}
	defer conn.Close()
	worker := workerv1.NewWorkerClient(conn)
	if err := untilLoaded(ctx, worker); err != nil {
		return d, fmt.Errorf("hear from %s: %w", address, err)
	}
	d.token, err = token(ctx, worker, id)
	if err != nil {
		err = fmt.Errorf("ask %s: %w", address, err)
	}
	return d, err
}

// appears waits for the worker's process of a pod.
func appears(ctx context.Context, uid string, before map[int]bool) (int, error) {
	t := time.NewTicker(glance)
	defer t.Stop()
	for {
		pid, err := cluster.Process(uid, "worker", before)
		if err != nil || pid != 0 {
			return pid, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("no process of pod %s on this machine: %w", uid, ctx.Err())
		case <-t.C:
		}
	}
}

func untilLoaded(ctx context.Context, worker workerv1.WorkerClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reports, err := worker.Watch(ctx, &workerv1.WatchRequest{}, grpc.WaitForReady(true))
	for err == nil {
		var r *workerv1.Report
		if r, err = reports.Recv(); err != nil {
			break
		}
		if r.GetModelLoaded() {
			return nil
		}
		if r.GetStage() == workerv1.Stage_STAGE_FAILED {
			return fmt.Errorf("it can't load its model: %s", r.GetMessage())
		}
	}
	return err
}

// token sends one request and returns when its first token came.
func token(ctx context.Context, worker workerv1.WorkerClient, id string) (time.Time, error) {
	zero := 0.0
	stream, err := worker.Generate(ctx, &workerv1.GenerateRequest{RequestId: id, MaxTokens: 1, Sampling: &workerv1.Sampling{Temperature: &zero},
		Prompt: &workerv1.GenerateRequest_Chat{Chat: &workerv1.ChatPrompt{Messages: []byte(`[{"role":"user","content":"` + prompt + `"}]`)}}})
	if err != nil {
		return time.Time{}, err
	}
	var first time.Time
	for {
		r, err := stream.Recv()
		if err != nil {
			return first, err
		}
		if len(r.GetDelta().GetTokens()) > 0 || r.GetDelta().GetText() != "" {
			once(&first, time.Now())
		}
		if r.GetFinish() == nil {
			continue
		}
		if first.IsZero() {
			return first, errors.New("the answer has no token")
		}
		return first, nil
	}
}
