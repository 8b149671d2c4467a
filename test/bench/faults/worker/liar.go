package worker

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/test/bench/faults/history"
	"github.com/ringfleet/ringfleet/test/bench/faults/rig"
	"github.com/ringfleet/ringfleet/test/bench/router/mock"
)

// liar is a worker that speaks the contract with routers, and breaks it as it is told. It runs in this process.
type liar struct {
	workerv1.UnimplementedWorkerServer
	rig     *rig.Rig
	pod     string
	address string
	// answer, where set, answers in place of words.
	answer func(*workerv1.GenerateRequest, grpc.ServerStreamingServer[workerv1.GenerateResponse]) error

	mu       sync.Mutex // guards the rest
	report   *workerv1.Report
	scripted bool          // a report comes with each beat, and no other
	beats    chan struct{} // closed and replaced with each
	calls    int
	strange  int // calls for another instance, which were refused
}

// newLiar returns a worker of a model that says that it is well. It serves from start on.
func newLiar(r *rig.Rig, m discovery.Model, pod, address string) *liar {
	return &liar{rig: r, pod: pod, address: address, beats: make(chan struct{}), report: &workerv1.Report{
		InstanceId: pod + "-1", Model: m.Name, ModelUid: m.UID, PodName: pod, PodUid: "uid-" + pod, Revision: "1", ModelLoaded: true,
		Stage: workerv1.Stage_STAGE_LOADED, Resumes: true,
		Load: &workerv1.Load{MaxSequences: 1 << 16, KvBlockTokens: 16, KvBlocksTotal: new(uint64(1 << 20)), KvBlocksUsed: new(uint64(0))},
	}}
}

// candidate is the worker as the cluster names it.
func (l *liar) candidate() discovery.Candidate {
	return discovery.Candidate{PodName: l.pod, PodUID: "uid-" + l.pod, Address: l.address}
}

// start serves, and returns what ends that.
func (l *liar) start() (stop func(), err error) {
	creds, done, err := l.rig.AsWorker()
	if err != nil {
		return nil, err
	}
	if l.address == "" {
		port, err := l.rig.Port()
		if err != nil {
			done()
			return nil, err
		}
		l.address = fmt.Sprintf("127.0.0.1:%d", port)
	}
	at, err := net.Listen("tcp", l.address)
	if err != nil {
		done()
		return nil, err
	}
	s := grpc.NewServer(append(mock.Options(creds), grpc.MaxSendMsgSize(1<<30))...)
	workerv1.RegisterWorkerServer(s, l)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(at) // it ends with stop
	}()
	return func() {
		s.Stop()
		<-served
		done()
	}, nil
}

// says changes what the reports say.
func (l *liar) says(change func(*workerv1.Report)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.report)
	l.ring()
}

// beat sends a report.
func (l *liar) beat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring()
}

// ring wakes those who report. The caller holds the lock.
func (l *liar) ring() {
	close(l.beats)
	l.beats = make(chan struct{})
}

// counts are how many calls were taken, and how many were refused, as they were for another instance.
func (l *liar) counts() (calls, strange int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls, l.strange
}

// Watch implements workerv1.WorkerServer.
func (l *liar) Watch(_ *workerv1.WatchRequest, s grpc.ServerStreamingServer[workerv1.Report]) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for first := true; ; first = false {
		l.mu.Lock()
		l.report.Sequence++
		now, beat, scripted := copied(l.report), l.beats, l.scripted
		l.mu.Unlock()
		if !scripted || !first { // who asks anew is told at once, but by a script
			if err := s.Send(now); err != nil {
				return err
			}
		}
		regular := tick.C
		if scripted {
			regular = nil
		}
		select {
		case <-regular:
		case <-beat:
		case <-s.Context().Done():
			return nil
		}
	}
}

// copied is a report that does not change any more.
func copied(r *workerv1.Report) *workerv1.Report {
	return &workerv1.Report{InstanceId: r.InstanceId, Model: r.Model, ModelUid: r.ModelUid, PodName: r.PodName, PodUid: r.PodUid, Revision: r.Revision,
		ModelLoaded: r.ModelLoaded, Draining: r.Draining, Stage: r.Stage, Resumes: r.Resumes, Sequence: r.Sequence, Load: r.Load}
}

// take counts a call, and reports whether it is for the present instance.
func (l *liar) take(q *workerv1.GenerateRequest) (instance string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.GetExpectedInstanceId() != l.report.InstanceId {
		l.strange++
		return "", false
	}
	l.calls++
	return l.report.InstanceId, true
}

// Generate implements workerv1.WorkerServer. A liar takes every call that is for it, whatever it has said of itself.
func (l *liar) Generate(q *workerv1.GenerateRequest, s grpc.ServerStreamingServer[workerv1.GenerateResponse]) error {
	id, ok := l.take(q)
	if !ok {
		return status.Error(codes.FailedPrecondition, "it is another instance")
	}
	a := history.Attempt{ID: q.GetRequestId(), Pod: l.pod, Instance: id, Start: time.Now(), From: len(q.GetResumeTokens())}
	defer func() {
		a.End, a.Aborted = time.Now(), s.Context().Err() != nil
		l.rig.Log.Attempt(a)
	}()
	if l.answer != nil {
		return l.answer(q, s)
	}
	if err := accept(s, id); err != nil {
		return err
	}
	for n := a.From; n < int(q.GetMaxTokens()); n++ {
		if err := delta(s, history.Word("w", n), uint32(n)); err != nil {
			return err
		}
		a.Sent++
	}
	return finish(s, q.GetMaxTokens())
}

// Drain implements workerv1.WorkerServer.
func (l *liar) Drain(context.Context, *workerv1.DrainRequest) (*workerv1.DrainResponse, error) {
	return nil, status.Error(codes.Unimplemented, "it does not drain")
}

type stream = grpc.ServerStreamingServer[workerv1.GenerateResponse]

func accept(s stream, instance string) error {
	return s.Send(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Accepted{Accepted: &workerv1.Accepted{InstanceId: instance, PromptTokens: 32}}})
}

func delta(s stream, text string, tokens ...uint32) error {
	return s.Send(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Delta{Delta: &workerv1.Delta{Text: text, Tokens: tokens}}})
}

func finish(s stream, tokens uint32) error {
	return s.Send(&workerv1.GenerateResponse{Event: &workerv1.GenerateResponse_Finish{Finish: &workerv1.Finish{
		Reason: workerv1.FinishReason_FINISH_REASON_LENGTH, Usage: &workerv1.Usage{PromptTokens: 32, CompletionTokens: tokens}}}})
}

// with adds candidates to a model of a state.
func with(s discovery.State, m discovery.Model, more ...discovery.Candidate) discovery.State {
	for i := range s.Models {
		if s.Models[i].UID == m.UID {
			s.Models[i].Candidates = append(s.Models[i].Candidates, more...)
			return s
		}
	}
	m.Candidates = more
	s.Models = append(s.Models, m)
	return s
}
