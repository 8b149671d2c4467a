package server

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"k8s.io/utils/clock"

	"github.com/go-logr/logr"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/heartbeat"
	"github.com/ringfleet/ringfleet/router/metrics"
	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/upstream"
)

// fleet is the path from what the cluster says to where a request goes: discovery's states into the table of heartbeats
// and the gateway, the table's verdicts into the ring and the connections.
type fleet struct {
	clock clock.PassiveClock
	log   logr.Logger
	set   *metrics.Set
	table *heartbeat.Table
	board *placement.Board
	calls *upstream.Client

	mu       sync.Mutex // guards what follows; held while the board is set, never while the table is called to change
	models   []discovery.Model
	labels   map[string]string // by model UID: its name in metrics
	nodes    int               // virtual ones
	synced   time.Time         // first state; zero before
	settled  bool
	settling time.Duration
}

func newFleet(c clock.WithDelayedExecution, heart clock.Clock, creds credentials.TransportCredentials, log logr.Logger, set *metrics.Set) *fleet {
	f := &fleet{clock: c, log: log, set: set, board: &placement.Board{}, labels: map[string]string{}}
	f.nodes = discovery.DefaultSettings().VirtualNodes
	f.table = heartbeat.NewTable(heartbeat.Options{
		Credentials: creds, Clock: heart, Log: log, OnChange: func(*heartbeat.Snapshot) { f.publish() },
	}, heartbeat.DefaultConfig())
	f.calls = upstream.New(upstream.Options{Credentials: creds, Placer: f.board, Suspect: f.table.Suspect, Retried: f.retried, Clock: c})
	return f
}

// Close ends heartbeats and calls.
func (f *fleet) Close() {
	f.table.Close()
	f.calls.Close()
}

// apply takes a state of the cluster. Calls are serial. It returns what the gateway should see.
func (f *fleet) apply(s discovery.State) *gateway.State {
	f.mu.Lock()
	if f.synced.IsZero() {
		f.synced = f.clock.Now()
	}
	h := s.Settings.Heartbeat
	f.models, f.nodes = s.Models, s.Settings.VirtualNodes
	f.settling = time.Duration(h.SuccessesToAdmit)*h.Interval + h.Timeout
	f.labels = map[string]string{}
	var candidates []heartbeat.Candidate
	var served []gateway.Model
	for _, m := range s.Models {
		if m.Deleting {
			continue
		}
		if len(m.ServedNames) > 0 {
			name := label(m)
			f.labels[m.UID] = name
			served = append(served, gateway.Model{UID: m.UID, Name: name, ServedNames: m.ServedNames, Adapters: m.Adapters, Created: m.Created})
		}
		for _, c := range m.Candidates {
			candidates = append(candidates, heartbeat.Candidate{Pod: c.PodName, PodUID: c.PodUID, Address: c.Address,
				ModelUID: m.UID, Model: m.Name, Terminating: c.Terminating})
		}
	}
	f.keepFigures()
	f.mu.Unlock()

	f.table.SetConfig(heartbeat.Config{Interval: h.Interval, Timeout: h.Timeout,
		FailuresToDrop: h.FailuresToDrop, SuccessesToAdmit: h.SuccessesToAdmit})
	f.table.SetCandidates(candidates)
	f.publish()
	f.set.Synced.Set(1)
	return gateway.NewState(served, s.Settings.FirstByte, s.Settings.Idle)
}

// label is the name of a model in figures: its own, or the first other one that asks for the model itself, or an
// adapter's. No two models share it.
func label(m discovery.Model) string {
	if slices.Contains(m.ServedNames, m.Name) {
		return m.Name
	}
	if i := slices.IndexFunc(m.ServedNames, func(s string) bool { return !slices.Contains(m.Adapters, s) }); i >= 0 {
		return m.ServedNames[i]
	}
	return m.ServedNames[0]
}

// keepFigures drops the figures of names that no model has any more. The caller holds the lock.
func (f *fleet) keepFigures() {
	kept := map[string]bool{gateway.UnknownModel: true}
	for _, name := range f.labels {
		kept[name] = true
	}
	f.set.Keep(kept)
}

// publish makes the table's latest verdicts the ring.
func (f *fleet) publish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	snapshot := f.table.Snapshot()
	models := make(map[string][]placement.Worker, len(snapshot.Models))
	var all []upstream.Worker
	for uid, members := range snapshot.Models {
		for _, m := range members {
			models[uid] = append(models[uid], placement.Worker{Pod: m.Pod, Address: m.Address, Instance: m.Instance,
				Revision: m.Revision, Loaded: m.Loaded, InRing: m.State == heartbeat.Up, Suspect: m.Suspect})
			all = append(all, upstream.Worker{Pod: m.Pod, Instance: m.Instance, Address: m.Address, Lost: m.State == heartbeat.Lost})
		}
	}
	f.board.Set(models, f.nodes)
	f.calls.Sync(all)
	for uid, name := range f.labels {
		inRing, candidates := 0, 0
		if v := f.board.View(uid); v != nil {
			inRing, candidates = v.InRing(), v.Candidates()
		}
		f.set.RingMembers.WithLabelValues(name).Set(float64(inRing))
		f.set.Candidates.WithLabelValues(name).Set(float64(candidates))
	}
}

// ready reports whether requests can be answered: the cluster's state is known, and every worker that may be in the
// ring by now had the time to get there. From then on it stays so: a ring that empties later is no reason to send
// clients to another router, whose ring is the same.
func (f *fleet) ready() (bool, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.settled:
		return true, ""
	case f.synced.IsZero():
		return false, "not synced with the API server yet"
	case f.clock.Since(f.synced) < f.settling && slices.ContainsFunc(f.table.Workers(), undecided):
		return false, "workers are not heard yet"
	}
	f.settled = true
	return true, ""
}

// undecided reports whether a worker may be in the ring soon, if only it is listened to.
func undecided(w heartbeat.Worker) bool {
	if w.State != heartbeat.Down || w.Terminating || w.LastError != "" {
		return false
	}
	return w.Report == nil || w.Report.GetModelLoaded()
}

// retried counts and logs one more worker asked.
func (f *fleet) retried(r upstream.Retry) {
	f.mu.Lock()
	name, known := f.labels[r.ModelUID]
	if known {
		f.set.Retries.WithLabelValues(name).Inc()
	}
	f.mu.Unlock()
	f.log.Info("a request is tried on another worker", "request_id", r.RequestID, "model", name, "worker", r.From, "why", r.Why, "next", r.To)
}

// state is what a model's workers do.
func (f *fleet) state(modelUID string) (s workersState) {
	for _, w := range f.table.Workers() {
		if w.ModelUID != modelUID {
			continue
		}
		s.candidates++
		stage := w.Report.GetStage()
		if stage == workerv1.Stage_STAGE_FAILED {
			s.failed++
			continue
		}
		if s.stage == workerv1.Stage_STAGE_DRAINING || stage > s.stage && stage != workerv1.Stage_STAGE_DRAINING || s.stage == 0 {
			s.stage, s.percent = stage, nil
			if w.Report != nil {
				s.percent = w.Report.ProgressPercent
			}
		}
	}
	return s
}
