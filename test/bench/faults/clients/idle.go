package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/test/bench"
	"github.com/ringfleet/ringfleet/test/bench/command"
	"github.com/ringfleet/ringfleet/test/bench/faults/client"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/faults/trial"
	"github.com/ringfleet/ringfleet/test/bench/router/load"
	"github.com/ringfleet/ringfleet/test/bench/router/mock"
)

const (
	// manyStreams are open at once; watched are those of them whose comments are counted.
	manyStreams = 10_000
	watched     = 100
	// idleTime is how long they are: a comment is due after 15 seconds.
	idleTime = 18 * time.Second
)

// idleStreams is F70. Its workers are doubles that compute nothing, in this process: so many engines' streams would cost more
// than the router.
func idleStreams() []trial.Trial {
	return []trial.Trial{{
		ID: "F70", Says: fmt.Sprintf("%d clients hold streams that are silent, beside %d requests a second", manyStreams, perSecond), Times: 1, Takes: 31 * time.Second,
		Most: 4 * time.Minute,
		Spec: rig.Spec{MaxConnections: manyStreams + 2000},
		Run: func(ctx context.Context, r *rig.Rig, _ int) ([]bench.Figure, error) {
			r.Foreign()
			stop, err := doubles(ctx, r, 2)
			if err != nil {
				return nil, err
			}
			defer stop()
			return idle(ctx, r)
		},
	}}
}

// doubles adds workers of another model that compute nothing, and returns what ends them.
func doubles(ctx context.Context, r *rig.Rig, n int) (func(), error) {
	creds, done, err := r.AsWorker()
	if err != nil {
		return nil, err
	}
	stops := []func(){done}
	stop := func() {
		for i := len(stops) - 1; i >= 0; i-- {
			stops[i]()
		}
	}
	m := discovery.Model{UID: mock.ModelUID, Object: mock.Model, Name: mock.Model, ServedNames: []string{mock.Model}, Created: time.Unix(1_700_000_000, 0)}
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			stop()
			return nil, err
		}
		g := grpc.NewServer(mock.Options(creds)...)
		pod := fmt.Sprintf("double-%d", i)
		workerv1.RegisterWorkerServer(g, &mock.GRPC{Pod: pod, Plan: mock.Plan{Tokens: 2, Silence: time.Hour}})
		go func() { _ = g.Serve(l) }() // it ends with its listener
		stops = append(stops, g.Stop)
		m.Candidates = append(m.Candidates, discovery.Candidate{PodName: pod, PodUID: "uid-" + pod, Address: l.Addr().String()})
	}
	s := r.State()
	s.Models = append(s.Models, m)
	if err := r.Tell(ctx, s); err != nil {
		stop()
		return nil, err
	}
	for _, c := range m.Candidates {
		if err := r.Routers[0].Await(ctx, c.PodName, true); err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

// atOnce is a streamed request that a double answers at once.
func atOnce(int) client.Request {
	return client.Request{Model: mock.Model, Free: true, Stream: true, Words: 64, Prompt: "What is asked here?"}
}

// idle holds the streams, and measures.
func idle(ctx context.Context, r *rig.Rig) ([]bench.Figure, error) {
	x := r.Routers[0]
	quiet, err := alone(ctx, r, atOnce)
	if err != nil {
		return nil, err
	}
	files, err := x.FDs()
	if err != nil {
		return nil, err
	}
	memory, err := x.RSS()
	if err != nil {
		return nil, err
	}
	w := &watchers{}
	defer w.close()
	if err := w.open(ctx, address(x)); err != nil {
		return nil, err
	}
	t := load.Target{Address: address(x)}
	for i := range 64 {
		t.Requests = append(t.Requests, load.Request("/v1/chat/completions", mock.Body(true, 200, i)))
	}
	streams := load.Hold(ctx, t, manyStreams-watched, 64)
	defer streams.Close()
	if streams.Failed > 0 {
		return nil, fmt.Errorf("%d streams could not be opened: %s", streams.Failed, streams.Error)
	}
	var filesNow int
	var memoryNow int64
	during, err := beside(ctx, r, atOnce, func() error {
		if err := command.Pause(ctx, idleTime); err != nil {
			return err
		}
		var a, b error
		filesNow, a = x.FDs()
		memoryNow, b = x.RSS()
		return errors.Join(a, b)
	})
	if err != nil {
		return nil, err
	}
	const mebi = 1 << 20
	if during.failed > 0 {
		fmt.Fprintf(r.Shared.Out, "  F70: %d requests failed, such as: %s\n", during.failed, during.why)
	}
	return []bench.Figure{
		bench.AtMost(fmt.Sprintf("F70 memory of the router with %d streams", manyStreams), float64(memoryNow)/mebi, "MiB", 1024),
		bench.AtMost("F70 memory of a stream", float64(memoryNow-memory)/manyStreams/1024, "KiB", 64),
		bench.AtMost("F70 files of a stream", float64(filesNow-files)/manyStreams, "", 2.1),
		bench.AtLeast("F70 streams that saw a comment within 16 s", 100*float64(w.commented.Load())/watched, "%", 100),
		bench.AtLeast("F70 requests beside them that were answered", during.share(), "%", 100),
		bench.AtMost("F70 p99 to the first token over that without the streams", during.first.Quantile(0.99)/quiet.first.Quantile(0.99), "times", 1.2),
		bench.Plain("F70 p99 to the first token", 1000*during.first.Quantile(0.99), "ms"),
	}, nil
}

// watchers read idle streams.
type watchers struct {
	conns     []*conn
	group     sync.WaitGroup
	commented atomic.Int64 // that saw a comment in time
}

func (w *watchers) open(ctx context.Context, to string) error {
	for i := range watched {
		c, err := dial(ctx, to, 0)
		if err != nil {
			return err
		}
		w.conns = append(w.conns, c)
		body := mock.Body(true, 200, i)
		if _, err := c.Write([]byte(head(len(body)) + body)); err != nil {
			return err
		}
		w.group.Go(func() { w.watch(c) })
	}
	return nil
}

// watch waits for a token and then for a comment.
func (w *watchers) watch(c *conn) {
	const due = 16 * time.Second
	var token time.Time
	for {
		line, err := c.in.ReadBytes('\n')
		switch {
		case err != nil:
			return
		case bytes.HasPrefix(line, []byte("data: ")):
			token = time.Now()
		case bytes.HasPrefix(line, []byte(":")) && !token.IsZero():
			if time.Since(token) <= due {
				w.commented.Add(1)
			}
			return
		}
	}
}

func (w *watchers) close() {
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.group.Wait()
}

// firstData reads a response until a stream's first event with data.
func (c *conn) firstData(within time.Duration) error {
	_ = c.SetReadDeadline(time.Now().Add(within))
	status, err := c.in.ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.Contains(status, " 200 ") {
		return fmt.Errorf("it answers %q", strings.TrimSpace(status))
	}
	for {
		line, err := c.in.ReadBytes('\n')
		if err != nil {
			return err
		}
		if bytes.HasPrefix(line, []byte("data: ")) {
			return nil
		}
	}
}
