package server

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"k8s.io/utils/clock"

	"github.com/go-logr/logr"

	"github.com/ringfleet/ringfleet/router/admission"
	"github.com/ringfleet/ringfleet/router/discovery"
	"github.com/ringfleet/ringfleet/router/gateway"
	"github.com/ringfleet/ringfleet/router/heartbeat"
	"github.com/ringfleet/ringfleet/router/metrics"
	"github.com/ringfleet/ringfleet/router/placement"
	"github.com/ringfleet/ringfleet/router/prefix"
	"github.com/ringfleet/ringfleet/router/queue"
	"github.com/ringfleet/ringfleet/router/upstream"
)

// fleet is the path from what the cluster says to where a request goes: discovery's states into the table of heartbeats
// and the gateway, the table's verdicts and reports into the ring, the queue and the connections.
type fleet struct {
	clock clock.PassiveClock
	log   logr.Logger
	set   *metrics.Set
	table *heartbeat.Table
	board *placement.Board
	gate  *queue.Gate
	calls *upstream.Client
	bands atomic.Pointer[admission.Bands]
	tiers atomic.Pointer[map[string]admission.Tier] // by name
	woken bell                                      // rings when requests begin to wait for a model without workers
	// resume lets answers go on at another worker.
	resume    atomic.Bool
	told      atomic.Bool // the gateway has a state: requests are answered by it
	waitBytes int64       // of the bodies of requests that wait

	mu       sync.Mutex // guards what follows; held while the board is set, never while the table is called to change
	models   []discovery.Model
	labels   map[string]string    // by model UID: its name in metrics
	progress map[string]*progress // by pod, of those that don't serve yet
	states   map[string]keptState // by model UID: what its workers did a moment ago
	nodes    int                  // virtual ones
	synced   time.Time            // first state; zero before
	settled  bool
	settling time.Duration
}

// fleetOptions are what a fleet needs.
type fleetOptions struct {
	clock      clock.WithDelayedExecution
	heart      clock.Clock // of the heartbeats
	creds      credentials.TransportCredentials
	log        logr.Logger
	set        *metrics.Set
	indexBytes int64
	waitBytes  int64 // of the bodies of requests that wait
	keptBytes  int64 // of answers that could go on elsewhere
	rand       func() float64
}

func newFleet(o fleetOptions) *fleet {
	f := &fleet{waitBytes: o.waitBytes, clock: o.clock, log: o.log, set: o.set, labels: map[string]string{}, progress: map[string]*progress{}, states: map[string]keptState{}}
	f.nodes = discovery.DefaultSettings().VirtualNodes
	f.board = placement.NewBoard(placement.Options{Index: prefix.New(prefix.Options{MaxBytes: o.indexBytes})})
	f.gate = queue.New(queue.Options{
		Levels: f.levels, Bands: func() admission.Bands { return *f.bands.Load() },
		Waits: func(err error) bool { return errors.Is(err, placement.ErrNoWorker) },
		Clock: o.clock, Rand: o.rand, Woken: func(string) { f.woken.ring() },
	})
	f.table = heartbeat.NewTable(heartbeat.Options{
		Credentials: o.creds, Clock: o.heart, Log: o.log, OnChange: func(*heartbeat.Snapshot) { f.publish() },
		OnReport: f.report, OnEject: f.ejected, OnAnomaly: f.anomaly,
	}, heartbeat.DefaultConfig())
	f.calls = upstream.New(upstream.Options{
		Credentials: o.creds, Placer: f.board, Suspect: f.table.Suspect, Outcome: f.outcome, Measured: f.measured,
		Retried: f.retried, Resumed: f.resumed, Quarantined: f.quarantined, Clock: o.clock,
		KeptBytes: o.keptBytes, Forgot: f.forgot,
	})
	f.configure(discovery.DefaultSettings())
	f.keepFigures()
	return f
}

