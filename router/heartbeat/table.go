package heartbeat

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/credentials"
	"k8s.io/utils/clock"

	workerv1 "github.com/ringfleet/ringfleet/api/worker/v1"
)

// Candidate is a pod that may be a worker of a model: what the API server says of it.
type Candidate struct {
	Pod         string // name; no two candidates share one
	PodUID      string
	Address     string // host:port of its gRPC server
	ModelUID    string
	Model       string // the model's name as clients ask for it
	Terminating bool   // the pod is being deleted
}

// Member is a candidate and the verdict on it.
type Member struct {
	Candidate
	State State
	// Instance, Revision and Loaded come from its last report; empty and false before the first.
	Instance string
	Revision string
	Loaded   bool
	// Suspect is true from Table.Suspect until its next good report: new requests had better go elsewhere. It stays in
	// the ring.
	Suspect bool
	// Ejected is true while this router passes it over for how requests fare there (see Ejector). It stays in the ring: the
	// verdict is this router's own, and rings are equal everywhere.
	Ejected bool
	// Since is when this instance first came into the ring; zero before.
	Since time.Time
	// Weight is its share of points on the ring in per cent, 1 to 1000, as its last report says; 100 before the first.
	Weight int
	// Resumes says that its engine can go on after tokens that another worker made.
	Resumes bool
	// GeneratesMany says that it takes one request after the other on a stream.
	GeneratesMany bool
	// Anomaly is the signal by which it differs from its past or its peers, such as "BetweenTokens"; empty when there is
	// none, and always in a Snapshot: it says nothing of where a request may go.
	Anomaly string
}

// placing is what of m says where requests may go.
func (m Member) placing() Member {
	m.Anomaly = ""
	return m
}

// Snapshot is the members of every model at one moment, by the model's UID, in the order of their pods' names. It
// never changes.
type Snapshot struct {
	Models map[string][]Member
}

// Worker is all that is known of a candidate, for people and for the manager.
type Worker struct {
	Member
	Report     *workerv1.Report // last one; nil before the first; must not be changed
	ReportedAt time.Time
	LastError  string // what is wrong with the last heartbeat; empty after a good one, and while none was due
}

// Options of a Table.
type Options struct {
	// Credentials for the workers.
	Credentials credentials.TransportCredentials
	Clock       clock.Clock
	Log         logr.Logger
	// OnChange, when set, is called with every new snapshot, one at a time and in order. It must return soon, and must
	// not call a method of the table other than Snapshot.
	OnChange func(*Snapshot)
	// OnReport, when set, is called with each report of an expected worker, in the order in which they come from it, after
	// the snapshot that the report changes. Calls for different workers run at the same time. It must return soon, and must
	// not call Close. The report must not be changed.
	OnReport func(m Member, r *workerv1.Report, at time.Time)
	// OnEject and OnAnomaly, when set, are told of each ejection and anomaly that begins or ends. As for OnReport, but the
	// order of two changes that come at the same time is not certain.
	OnEject   func(Ejection)
	OnAnomaly func(Anomaly)
}

// Table watches a set of candidates. All methods may be called at any time from any goroutine.
type Table struct {
	options  Options
	ctx      context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup
	snapshot atomic.Pointer[Snapshot]

	asked      atomic.Uint64 // counts calls of publish
	publishing sync.Mutex    // guards told and orders snapshots; taken without mu; held while OnChange runs
	told       uint64        // the last of asked that the snapshot answers

	roster atomic.Pointer[roster]

	mu     sync.Mutex // guards what follows, and the change of the roster; taken before a watcher's mu
	config Config
	judges map[string]*judge // by the model's UID
}

// roster is the watchers of one set of candidates. It never changes.
type roster struct {
	byPod   map[string]*watcher
	ordered []*watcher // by model and pod name
}

func newRoster(byPod map[string]*watcher) *roster {
	return &roster{byPod, slices.SortedFunc(maps.Values(byPod), func(a, b *watcher) int {
		return cmp.Or(cmp.Compare(a.judge.model, b.judge.model), cmp.Compare(a.pod, b.pod))
	})}
}

// NewTable returns a table without candidates. Close it when done.
func NewTable(o Options, c Config) *Table {
	t := &Table{options: o, config: c.sane(), judges: map[string]*judge{}}
	t.ctx, t.stop = context.WithCancel(context.Background())
	t.roster.Store(&roster{})
	t.snapshot.Store(&Snapshot{Models: map[string][]Member{}})
	return t
}

// Close ends every stream and waits for its goroutines. A closed table publishes nothing more.
func (t *Table) Close() {
	t.stop()
	t.mu.Lock()
	t.roster.Store(&roster{})
	t.mu.Unlock()
	t.running.Wait()
}

