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
}

// Table watches a set of candidates. All methods may be called at any time from any goroutine.
type Table struct {
	options  Options
	ctx      context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup
	snapshot atomic.Pointer[Snapshot]

	publishing sync.Mutex // orders snapshots; taken before mu; held while OnChange runs

	mu       sync.Mutex // guards what follows; taken before a watcher's mu
	config   Config
	watchers map[string]*watcher // by pod name
}

// NewTable returns a table without candidates. Close it when done.
func NewTable(o Options, c Config) *Table {
	t := &Table{options: o, config: c.sane(), watchers: map[string]*watcher{}}
	t.ctx, t.stop = context.WithCancel(context.Background())
	t.snapshot.Store(&Snapshot{Models: map[string][]Member{}})
	return t
}

// Close ends every stream and waits for its goroutines. A closed table publishes nothing more.
func (t *Table) Close() {
	t.stop()
	t.mu.Lock()
	t.watchers = map[string]*watcher{}
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
	for _, w := range t.watchers {
		w.configure(c)
	}
	t.mu.Unlock()
	t.publish()
}

// SetCandidates replaces the set; of several with one pod name the first counts. A candidate whose pod, address or model's
// UID differs starts from nothing; one that is gone is forgotten.
func (t *Table) SetCandidates(candidates []Candidate) {
	t.mu.Lock()
	if t.ctx.Err() != nil {
		t.mu.Unlock()
		return
	}
	old := t.watchers
	t.watchers = make(map[string]*watcher, len(candidates))
	for _, c := range candidates {
		if t.watchers[c.Pod] != nil {
			continue
		}
		w := old[c.Pod]
		if w == nil || !w.same(c) {
			w = newWatcher(t, c, t.config)
			t.running.Go(w.run)
		} else {
			delete(old, c.Pod)
		}
		if c.Terminating {
			w.terminate()
		}
		t.watchers[c.Pod] = w
	}
	for _, w := range old {
		w.cancel()
	}
	t.mu.Unlock()
	t.publish()
}

// Suspect makes new requests avoid an instance until its next good report. It returns when the snapshot says so.
func (t *Table) Suspect(pod, instance string) {
	t.mu.Lock()
	w := t.watchers[pod]
	changed := w != nil && w.suspicion(instance)
	t.mu.Unlock()
	if changed {
		t.publish()
	}
}

// Workers is everything known of every candidate, by model and pod name.
func (t *Table) Workers() []Worker {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Worker, 0, len(t.watchers))
	for _, w := range t.watchers {
		out = append(out, w.worker())
	}
	slices.SortFunc(out, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(a.ModelUID, b.ModelUID), cmp.Compare(a.Pod, b.Pod))
	})
	return out
}

// publish makes a snapshot of what the watchers think now, unless it would equal the last one.
func (t *Table) publish() {
	t.publishing.Lock()
	defer t.publishing.Unlock()
	s := &Snapshot{Models: map[string][]Member{}}
	for _, w := range t.Workers() {
		s.Models[w.ModelUID] = append(s.Models[w.ModelUID], w.Member)
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