// Close ends heartbeats, waiting and calls.
func (f *fleet) Close() {
	f.table.Close()
	f.gate.Close()
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
	uids := map[string]bool{}
	for _, m := range s.Models {
		if m.Deleting {
			continue
		}
		uids[m.UID] = true
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
	clear(f.states)
	maps.DeleteFunc(f.progress, func(pod string, _ *progress) bool {
		return !slices.ContainsFunc(candidates, func(c heartbeat.Candidate) bool { return c.Pod == pod })
	})
	f.mu.Unlock()

	f.gate.Keep(uids)
	f.configure(s.Settings)
	f.table.SetConfig(heartbeat.Config{Interval: h.Interval, Timeout: h.Timeout,
		FailuresToDrop: h.FailuresToDrop, SuccessesToAdmit: h.SuccessesToAdmit, Stall: s.Settings.Idle})
	f.table.SetCandidates(candidates)
	f.publish()
	f.set.Synced.Set(1)
	return gateway.NewState(served, front(s.Settings))
}

// configure takes the settings of placement, admission and waiting.
func (f *fleet) configure(s discovery.Settings) {
	tiers := make(map[string]admission.Tier, len(s.Tiers))
	for _, t := range s.Tiers {
		tiers[t.Name] = admission.Tier{Name: t.Name, Priority: t.Priority, WhenBusy: admission.WhenBusy(t.WhenBusy), MaxQueue: t.MaxQueue}
	}
	bands := admission.Bands{WatchPercent: s.Admission.WatchPercent, ScaleOutPercent: s.Admission.ScaleOutPercent,
		AdmitPercent: s.Admission.AdmitPercent, RefusePercent: s.Admission.RefusePercent}
	f.tiers.Store(&tiers)
	f.bands.Store(&bands)
	f.resume.Store(s.Resume)
	if err := f.board.Configure(s.Policy, s.MaxLoadPercent); err != nil {
		f.log.Error(err, "placement stays as it is")
	}
	limits := queue.DefaultLimits()
	limits.Model.Requests, limits.Hold.Requests = int64(s.Admission.MaxQueued), int64(s.Admission.MaxHeld)
	limits.All.Requests, limits.HoldAll.Requests = max(limits.All.Requests, limits.Model.Requests), max(limits.HoldAll.Requests, limits.Hold.Requests)
	limits.MaxHold = s.Admission.MaxHold
	limits.All.Bytes, limits.HoldAll.Bytes = f.waitBytes/2, f.waitBytes/2
	limits.Model.Bytes, limits.Hold.Bytes = min(limits.Model.Bytes, limits.All.Bytes), min(limits.Hold.Bytes, limits.HoldAll.Bytes)
	f.gate.Configure(limits)
	f.gate.WakeAll()
}

// front is what the gateway has to know of the settings.
func front(s discovery.Settings) gateway.Settings {
	out := gateway.Settings{FirstByte: s.FirstByte, Idle: s.Idle, DefaultTier: s.DefaultTier, TrustHeaders: s.TrustHeaders, Isolate: s.Isolate}
	for _, t := range s.Tiers {
		out.Tiers = append(out.Tiers, gateway.Tier{Name: t.Name, Priority: t.Priority})
	}
	return out
}

// served are the models of the last state.
func (f *fleet) served() []discovery.Model {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.models
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

// publish makes the table's latest verdicts the ring, and lets those who wait try again.
func (f *fleet) publish() {
	now := f.clock.Now()
	f.mu.Lock()
	snapshot := f.table.Snapshot()
	models := make(map[string][]placement.Worker, len(snapshot.Models))
	var all []upstream.Worker
	out := map[string]int{} // those passed over
	for uid, members := range snapshot.Models {
		ejected := 0
		for _, m := range members {
			models[uid] = append(models[uid], placement.Worker{
				Pod: m.Pod, Address: m.Address, Instance: m.Instance, Revision: m.Revision, Loaded: m.Loaded,
				InRing: m.State == heartbeat.Up, Suspect: m.Suspect, Ejected: m.Ejected, Since: m.Since, Weight: m.Weight, Resumes: m.Resumes,
			})
			all = append(all, upstream.Worker{Pod: m.Pod, Instance: m.Instance, Address: m.Address,
				Lost: m.State == heartbeat.Lost, Draining: m.State == heartbeat.Draining || m.Terminating, Many: m.GeneratesMany})
			if m.Ejected {
				ejected++
			}
		}
		out[uid] = ejected
	}
	f.board.Set(models, f.nodes, now)
	f.calls.Sync(all)
	for uid, name := range f.labels {
		inRing, candidates := 0, 0
		if v := f.board.View(uid); v != nil {
			inRing, candidates = v.InRing(), v.Candidates()
		}
		f.set.RingVersion.WithLabelValues(name).Set(float64(f.board.View(uid).RingVersion() >> 16))
		f.set.Ejected.WithLabelValues(name).Set(float64(out[uid]))
		f.set.RingMembers.WithLabelValues(name).Set(float64(inRing))
		f.set.Candidates.WithLabelValues(name).Set(float64(candidates))
	}
	f.mu.Unlock()
	f.gate.WakeAll()
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
	case f.synced.IsZero() || !f.told.Load():
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