// Snapshot is the latest one. It costs an atomic load.
func (t *Table) Snapshot() *Snapshot { return t.snapshot.Load() }

// SetConfig changes the numbers. Streams are opened anew when the interval differs; what was counted stays.
func (t *Table) SetConfig(c Config) {
	c = c.sane()
	t.mu.Lock()
	if c == t.config {
		t.mu.Unlock()
		return
	}
	t.config = c
	for _, j := range t.judges {
		j.configure(c)
	}
	var all []news
	for _, w := range t.roster.Load().ordered {
		all = w.configure(c).from(w, all)
	}
	t.mu.Unlock()
	t.publish()
	t.tellAll(all)
}

// SetCandidates replaces the set; of several with one pod name the first counts. A candidate whose pod, address or model's
// UID differs starts from nothing; one that is gone is forgotten.
func (t *Table) SetCandidates(candidates []Candidate) {
	t.mu.Lock()
	if t.ctx.Err() != nil {
		t.mu.Unlock()
		return
	}
	old, next := t.roster.Load().byPod, make(map[string]*watcher, len(candidates))
	var others []Candidate
	var all []news
	for _, c := range candidates {
		if _, twice := next[c.Pod]; twice {
			continue
		}
		w := old[c.Pod]
		if w != nil && !w.same(c) {
			w = nil
		}
		if next[c.Pod] = w; w == nil {
			others = append(others, c)
		} else if c.Terminating {
			all = w.terminate().from(w, all)
		}
	}
	for pod, w := range old {
		if next[pod] != w {
			all = w.retire().from(w, all)
		}
	}
	t.keepJudges(candidates)
	for _, c := range others {
		next[c.Pod] = newWatcher(t, c, t.config, t.judges[c.ModelUID])
		t.running.Go(next[c.Pod].run)
	}
	t.roster.Store(newRoster(next))
	t.mu.Unlock()
	t.publish()
	t.tellAll(all)
}

// keepJudges makes a judge for each model of the candidates, and drops those of others. The caller holds the lock.
func (t *Table) keepJudges(candidates []Candidate) {
	old := t.judges
	t.judges = map[string]*judge{}
	for _, c := range candidates {
		if t.judges[c.ModelUID] != nil {
			continue
		}
		if t.judges[c.ModelUID] = old[c.ModelUID]; t.judges[c.ModelUID] == nil {
			t.judges[c.ModelUID] = newJudge(c.ModelUID, t.config)
		}
	}
}

// Suspect makes new requests avoid an instance until its next good report. It returns when the snapshot says so.
func (t *Table) Suspect(pod, instance string) {
	if w := t.roster.Load().byPod[pod]; w != nil && w.suspicion(instance) {
		t.publish()
	}
}

// Outcome takes how a request to an instance ended. It returns when the snapshot has what follows of it.
func (t *Table) Outcome(pod, instance string, o Outcome) {
	if w := t.roster.Load().byPod[pod]; w != nil {
		w.outcome(instance, o)
	}
}

// Measured takes a sample of an instance: a time in seconds, or a ratio. Negative, absurd and unknown ones are dropped.
func (t *Table) Measured(pod, instance string, s Signal, value float64) {
	if w := t.roster.Load().byPod[pod]; w != nil {
		w.measured(instance, s, value)
	}
}

// Workers is everything known of every candidate, by model and pod name.
func (t *Table) Workers() []Worker {
	watchers := t.roster.Load().ordered
	out := make([]Worker, 0, len(watchers))
	for _, w := range watchers {
		out = append(out, w.worker())
	}
	return out
}

// publish makes a snapshot of what the watchers think now, unless it would equal the last one. Of many calls at the same
// time few make one: each returns when there is one that was made after it was called.
func (t *Table) publish() {
	mine := t.asked.Add(1)
	t.publishing.Lock()
	defer t.publishing.Unlock()
	if t.told >= mine {
		return
	}
	t.told = t.asked.Load()
	s := &Snapshot{Models: map[string][]Member{}}
	for left := t.roster.Load().ordered; len(left) > 0; {
		uid := left[0].judge.model
		n := 1
		for n < len(left) && left[n].judge.model == uid {
			n++
		}
		members := make([]Member, n)
		for i, w := range left[:n] {
			members[i] = w.worker().placing()
		}
		s.Models[uid], left = members, left[n:]
	}
	last := t.snapshot.Load()
	if t.ctx.Err() != nil || maps.EqualFunc(s.Models, last.Models, slices.Equal[[]Member]) {
		return
	}
	t.snapshot.Store(s)
	if t.options.OnChange != nil {
		t.options.OnChange(s)
	}
}
